"""What the adapters of frameworks share: the calls of a tool as effects.

A call is named by the run that it belongs to, its tool, and its id, in its thread. What is called a run here stays the
same when a call is repeated, and differs where a conversation was forked. With a key of the user, such as
"charge/{order_id}", a call is named by its arguments alone, in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from locus.effects.effects import Effects
from locus.effects.keyed import key_from
from locus.effects.terms import Terms, checked_terms
from locus.errors import ConfigurationError

Key = str | Callable[[Mapping[str, Any]], str] | None
"""A text with names of arguments in braces, or a function of the arguments."""


@dataclass(frozen=True)
class Unfinished:
    """What a tool may return instead of a result: it has raised an error that its framework turned into this value, or,
    without an error, it is to be called again."""

    value: Any
    error: BaseException | None = None


class _CalledAgain(Exception):
    """The call is not over."""


class ToolCalls:
    """The calls of a tool as effects. `terms` are those of the tool, and `adapter` has those of its framework."""

    def __init__(self, effects: Effects, key: Key, terms: Mapping[str, Any], **adapter: Any) -> None:
        if not isinstance(effects, Effects):
            raise ConfigurationError(f"pass the ledger, Effects(…), got {type(effects).__name__}")
        merged = {**adapter, **terms}
        for name in ("clean_errors", "pauses"):
            merged[name] = (*adapter.get(name, ()), *terms.get(name, effects.terms[name]))
        merged["pauses"] = (*merged["pauses"], _CalledAgain)
        self.effects = effects
        self.key = key
        self.terms: Terms = checked_terms(effects.terms, merged)

    def named(
        self, tool: str, arguments: Mapping[str, Any], call_id: str | None, run: str | None, thread_id: str | None
    ) -> tuple[str, str | None]:
        """The key and the thread of a call."""
        if self.key is not None:
            return key_from(self.key, arguments) if isinstance(self.key, str) else self.key(arguments), None
        if not call_id:
            raise ConfigurationError(f"this call of {tool} has no id; give its effect a key: key='{tool}/{{argument}}'")
        return "/".join(quote(part, safe=" @:.-_") for part in (run or "", tool, call_id)), thread_id

    async def once(
        self,
        call: Callable[[], Any],
        tool: str,
        arguments: Mapping[str, Any],
        call_id: str | None,
        *,
        run: str | None = None,
        thread_id: str | None = None,
    ) -> Any:
        """Make a call of a tool, unless it was made before, and return its result."""
        unfinished: list[Unfinished] = []

        async def made() -> Any:
            return _checked(await call(), unfinished)

        name, thread = self.named(tool, arguments, call_id, run, thread_id)
        try:
            return await self.effects.once(name, made, thread_id=thread, args=dict(arguments), **self.terms)
        except BaseException as error:  # noqa: BLE001 - it may be one that the framework has made a value of
            return _value_of(unfinished, error)

    def once_blocking(
        self,
        call: Callable[[], Any],
        tool: str,
        arguments: Mapping[str, Any],
        call_id: str | None,
        *,
        run: str | None = None,
        thread_id: str | None = None,
    ) -> Any:
        """Make a call of a tool that blocks. See `once`."""
        name, thread = self.named(tool, arguments, call_id, run, thread_id)
        return self.effects.sync.once(name, call, thread_id=thread, args=dict(arguments), **self.terms)


def _checked(value: Any, unfinished: list[Unfinished]) -> Any:
    if isinstance(value, Unfinished):
        unfinished.append(value)
        raise value.error or _CalledAgain
    return value


def _value_of(unfinished: list[Unfinished], error: BaseException) -> Any:
    """What the framework has made of this error, or the error."""
    if unfinished and (error is unfinished[0].error or isinstance(error, _CalledAgain)):
        return unfinished[0].value
    raise error
