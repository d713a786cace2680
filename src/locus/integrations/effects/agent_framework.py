"""Effects for the Microsoft Agent Framework: `Agent(middleware=[EffectMiddleware(effects, only=["charge"])])`.

A call is named by its id, in its session. An effect that is not made ends the run, and is no text for the model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Unpack

from agent_framework import Content, FunctionInvocationContext, FunctionMiddleware, MiddlewareFailure
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from locus.effects import Effects, Terms
from locus.effects.tools import Key, ToolCalls
from locus.errors import LocusError


class EffectMiddleware(FunctionMiddleware):
    """Makes each call of a tool an effect of its session, or with a `key` such as "charge/{order_id}" of that.

    `only` names the tools of which it is so: all, if there is none. `terms` say what happens to a call whose outcome is
    unknown. Other middleware that changes arguments comes before it.
    """

    def __init__(
        self, effects: Effects, *, only: Collection[str] | None = None, key: Key = None, **terms: Unpack[Terms]
    ) -> None:
        self._calls = ToolCalls(effects, key, terms, dump=_dumped, load=_loaded)
        self._only = only

    async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        name = context.function.name
        if self._only is not None and name not in self._only:
            await call_next()
            return

        async def call() -> Any:
            await call_next()
            return context.result

        arguments = context.arguments
        said = arguments.model_dump(mode="json") if isinstance(arguments, BaseModel) else to_jsonable_python(arguments)
        try:
            context.result = await self._calls.once(
                call,
                name,
                said,
                context.metadata.get("call_id"),
                thread_id=None if context.session is None else context.session.session_id,
            )
        except LocusError as error:
            raise MiddlewareFailure(str(error)) from error


def _dumped(result: Any) -> Any:
    contents = isinstance(result, list) and all(isinstance(each, Content) for each in result)
    return {"contents": [each.to_dict() for each in result]} if contents else {"value": to_jsonable_python(result)}


def _loaded(kept: Any) -> Any:
    if isinstance(kept, Mapping) and kept.keys() == {"contents"}:
        return [Content.from_dict(each) for each in kept["contents"]]
    if isinstance(kept, Mapping) and kept.keys() == {"value"}:
        return kept["value"]
    return kept  # a receiver, or a person, has told of it
