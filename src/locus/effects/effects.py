"""`Effects`: calls that change something elsewhere, each with a key, made once although processes die.

A call is recorded before it is made, and its result before anybody gets it. Exactly once needs a receiver that helps:
between the call and the record of its result a process may die, and then nobody here knows whether it was made. So
whoever calls says what happens then: nothing (at most once), the call again (at least once), or a question to the
receiver. Every store keeps these laws:

- Of all callers of a key one makes the call, and each of them gets the same result: as JSON gives it back.
- While a call is under way it is not made a second time. It is under way until its lease ends, and is renewed.
- A call of which nobody knows whether it was made is made again only on the terms of its caller.
- Keys and threads are data: any text, and no two are taken for each other. Other arguments are an error.
- An outage is an error. A call is never made without its record; a result that cannot be recorded is kept by this
  process, which records it as soon as the same key is asked for again.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from locus.core.tasks import ended, finished
from locus.effects.effect import (
    LONGEST_ERROR,
    STATES,
    Effect,
    State,
    begun,
    digest_of,
    effect_of,
    item_for,
    namespace_of,
)
from locus.effects.terms import DEFAULTS, Answer, CleanFailure, Made, NotMade, Terms, checked_terms, patience
from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    ConfigurationError,
    ConflictError,
    EffectBusyError,
    EffectError,
    EffectFailedError,
    EffectMismatchError,
    EffectResultError,
    SerializationError,
    UnknownEffectError,
)
from locus.memory.checkpointer import StoreVerbs
from locus.memory.engine import Engine
from locus.memory.long_term.names import item_id, keys_of, whole_name
from locus.memory.long_term.store import ItemStore
from locus.memory.model.arguments import checked_limit
from locus.memory.model.codec import encode
from locus.memory.registry import as_checkpointer
from locus.memory.runtime.leases import LONGEST, Watch
from locus.memory.runtime.once import made_once
from locus.memory.runtime.retry import Backoff

if TYPE_CHECKING:
    from locus.effects.sync import SyncEffects

SPACE = "effects"
T = TypeVar("T")

_LOOKS = Backoff(0.02, 1.0)
"""The pauses of a caller who waits for another one."""
_MOST_UNSENT = 1_000
"""How many ends of calls a process keeps that the store has not taken."""


@dataclass
class Claim:
    """An effect that this caller makes."""

    effect: Effect
    terms: Terms


@dataclass(frozen=True)
class _Unsure:
    """An effect of which the receiver has to be asked."""

    effect: Effect


@dataclass(frozen=True)
class InStore:
    """A step that uses the store. One that is `whole` is not left to a caller who is cancelled meanwhile."""

    work: Coroutine[Any, Any, Any]
    whole: bool = False


@dataclass(frozen=True)
class ByUser:
    """A step that calls a function of the user, and holds the lease of a claim meanwhile."""

    call: Callable[[], Any]
    claim: Claim | None = None


Steps = Generator[InStore | ByUser, Any, Any]


class Effects:
    """The ledger of effects in a store of Locus: beside its threads, which know nothing of it.

    `store` is a checkpointer or storage backend, whose connections it shares, or a name or URL, which it opens and
    closes. The other arguments are `Terms`, which each effect may change. A result has at most `max_result_bytes` as
    JSON.
    """

    def __init__(self, store: Any, *, max_result_bytes: int = 1_000_000, **terms: Unpack[Terms]) -> None:
        opened = store if isinstance(store, StoreVerbs) else as_checkpointer(store)
        if not isinstance(opened, StoreVerbs):
            raise CapabilityError(f"{type(opened).__name__} is no store of Locus, and keeps no effects")
        self._opened = opened
        self._is_own = isinstance(store, str | PurePath)
        self._items = ItemStore(opened.store, SPACE)
        self._unsent: OrderedDict[str, Effect] = OrderedDict()
        """By claim, how calls of this process have ended, if the store has not taken it."""
        self.max_result_bytes = max_result_bytes
        self.terms = checked_terms(DEFAULTS, terms)

    async def once(
        self,
        key: str,
        call: Callable[..., Any],
        *,
        thread_id: str | None = None,
        args: Any = None,
        **terms: Unpack[Terms],
    ) -> Any:
        """Make a call, unless it was made before, and return its result: JSON, as it is recorded.

        `key` names the effect, and `thread_id` the thread that it belongs to, if any. `args` are what the call is made
        with, as JSON: the same key with others is an `EffectMismatchError`. `call` is a function, async or not; if it
        has a parameter `idempotency_key`, it gets the name of the effect, for a receiver that makes nothing twice.
        """
        steps = self._steps(key, call, thread_id, args, checked_terms(self.terms, terms))
        advance: Callable[[Any], InStore | ByUser] = steps.send
        value: Any = None
        try:
            while True:
                step = advance(value)
                try:
                    value, advance = await self._done(step), steps.send
                except BaseException as error:  # noqa: BLE001 - the steps decide what becomes of it
                    value, advance = error, steps.throw
        except StopIteration as end:
            return end.value

    async def _done(self, step: InStore | ByUser) -> Any:
        if isinstance(step, InStore):
            return await (finished(step.work) if step.whole else step.work)
        if step.claim is None:
            value = step.call()
            return await value if inspect.isawaitable(value) else value
        renewing = asyncio.create_task(self._keep(step.claim))
        try:
            with made_now(step.claim.effect):
                value = step.call()
                return await value if inspect.isawaitable(value) else value
        finally:
            await ended(renewing)

    async def _keep(self, claim: Claim) -> None:
        """Renew the lease of a claim again and again."""
        lasts = True
        while lasts:
            await asyncio.sleep(claim.terms["lease_seconds"] / 3)
            lasts = await self.renewed(claim)

    async def renewed(self, claim: Claim) -> bool:
        """Renew the lease of a claim once. False if somebody else has decided about the effect."""
        try:
            claim.effect = await self._put(claim.effect.leased(claim.terms["lease_seconds"]), claim.effect)
        except ConflictError:
            return False
        except BackendUnavailableError:
            return True  # it may be back the next time
        assert claim.effect.item is not None
        await self._items.remove_versions(_name_of(claim.effect), claim.effect.item.version - 1)
        return True

    def _steps(self, key: str, call: Callable[..., Any], thread_id: str | None, args: Any, terms: Terms) -> Steps:
        """What `once` does, step by step: with an event loop or without one."""
        arguments = digest_of(key, args)
        while True:
            found = yield InStore(self._claimed(key, thread_id, arguments, terms))
            if not isinstance(found, _Unsure):
                break
            reconcile = terms["on_unknown"]
            assert callable(reconcile)
            answer = yield ByUser(partial(reconcile, found.effect))
            yield InStore(self._answered(found.effect, answer, terms))
        if isinstance(found, Effect):
            return _result_of(found, terms)
        try:
            result = yield ByUser(_with_key(call, found.effect.idempotency_key), found)
        except BaseException as error:
            yield InStore(self._record(found, _after_error(found.effect, error, terms)), whole=True)
            raise
        recorded = yield InStore(self._record(found, self._after(found.effect, result, terms)), whole=True)
        return _result_of(recorded, terms)

    async def _claimed(self, key: str, thread_id: str | None, arguments: str | None, terms: Terms) -> Any:
        """The right to make an effect, the effect if it was made, or the need to ask the receiver."""
        watch, looks, latest, until = Watch(), 0, None, time.monotonic() + patience(terms)
        new: Effect | None = begun(key, thread_id, arguments, 1, terms["lease_seconds"])
        while True:
            if new is not None:
                try:
                    return Claim(await self._put(new, latest), terms)
                except ConflictError:
                    pass
                except BaseException:
                    # The record may be there, but the call will not be made.
                    self._keep_unsent(new.ended("paused", repeatable=True))
                    raise
            latest = await self.get(key, thread_id=thread_id)
            if latest is None:
                new = begun(key, thread_id, arguments, 1, terms["lease_seconds"])
                continue
            if latest.arguments is not None and arguments is not None and latest.arguments != arguments:
                raise EffectMismatchError(f"{_shown(latest)} is in use for other arguments; nothing was done", latest)
            unsent = self._unsent.get(latest.claim)
            if unsent is not None and latest.state in ("begun", "unknown"):
                await self._send(unsent, terms)
                continue
            if latest.state == "done":
                return latest
            new = begun(key, thread_id, arguments or latest.arguments, latest.attempt + 1, terms["lease_seconds"])
            if latest.repeatable:
                continue
            left = watch.seconds_left(latest.claim, latest.lease) if latest.lease else 0.0
            patient = until - time.monotonic()
            if left:
                if patient <= 0:
                    text = f"{_shown(latest)} is being made by another caller, whose lease ends in {left:.1f} seconds"
                    raise EffectBusyError(text, latest, left)
            elif terms["on_unknown"] == "retry":
                continue
            else:
                latest = replace(latest, state="unknown" if latest.lease else latest.state)
                if callable(terms["on_unknown"]):
                    return _Unsure(latest)
                if terms["on_unknown"] == "raise" or patient <= 0:
                    raise _unknown(latest)
            new = None
            await asyncio.sleep(min(_LOOKS.seconds(looks), left or LONGEST, patient))
            looks += 1

    async def _answered(self, effect: Effect, answer: Answer, terms: Terms) -> None:
        """Record what the receiver has said of an effect."""
        if isinstance(answer, Made):
            said = self._after(effect, answer.result, terms)
        elif isinstance(answer, NotMade):
            said = effect.ended("failed", repeatable=True)
        elif answer is None:
            raise _unknown(effect)
        else:
            raise ConfigurationError(f"on_unknown returns Made(result), NOT_MADE or None, got {answer!r:.60}")
        try:
            await self._put(replace(said, note="its receiver has said so"), effect, terms["ttl_seconds"])
        except ConflictError:
            return  # somebody else was told as well

    def _after(self, effect: Effect, result: Any, terms: Terms) -> Effect:
        """An effect that was made, with its result, if that can be kept."""
        try:
            text = encode(terms["dump"](result), ("result",))
        except Exception as error:  # noqa: BLE001 - it was made, whatever the result is
            return effect.ended("done", unkept=f"it is no JSON ({type(error).__name__})")
        if len(text.encode()) > self.max_result_bytes:
            return effect.ended("done", unkept=f"it has more than {self.max_result_bytes:,} bytes")
        return effect.ended("done", result=json.loads(text))

    async def _record(self, claim: Claim, after: Effect) -> Effect:
        """Record how a call has ended, and try again during an outage for as long as its lease is. What counts is
        returned: what another caller has recorded before, if there is any."""
        self._keep_unsent(after)
        until, attempt = time.monotonic() + claim.terms["lease_seconds"], 0
        while True:
            try:
                return await self._send(after, claim.terms)
            except BackendUnavailableError as error:
                if time.monotonic() > until:
                    error.add_note("The call was made, or was about to be, and its end could not be recorded.")
                    raise
                await _LOOKS.pause(attempt)
                attempt += 1

    async def _send(self, after: Effect, terms: Terms) -> Effect:
        while True:
            latest = await self.get(after.key, thread_id=after.thread_id)
            is_own = latest is not None and latest.claim == after.claim and latest.state in ("begun", "unknown")
            # Whoever erased the effect wanted nothing to be left; and an error is no news of another attempt.
            if latest is None or latest.state == "done" or not (is_own or after.state == "done"):
                break
            try:
                after = await self._put(after, latest, terms["ttl_seconds"])
                break
            except ConflictError:
                continue
        self._unsent.pop(after.claim, None)
        return latest if latest is not None and latest.state == "done" else after

    def _keep_unsent(self, effect: Effect) -> None:
        self._unsent[effect.claim] = effect
        while len(self._unsent) > _MOST_UNSENT:
            self._unsent.popitem(last=False)

    async def _put(self, effect: Effect, after: Effect | None, ttl_seconds: float | None = None) -> Effect:
        item = item_for(effect, ttl_seconds)
        return replace(effect, item=await self._items.put(item, after.item if after else None))

    async def get(self, key: str, *, thread_id: str | None = None) -> Effect | None:
        """What the ledger has of an effect; None if nothing."""
        item = await self._items.current(namespace_of(thread_id), key)
        return None if item is None else effect_of(item)

    async def find(
        self,
        state: State | None = None,
        *,
        thread_id: str | None = None,
        limit: int | None = 100,
        after: Effect | None = None,
    ) -> list[Effect]:
        """Effects in the order of their threads and keys: all, or those in a state, or of a thread.

        `after` is the last one of the page before.
        """
        if state is not None and state not in STATES:
            raise ConfigurationError(f"a state is one of {', '.join(STATES)}, got {state!r:.60}")
        most = checked_limit(limit, None)
        found: list[Effect] = []
        behind = "" if after is None else whole_name(namespace_of(after.thread_id), after.key)
        async with aclosing(self._each(thread_id, behind)) as effects:
            async for effect in effects:
                if most is not None and len(found) >= most:
                    break
                found += [effect] if state in (None, effect.state) else []
        return found

    async def _each(self, thread_id: str | None, behind: str) -> AsyncGenerator[Effect]:
        names = "" if thread_id is None else keys_of(namespace_of(thread_id))
        async with aclosing(self._items.under(names, after=behind)) as pages:
            async for page in pages:
                for item in page:
                    yield effect_of(item)

    async def settle(
        self, key: str, state: State, *, note: str, thread_id: str | None = None, result: Any = None
    ) -> Effect:
        """Decide by hand about an effect whose outcome is unknown, or that has failed.

        "done" with a result lets every caller get that; "failed" says that nothing has happened, and the next caller
        makes it. `note` says how you know.
        """
        if state not in ("done", "failed") or not isinstance(note, str) or not note.strip():
            raise ConfigurationError('an effect is settled as "done" or "failed", with a note that says how you know')
        effect = await self.get(key, thread_id=thread_id)
        if effect is None:
            raise EffectError(f"there is no effect {key!r:.80} to settle")
        if effect.state == "done":
            raise EffectError(f"{_shown(effect)} is done already; nothing was changed", effect)
        if effect.state == "begun":
            raise EffectBusyError(f"{_shown(effect)} is being made right now; nothing was changed", effect)
        if state == "done":
            settled = self._after(effect, result, self.terms)
            if settled.unkept:
                raise SerializationError(f"the result cannot be kept: {settled.unkept}", "result")
        else:
            settled = effect.ended("failed", repeatable=True)
        return await self._put(replace(settled, note=note[:2_000]), effect, self.terms["ttl_seconds"])

    async def delete(self, key: str, *, thread_id: str | None = None) -> bool:
        """Forget an effect. Its next caller makes it, whatever has happened before. True if it was there."""
        return await self._items.delete(namespace_of(thread_id), key)

    async def erase(self, thread_id: str) -> int:
        """Forget all effects of a thread; return how many."""
        return await self._items.erase_under(keys_of(namespace_of(thread_id)))

    async def sweep(self) -> int:
        """Remove from the store what has ended by its `ttl_seconds`; return how much that was."""
        return await self._items.sweep()

    @made_once
    def sync(self) -> SyncEffects:
        """This ledger with blocking methods, which any thread may call."""
        from locus.effects.sync import SyncEffects

        return SyncEffects(self)

    def keyed(
        self, key: str | Callable[..., str], **terms: Unpack[Terms]
    ) -> Callable[[Callable[..., T]], Callable[..., T]]:
        """Make each call of a function an effect: `@effects.keyed("charge/{order_id}")`.

        `key` is a text with the names of parameters, or a function of them. The function may be async or blocking, and
        its arguments are JSON. Its parameter `idempotency_key`, if it has one, is no parameter for callers.
        """
        from locus.effects.keyed import keyed

        return partial(keyed, self, key, checked_terms(self.terms, terms))

    async def close(self) -> None:
        """Close the store if it was opened here, by its name or URL. A later use opens it again."""
        if self._is_own:
            await self._opened.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    @property
    def engine(self) -> Engine:
        """The engine that keeps the ledger: a key space of that of the store."""
        return self._items.store.engine

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.engine).__name__})"


_current: ContextVar[Effect] = ContextVar("locus_effect")


@contextmanager
def made_now(effect: Effect) -> Generator[None]:
    """Let `current_effect` be this one."""
    token = _current.set(effect)
    try:
        yield
    finally:
        _current.reset(token)


def current_effect() -> Effect | None:
    """The effect that is being made right here. Its `idempotency_key` is for a receiver. None outside of a call."""
    return _current.get(None)


def _with_key(call: Callable[..., Any], idempotency_key: str) -> Callable[[], Any]:
    try:
        takes_key = "idempotency_key" in inspect.signature(call).parameters
    except (TypeError, ValueError):  # some functions written in C have no signature
        takes_key = False
    return partial(call, idempotency_key=idempotency_key) if takes_key else call


def _after_error(effect: Effect, error: BaseException, terms: Terms) -> Effect:
    """An effect whose call has raised an error."""
    if isinstance(error, terms["pauses"]):
        return effect.ended("paused", repeatable=True)
    text = f"{type(error).__name__}: {error}"[:LONGEST_ERROR].encode(errors="replace").decode()
    if isinstance(error, (CleanFailure, *terms["clean_errors"])):
        return effect.ended("failed", repeatable=True, error=text)
    was_cut_off = isinstance(error, TimeoutError) or not isinstance(error, Exception)
    return effect.ended("unknown" if was_cut_off else "failed", error=text)


def _result_of(effect: Effect, terms: Terms) -> Any:
    if effect.unkept is not None:
        raise EffectResultError(f"{_shown(effect)} was made, but its result was not kept: {effect.unkept}", effect)
    return terms["load"](effect.result)


def _unknown(effect: Effect) -> EffectError:
    """The error for an effect of which it is not certain that it may be made."""
    if effect.state == "failed":
        kind = (effect.error or "an error").partition(":")[0]
        text = f"the call of {_shown(effect)} has raised {kind}, and may have taken effect before; it was not repeated"
        return EffectFailedError(text, effect)
    return UnknownEffectError(
        f"nobody knows whether {_shown(effect)} was made: attempt {effect.attempt} was cut off. It was not repeated. "
        "Ask its receiver, and settle it by hand",
        effect,
    )


def _shown(effect: Effect) -> str:
    return f"the effect {effect.key!r:.80}"


def _name_of(effect: Effect) -> str:
    return item_id(namespace_of(effect.thread_id), effect.key)
