"""What the log of a thread adds up to. No I/O: a state and the next record give the next state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.opensearch.opensearch_layout import (
    CHECKPOINT,
    END,
    FORMAT,
    GONE,
    LAG,
    THREAD,
)
from locus.memory.backends.opensearch.schema import Record, Source

NAMESPACES = 32
"""Of so many namespaces, the last ones in use, the newest checkpoint is known at once."""


@dataclass(frozen=True, slots=True)
class Published:
    """What the document of a thread says: up to which record, and until when the thread surely lives or may live."""

    position: int = 0
    changes: int = 0
    live: bool = False
    expires: int | None = None
    until: int | None = None

    def covers(self, expires: int | None) -> bool:
        """Whether this expiry need not be written down, because it is known nearly enough."""
        if self.expires is None or self.until is None or expires is None:
            return self.expires is None and expires is None
        return self.expires <= expires <= self.until


@dataclass(frozen=True, slots=True)
class State:
    """A thread at a position of its log."""

    thread_id: str
    position: int = 0
    epoch: int = 0
    """Records up to this position are dead."""
    last_seq: int = 0
    live: int = 0
    """How many checkpoints there are."""
    order: int = 0
    """The latest time of any checkpoint: what lists of several threads are sorted by."""
    tips: Mapping[str, int] = field(default_factory=dict)
    """The place of the newest checkpoint of each namespace, the last one in use at the end."""
    more: bool = False
    """There may be namespaces that are not among the tips."""
    expires: int | None = None
    life: int = 0
    removing: int = 0
    """The position of a removal that may be unfinished."""
    changes: int = 0
    """How often something was removed."""
    batch: str = ""
    names: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Where the checkpoints are that came after the published position."""
    published: Published = Published()

    def expired(self, now: int) -> bool:
        return self.expires is not None and self.expires <= now

    def there(self, now: int) -> bool:
        """Whether the thread has a checkpoint that anybody may see."""
        return self.live > 0 and not self.expired(now)

    def begun_anew(self) -> State:
        """The same thread with nothing in it."""
        return State(
            self.thread_id,
            position=self.position,
            epoch=self.position,
            order=self.order,
            changes=self.changes + 1,
            published=self.published,
        )

    @property
    def stale_document(self) -> bool:
        """Whether the document of the thread has to be written before anybody is told that this is done."""
        return (
            self.position - self.published.position >= LAG
            or self.published.live != (self.live > 0)
            or self.published.changes != self.changes
            or not self.published.covers(self.expires)
        )


def after(state: State, record: Record) -> State:
    """The state with the next record of the log."""
    if record.kind == GONE or record.position != state.position + 1:
        raise CorruptCheckpointError(f"record {record.position} of thread {state.thread_id!r} is missing")
    if record.state is not None:
        told = state_from(state.thread_id, record.state)
        names = {} if record.kind == END else dict(state.names)
        if record.kind == CHECKPOINT:
            names[record.namespace, record.checkpoint_id] = record.place
        return replace(told, names=names, published=state.published)
    if record.epoch != state.epoch:
        state = replace(state.begun_anew(), epoch=record.epoch)
    tips = dict(state.tips)
    tips.pop(record.namespace, None)
    tips[record.namespace] = record.place
    more = state.more
    if len(tips) > NAMESPACES:
        more = True
        del tips[next(iter(tips))]
    return replace(
        state,
        position=record.position,
        last_seq=record.seq,
        live=state.live + 1,
        order=record.order,
        tips=tips,
        more=more,
        expires=record.expires,
        life=record.life,
        names={**state.names, (record.namespace, record.checkpoint_id): record.place},
    )


_STORED = ("position", "epoch", "last_seq", "live", "order", "more", "expires", "life", "removing", "changes", "batch")


def state_source(state: State) -> dict[str, Any]:
    """A state as records and the document of the thread hold it."""
    told = {name: getattr(state, name) for name in _STORED if getattr(state, name)}
    return {**told, "tips": [list(pair) for pair in state.tips.items()]}


def state_from(thread_id: str, source: Source) -> State:
    try:
        tips = {namespace: int(place) for namespace, place in source["tips"]}
        return State(thread_id, tips=tips, **{name: source[name] for name in _STORED if name in source})
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptCheckpointError(f"what is stored of thread {thread_id!r} cannot be read: {error}") from error


def thread_source(thread: str, state: State, now: int) -> dict[str, Any]:
    """The document of a thread. One without checkpoints has no id any more: only its position counts."""
    source: dict[str, Any] = {
        "kind": THREAD,
        "thread": thread,
        "live": state.live,
        "at": now,
        "body": {"format": FORMAT, "state": state_source(state)},
    }
    if state.live:
        source["thread_id"] = state.thread_id
    if state.expires is not None:
        source["expires"] = state.expires
    return source


def published_by(state: State) -> Published:
    """What the document says that is written of a state."""
    until = None if state.expires is None else state.expires + state.life // 8
    return Published(state.position, state.changes, state.live > 0, state.expires, until)


def thread_state(thread_id: str, source: Source) -> State:
    """The state in the document of a thread."""
    body = source.get("body") or {}
    if body.get("format", FORMAT) != FORMAT:
        raise UnsupportedFormatError(f"thread {thread_id!r} was written by a newer version: upgrade locus-sdk")
    if "state" not in body:
        raise CorruptCheckpointError(f"the document of thread {thread_id!r} cannot be read")
    state = state_from(thread_id, body["state"])
    return replace(state, published=published_by(state))
