"""`SyncEffects`: the ledger of effects with blocking methods, which any thread may call."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, Self, TypeVar, Unpack

from locus.effects.effects import ByUser, Claim, Effects, InStore, made_now
from locus.effects.terms import Terms, checked_terms
from locus.errors import ConfigurationError
from locus.memory.runtime.direct import run
from locus.memory.sync import blocking

R = TypeVar("R")


class SyncEffects:
    """An `Effects` with blocking methods. The calls are made in the thread of their caller."""

    def __init__(self, wrapped: Effects) -> None:
        self._wrapped = wrapped

    def _run(self, call: Coroutine[Any, Any, R]) -> R:
        return run(call, self._wrapped.engine)

    def once(
        self,
        key: str,
        call: Callable[..., Any],
        *,
        thread_id: str | None = None,
        args: Any = None,
        **terms: Unpack[Terms],
    ) -> Any:
        """Make a call, unless it was made before, and return its result. See `Effects.once`; `call` blocks."""
        steps = self._wrapped._steps(key, call, thread_id, args, checked_terms(self._wrapped.terms, terms))
        advance: Callable[[Any], InStore | ByUser] = steps.send
        value: Any = None
        try:
            while True:
                step = advance(value)
                try:
                    value, advance = self._done(step), steps.send
                except BaseException as error:  # noqa: BLE001 - the steps decide what becomes of it
                    value, advance = error, steps.throw
        except StopIteration as end:
            return end.value

    def _done(self, step: InStore | ByUser) -> Any:
        if isinstance(step, InStore):
            return self._run(step.work)
        if step.claim is None:
            return _checked(step.call())
        with self._kept(step.claim), made_now(step.claim.effect):
            return _checked(step.call())

    @contextmanager
    def _kept(self, claim: Claim) -> Generator[None]:
        """Renew the lease of a claim meanwhile."""
        over = threading.Event()

        def keep() -> None:
            while not over.wait(claim.terms["lease_seconds"] / 3) and self._run(self._wrapped.renewed(claim)):
                pass

        thread = threading.Thread(target=keep, name="locus-effect", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    get = blocking(Effects.get)
    find = blocking(Effects.find)
    settle = blocking(Effects.settle)
    delete = blocking(Effects.delete)
    erase = blocking(Effects.erase)
    sweep = blocking(Effects.sweep)
    close = blocking(Effects.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._wrapped.engine).__name__})"


def _checked(value: Any) -> Any:
    if inspect.iscoroutine(value):
        value.close()
        raise ConfigurationError("this call is async: `await effects.once(…)` makes it, and the blocking one cannot")
    return value
