"""`Effect`: what the ledger has of an effect, and how that is stored: as the value of an item in a key space.

    format      the version of this layout
    state       begun, done, failed, unknown or paused
    repeatable  true if nothing has happened: a failure before the effect, or a pause
    attempt     counts from 1
    claim       names the attempt, and no other
    worker      who makes it: host and process
    begun_at, ended_at
    lease       seconds, and until when by the writer's clock
    arguments   a digest of them, or null
    result      JSON; the key `unkept` instead if it could not be kept, which says why
    error       the class of an error, and its text
    note        what somebody has said who settled it by hand

The item's namespace has the parts between the slashes of the thread's id, or is empty without a thread. So the names of
a tenant's effects begin as the ids of the tenant's threads do.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from typing import Any, Literal, get_args
from uuid import UUID

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.long_term.items import Item
from locus.memory.long_term.names import Namespace, item_id, whole_name
from locus.memory.model.codec import canonical
from locus.memory.model.ids import new_id, shown_thread
from locus.memory.runtime.leases import SKEW, Lease

FORMAT = 1

State = Literal["begun", "done", "failed", "unknown", "paused"]
STATES: tuple[State, ...] = get_args(State)

LONGEST_ERROR = 500
"""How many characters are kept of the text of an error."""


@dataclass(frozen=True)
class Effect:
    """An effect as its ledger has it.

    `state` is "begun" while its caller lives, "done", "failed" after its call has raised an error, "paused" if the call
    is to be made again, and "unknown" if its process died, or was cut off, in between.
    """

    key: str
    thread_id: str | None
    state: State
    attempt: int
    worker: str
    begun_at: datetime
    ended_at: datetime | None = None
    repeatable: bool = False
    """Whether it is certain that nothing has happened, so that the next caller makes it."""
    result: Any = field(default=None, repr=False)
    unkept: str | None = None
    """Why the result could not be kept."""
    error: str | None = field(default=None, repr=False)
    note: str | None = field(default=None, repr=False)
    arguments: str | None = field(default=None, repr=False)
    claim: str = field(default="", repr=False)
    lease: Lease | None = field(default=None, repr=False)
    item: Item | None = field(default=None, repr=False, compare=False)

    @property
    def idempotency_key(self) -> str:
        """A name of this effect for its receiver: the same for each attempt, in every process."""
        name = whole_name(namespace_of(self.thread_id), self.key)
        return str(UUID(bytes=sha256(name.encode()).digest()[:16], version=5))

    def ended(self, state: State, **more: Any) -> Effect:
        """This effect after the end of its call."""
        return replace(self, state=state, ended_at=datetime.now(UTC), lease=None, **more)

    def leased(self, seconds: float) -> Effect:
        """This effect with a lease from now on."""
        return replace(self, lease=Lease(seconds, time.time() + seconds))


def begun(key: str, thread_id: str | None, arguments: str | None, attempt: int, lease_seconds: float) -> Effect:
    """A new attempt."""
    effect = Effect(key, thread_id, "begun", attempt, worker(), datetime.now(UTC), arguments=arguments, claim=new_id())
    return effect.leased(lease_seconds)


def worker() -> str:
    return f"{_host()}:{os.getpid()}"


@cache
def _host() -> str:
    return socket.gethostname()[:100]


def namespace_of(thread_id: str | None) -> Namespace:
    return () if thread_id is None else tuple(thread_id.split("/"))


def digest_of(key: str, arguments: Any) -> str | None:
    """A digest of the arguments of an effect, which says nothing about those of others; None without arguments."""
    if arguments is None:
        return None
    return sha256(f"{len(key)}:{key}{canonical(arguments, ('args',))}".encode()).hexdigest()


def item_for(effect: Effect, ttl_seconds: float | None) -> Item:
    """The item that keeps an effect. One that was made, or has failed, may end."""
    now = datetime.now(UTC)
    ends = ttl_seconds is not None and effect.state in ("done", "failed")
    value: dict[str, Any] = {
        "format": FORMAT,
        "state": effect.state,
        "repeatable": effect.repeatable,
        "attempt": effect.attempt,
        "claim": effect.claim,
        "worker": effect.worker,
        "begun_at": effect.begun_at.isoformat(),
        "ended_at": None if effect.ended_at is None else effect.ended_at.isoformat(),
        "lease": None if effect.lease is None else [effect.lease.seconds, effect.lease.until],
        "arguments": effect.arguments,
        "result": effect.result,
        "unkept": effect.unkept,
        "error": effect.error,
        "note": effect.note,
    }
    return Item(
        namespace_of(effect.thread_id),
        effect.key,
        value,
        {},
        now,
        now,
        0,
        None,
        now + timedelta(seconds=ttl_seconds) if ends and ttl_seconds is not None else None,
        ttl_seconds if ends else None,
        False,
    )


def effect_of(item: Item) -> Effect:
    """The effect that an item keeps. One whose lease has ended is unknown."""
    try:
        value: Mapping[str, Any] = item.value
        if value["format"] > FORMAT:
            raise UnsupportedFormatError(
                f"an effect has format {value['format']!r:.20}, and this version of Locus knows up to {FORMAT}: "
                "upgrade locus-state"
            )
        lease = None if value["lease"] is None else Lease(*map(float, value["lease"]))
        ended_at = value["ended_at"]
        state = value["state"]
        if state not in STATES or (state == "begun") != (lease is not None):
            raise ValueError("it says something else than its place")
        if lease is not None and lease.until + SKEW < time.time():
            state = "unknown"
        return Effect(
            item.key,
            "/".join(item.namespace) if item.namespace else None,
            state,
            int(value["attempt"]),
            str(value["worker"]),
            datetime.fromisoformat(value["begun_at"]),
            None if ended_at is None else datetime.fromisoformat(ended_at),
            value["repeatable"] is True,
            value["result"],
            value["unkept"],
            value["error"],
            value["note"],
            value["arguments"],
            str(value["claim"]),
            lease,
            item,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        name = shown_thread(item_id(item.namespace, item.key))
        raise CorruptCheckpointError(f"{name} of a ledger holds no effect") from None
