"""A session of Strands as a document: small fields, and a list of messages for each agent.

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
from dataclasses import dataclass, replace
from typing import Any, Final

from locus.core.frozen import EMPTY, FrozenList
from locus.errors import CorruptCheckpointError
from locus.threads import Change, Kept, Version, freeze

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
class StoredSession:
    """A session as it is stored, without its messages."""

    who: Sequence[Any]
    """The session, its agents and its orchestrators, as one item."""
    ids: Mapping[str, Sequence[int]]
    """Which ids the messages have of those agents that `ids` names."""
    counts: Mapping[str, int]
    """How many messages each list has."""
    version: Version | None = None
    """The version of the document that this is; None if it is new."""

    @property
    def session(self) -> Mapping[str, Any]:
        session: Mapping[str, Any] = self.who[0]["session"]
        return session

    @property
    def agents(self) -> Mapping[str, Mapping[str, Any]]:
        agents: Mapping[str, Mapping[str, Any]] = self.who[0]["agents"]
        return agents

    @property
    def multi_agents(self) -> Mapping[str, Any]:
        multi_agents: Mapping[str, Any] = self.who[0]["multi_agents"]
        return multi_agents

    @property
    def checkpoint_id(self) -> str | None:
        return None if self.version is None else self.version.checkpoint_id

    def ids_of(self, agent_id: str) -> Sequence[int]:
        """The ids of an agent's messages, as pairs of a first id and a count."""
        count = self.counts.get(list_name(agent_id), 0)
        return self.ids.get(agent_id) or ([0, count] if count else [])

    def with_ids(self, agent_id: str, pairs: Sequence[int]) -> StoredSession:
        usual = not pairs or (len(pairs) == 2 and pairs[0] == 0)
        if usual and not self.ids:
            return self
        ids = {**self.ids, agent_id: [] if usual else pairs}
        return replace(self, ids={agent: ids[agent] for agent in self.agents if ids.get(agent)})

    def with_agent(self, agent_id: str, agent: Mapping[str, Any]) -> StoredSession:
        return replace(self, who=[{**self.who[0], "agents": {**self.agents, agent_id: agent}}])

    def with_multi_agent(self, multi_agent_id: str, state: Any) -> StoredSession:
        return replace(self, who=[{**self.who[0], "multi_agents": {**self.multi_agents, multi_agent_id: state}}])

    def fields(self) -> dict[str, Any]:
        """The fields beside the messages, frozen, so that the next save recognises unchanged ones."""
        who = self.who if isinstance(self.who, FrozenList) else freeze(self.who)
        return {WHO: who, IDS: self.ids} if self.ids else {WHO: who}

    def change(self, name: str, lists: Mapping[str, Kept]) -> Change:
        """The change of the document that stores this session, with some of its lists."""
        every = {one: lists.get(one) or Kept(count) for one, count in self.counts.items()}
        return Change(self.fields(), {**every, **lists}, metadata_of(name), after=self.version)


def new_session(
    session: Mapping[str, Any], agents: Mapping[str, Any] = EMPTY, multi_agents: Mapping[str, Any] = EMPTY
) -> StoredSession:
    """Make a session that is not stored yet."""
    return StoredSession([{"session": session, "agents": agents, "multi_agents": multi_agents}], {}, {})


def stored_session(version: Version) -> StoredSession:
    """The session in a version of a document."""
    fields, counts = version.fields, version.counts
    who: Any = fields.get(WHO)
    ids: Any = fields.get(IDS, {})
    session = StoredSession(who, ids, counts, version)
    if version.entry is None:  # it was saved here
        return session
    with suppress(KeyError, TypeError, ValueError, IndexError):
        parts = (session.session, session.agents, session.multi_agents, ids)
        if len(who) == 1 and all(isinstance(part, dict) for part in parts) and _fit(ids, session.agents, counts):
            return session
    raise CorruptCheckpointError(
        "a thread in the namespace of Strands' sessions is no session: something else uses it. "
        "Use another id, or another namespace"
    )


def _fit(ids: Any, agents: Any, counts: Mapping[str, int]) -> bool:
    """Whether each agent has a list with as many messages as it has ids."""
    if not ids.keys() <= agents.keys() or not all(list_name(agent_id) in counts for agent_id in agents):
        return False
    return all(
        isinstance(pairs, list)
        and all(type(number) is int for number in pairs)
        and len(pairs) % 2 == 0
        and sum(pairs[1::2]) == counts.get(list_name(agent_id))
        for agent_id, pairs in ids.items()
    )


def metadata_of(change: str) -> dict[str, Any]:
    return {} if change == MESSAGE else {CHANGE: change}


def change_of(metadata: Mapping[str, Any]) -> str:
    """The name of the change that made a checkpoint of a session."""
    return str(metadata.get(CHANGE, MESSAGE))


def stored_message(message: Mapping[str, Any], place: int) -> dict[str, Any]:
    """A message in stored form, for a place of its list."""
    usual = {_ID: place, _REDACTED: None}
    return {name: value for name, value in message.items() if name not in usual or value != usual[name]}


def message_at(item: Any, place: int) -> dict[str, Any]:
    """The message that was stored at a place of its list."""
    if not isinstance(item, dict):
        raise CorruptCheckpointError("a stored message of Strands is no object")
    return {_ID: place, _REDACTED: None, **item}


def position_of(ids: Sequence[int], message_id: int) -> int | None:
    """The position of a message in its list; None if no message has this id."""
    at = 0
    for first, count in _pairs(ids):
        if first <= message_id < first + count:
            return at + message_id - first
        at += count
    return None


def with_id(ids: Sequence[int], message_id: int) -> tuple[int, list[int]]:
    """The position for a new message in its list, and the ids including its own."""
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
