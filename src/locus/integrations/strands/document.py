"""A session of Strands as one payload, of which a change needs everything but the messages.

    {"who": [{"session": {…}, "agents": {"default": {…}}, "multi_agents": {"graph": {…}}}],
     "ids": {"default": [0, 12, 20, 3]},
     "said": [{"message": {…}, "created_at": …, "updated_at": …}, …],
     "said:clerk": […]}

One payload, so that every change is one checkpoint, and a fork or a step back takes all agents of a session along. The
messages of each agent are a list of their own at the top, in the order of their ids: `said` are those of the agent
`default`, which every agent is that has no id of its own, and `said:clerk` those of another one. A change names how
many of the first ones stay, and what follows them. `ids` says which ids a list has without reading it: pairs of a first
id and a count, one after the other. Everything else is the one item of a list, because a list that has not changed is
not written again, however small it is, and most changes are messages.

There is a checkpoint for each message, so names are short, and what goes without saying is left out. An agent that
`ids` does not name has the ids 0, 1, 2, … A message without a `message_id` has the number of its place, and one without
a `redact_message` has none. The metadata say what the change was, if it was no message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from locus.core.frozen import FrozenList, freeze
from locus.errors import CorruptCheckpointError
from locus.memory.model.codec import decode, encode
from locus.memory.model.digests import fingerprint
from locus.memory.model.manifest import decode_manifest
from locus.memory.model.parts import Ends, Range, Window, page_of, total_of
from locus.memory.model.payloads import dict_from, kept_trace
from locus.memory.model.plan import Payload
from locus.memory.model.records import Cuts, Path, Stored
from locus.memory.model.trace import FieldTrace, ListTrace, Trace
from locus.memory.store import CheckpointStore, Saved

LIST: Final = "said"
DEFAULT_AGENT: Final = "default"
WHO: Final = "who"
IDS: Final = "ids"
CHANGE: Final = "change"
MESSAGE: Final = "message"
"""The change that is left out of the metadata."""
_ID, _REDACTED = "message_id", "redact_message"


def list_name(agent_id: str) -> str:
    return LIST if agent_id == DEFAULT_AGENT else f"{LIST}:{agent_id}"


def is_list_name(name: str) -> bool:
    return name == LIST or name.startswith(f"{LIST}:")


@dataclass(frozen=True, slots=True)
class Document:
    """A session as it is stored, without its messages."""

    session: Mapping[str, Any]
    agents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    multi_agents: Mapping[str, Any] = field(default_factory=dict)
    ids: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Which ids the messages of each agent have."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many messages each list has."""
    whole: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The messages of lists that a store keeps in one piece with the rest."""
    trace: Trace | None = None
    """What the next save may refer to."""
    who: FrozenList | None = None
    """The session, the agents and the orchestrators as they were saved: as long as it is there, they are the same."""

    @property
    def checkpoint_id(self) -> str | None:
        return None if self.trace is None else self.trace.base.checkpoint_id


@dataclass(frozen=True, slots=True)
class Tail:
    """A list from a position on: its messages as they are stored, and as they are to be."""

    start: int
    old: Sequence[Any] = ()
    new: Sequence[Any] = ()


async def read_document(
    store: CheckpointStore, session_id: str, checkpoint_id: str | None, namespace: str
) -> Document | None:
    """A session at a checkpoint, or at the latest, with at most the last message of each list read."""
    stored = await store.read_part(session_id, checkpoint_id, namespace, Ends(1))
    if stored is None:
        return None
    cuts = decode_manifest(stored.manifest)
    lists = _message_lists(cuts)
    if any(path != (WHO,) for path in cuts.keys() - lists.keys()):  # the ids of very many agents
        part = Window(1, frozenset(lists))
        stored = await store.read_part(session_id, stored.entry.checkpoint_id, namespace, part)
        if stored is None:
            return None
    return _document(stored, lists, sort_keys=not store.engine.dialect.exact)


def _message_lists(cuts: Cuts) -> dict[Path, Any]:
    return {
        path: cut for path, cut in cuts.items() if len(path) == 1 and is_list_name(path[0]) and not isinstance(cut, str)
    }


def _document(stored: Stored, lists: Mapping[Path, Any], *, sort_keys: bool) -> Document:
    fields = dict_from(stored, lists)
    counts = {path[0]: total_of(cut) for path, cut in lists.items()}
    trace = kept_trace(stored, counts, sort_keys)
    whole: dict[str, Sequence[Any]] = {}
    for name in filter(is_list_name, fields):
        items = fields[name]
        if name not in counts and isinstance(items, list):
            counts[name], whole[name] = len(items), items
    session: Any = None
    agents: Any = None
    multi_agents: Any = None
    ids: Any = fields.get(IDS, {})
    with suppress(KeyError, TypeError, ValueError):
        (who,) = fields[WHO]
        session, agents, multi_agents = who["session"], who["agents"], who["multi_agents"]
    parts = (session, agents, multi_agents, ids)
    if not all(isinstance(part, dict) for part in parts) or not _fit(ids, agents, counts):
        raise CorruptCheckpointError(
            "a thread in the namespace of Strands' sessions is no session: something else uses it. "
            "Use another id, or another namespace"
        )
    every = {agent_id: ids.get(agent_id) or _usual_ids(counts[list_name(agent_id)]) for agent_id in agents}
    return Document(session, agents, multi_agents, every, counts, whole, trace)


def _fit(ids: Any, agents: Any, counts: Mapping[str, int]) -> bool:
    """Whether every agent has a list, and the ids of as many messages as it has: positions are worked out from them."""
    if not ids.keys() <= agents.keys() or not all(list_name(agent_id) in counts for agent_id in agents):
        return False
    return all(
        isinstance(pairs, list)
        and all(type(number) is int for number in pairs)
        and len(pairs) % 2 == 0
        and sum(pairs[1::2]) == counts.get(list_name(agent_id))
        for agent_id, pairs in ids.items()
    )


def _usual_ids(count: int) -> list[int]:
    return [0, count] if count else []


def _is_usual(pairs: Sequence[int]) -> bool:
    return not pairs or (len(pairs) == 2 and pairs[0] == 0)


def payload_of(document: Document, lists: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """What is stored of a session with these lists of messages."""
    who: Sequence[Any] | None = document.who
    if who is None:
        who = freeze([{"session": document.session, "agents": document.agents, "multi_agents": document.multi_agents}])
    ids = {agent_id: pairs for agent_id, pairs in document.ids.items() if not _is_usual(pairs)}
    return {WHO: who, **({IDS: ids} if ids else {}), **lists}


def metadata_of(change: str) -> dict[str, Any]:
    return {} if change == MESSAGE else {CHANGE: change}


def change_of(metadata: str) -> str:
    """What the change was that made a checkpoint of a session."""
    found = decode(metadata)
    return str(found.get(CHANGE, MESSAGE)) if isinstance(found, dict) else ""


def stored_message(message: Mapping[str, Any], place: int) -> dict[str, Any]:
    """A message as it is stored at a place of its list."""
    usual = {_ID: place, _REDACTED: None}
    return {name: value for name, value in message.items() if name not in usual or value != usual[name]}


def message_at(item: Any, place: int) -> dict[str, Any]:
    """The message that is stored at a place of its list."""
    if not isinstance(item, dict):
        raise CorruptCheckpointError("a stored message of Strands is no object")
    return {_ID: place, _REDACTED: None, **item}


async def save_document(
    store: CheckpointStore,
    session_id: str,
    document: Document,
    tails: Mapping[str, Tail],
    change: str,
    namespace: str,
    *,
    if_latest: str | None,
) -> Document:
    """Save a session whose lists end with these tails, if its latest checkpoint is still the one named."""
    sort_keys = not store.engine.dialect.exact
    lists: dict[str, Sequence[Any]] = {}
    omitted: dict[str, int] = {}
    counts = dict(document.counts)
    traces = {} if document.trace is None else dict(document.trace.fields)
    for name, count in document.counts.items():
        tail = tails.get(name, Tail(count))
        counts[name] = tail.start + len(tail.new)
        if name in document.whole:
            lists[name] = [*document.whole[name][: tail.start], *tail.new]
            continue
        lists[name] = tail.new
        if tail.start:
            omitted[name] = tail.start
        if name in traces and tail.start < count:
            traces[name] = _shown(name, traces[name], tail, sort_keys)
    for name, tail in tails.items():
        if name not in document.counts:
            lists[name], counts[name] = tail.new, len(tail.new)
    fields = payload_of(document, lists)
    known = None if document.trace is None else replace(document.trace, fields=traces)
    saved = await store.save(
        session_id,
        Payload({}, fields, frozen=True, omitted=omitted),
        namespace=namespace,
        metadata=metadata_of(change),
        if_latest=if_latest,
        known=known,
    )
    whole = {} if store.engine.keeps_runs else {name: list(items) for name, items in lists.items()}
    return replace(document, counts=counts, whole=whole, trace=_settled(saved, lists), who=fields[WHO])


def _shown(name: str, known: FieldTrace, tail: Tail, sort_keys: bool) -> FieldTrace:
    """A list of which the next save knows the messages from a position on."""
    path = (name,)
    cut = known.cuts.get(path)
    if not isinstance(cut, ListTrace):
        return known
    digests = tuple(fingerprint(encode(item, sort_keys=sort_keys)) for item in tail.old)
    return replace(known, cuts={path: replace(cut, digests=digests, omitted=tail.start)})


def _settled(saved: Saved, lists: Mapping[str, Sequence[Any]]) -> Trace:
    """What the save after this one may refer to: it will know nothing of the messages."""
    fields = dict(saved.trace.fields)
    for name in lists:
        cut = fields[name].cuts.get((name,))
        if isinstance(cut, ListTrace):
            unread = replace(cut, items=None, digests=(), omitted=total_of(cut.extents))
            fields[name] = FieldTrace(None, "[]", {(name,): unread})
    return replace(saved.trace, fields=fields)


async def read_messages(
    store: CheckpointStore,
    session_id: str,
    checkpoint_id: str | None,
    namespace: str,
    agent_id: str,
    start: int,
    count: int,
) -> tuple[list[Any], range] | None:
    """Some messages of an agent as they are stored, and their places; None if there is no such session or agent."""
    part = Range((list_name(agent_id),), start, count)
    stored = await store.read_part(session_id, checkpoint_id, namespace, part)
    if stored is None or part.path[0] not in names_in(stored):
        return None
    page = page_of(stored, part)
    return page.items, range(page.start, page.start + len(page.items))


def names_in(stored: Stored) -> set[str]:
    """The names at the top of a stored payload."""
    head = decode(stored.head)
    return set(head) if isinstance(head, dict) else set()


def position_of(ids: Sequence[int], message_id: int) -> int | None:
    """Where a message stands in its list; None if no message has the id."""
    at = 0
    for first, count in _pairs(ids):
        if first <= message_id < first + count:
            return at + message_id - first
        at += count
    return None


def with_id(ids: Sequence[int], message_id: int) -> tuple[int, list[int]]:
    """Where a new message belongs in its list, and the ids with its own."""
    pairs = [list(pair) for pair in _pairs(ids)]
    index = bisect_right(pairs, message_id, key=lambda pair: pair[0])
    at = sum(count for _, count in pairs[:index])
    pairs.insert(index, [message_id, 1])
    joined: list[list[int]] = []
    for first, count in pairs:
        if joined and joined[-1][0] + joined[-1][1] == first:
            joined[-1][1] += count
        else:
            joined.append([first, count])
    return at, [number for pair in joined for number in pair]


def _pairs(ids: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(ids[::2], ids[1::2], strict=True))
