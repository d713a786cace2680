"""The log of one thread, read and extended: by the id of each record, in real time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from locus.errors import CorruptCheckpointError
from locus.memory.backends.opensearch.client import (
    Client,
    Doc,
    Failure,
    Write,
    give_way,
    pause,
)
from locus.memory.backends.opensearch.opensearch_layout import (
    CHECKPOINT,
    GONE,
    LAG,
    NAME,
    name_id,
    record_id,
)
from locus.memory.backends.opensearch.opensearch_memory import Memories
from locus.memory.backends.opensearch.opensearch_state import State, after, published_by, thread_source, thread_state
from locus.memory.backends.opensearch.schema import Record, Removed, now, record_from, record_source
from locus.memory.model.ids import digest

LIGHT = "body.head,body.runs.items"
"""What nobody needs who does not load a state."""


class Log:
    """One thread, for one operation."""

    def __init__(self, client: Client, memories: Memories, thread_id: str) -> None:
        self.client = client
        self.memories = memories
        self.thread_id = thread_id
        self.thread = digest(thread_id)
        self.state = State(thread_id)
        self.removed: Removed | None = None
        """What an unfinished removal takes away."""
        self._docs: dict[str, Doc | None] = {}
        self._light = True

    def recall(self) -> bool:
        """Take the state that is remembered, without looking; only a commit can tell whether it is still true."""
        known = self.memories.get(self.thread)
        if known is None or known.state.removing:
            return False
        self.state, self.removed = known.state, None
        return True

    def look(self, *, names: Iterable[tuple[str, str]] = (), latest: str | None = None, light: bool = True) -> State:
        """Take the state as it is now, and fetch what will be asked for next: names, the latest of a namespace."""
        self._docs.clear()
        self._light = light
        wanted = [name_id(self.thread, *name) for name in names]
        for attempt in range(8):
            known = self.memories.get(self.thread) if attempt == 0 else None
            if known is not None:
                self.state = known.state
            elif not self._start(wanted):
                return self.state
            if self._follow(wanted if known else [], latest):
                return self.state
            self.memories.drop(self.thread)
            give_way(attempt)
        raise CorruptCheckpointError(f"the log of thread {self.thread_id!r} has a gap")

    def _start(self, wanted: list[str]) -> bool:
        """Take the state from the document of the thread; False if there is neither that nor a first record."""
        first = record_id(self.thread, "", 1)
        self._fetch([self.thread, first, *wanted], bare=(first,))
        found = self._docs.pop(first)
        doc = self._docs[self.thread]
        self.state = State(self.thread_id) if doc is None else thread_state(self.thread_id, doc.source)
        self.removed = None
        if doc is None and found is None:
            self.memories.put(self.thread, self.state)
            return False
        return True

    def _follow(self, wanted: list[str], latest: str | None) -> bool:
        """Add the records after the state; False if one was emptied already, so that the state is too old."""
        state, started = self.state, self.state.changes
        while True:
            ahead = [record_id(self.thread, "", state.position + step) for step in range(1, LAG + 1)]
            others = [record_id(self.thread, "", state.removing)] if state.removing else []
            place = state.tips.get(latest) if latest is not None else None
            if place is not None:
                others.append(record_id(self.thread, state.batch, place))
            self._fetch([*ahead, *others, *wanted])
            wanted = []
            for name in ahead:
                doc = self._docs.get(name)
                if doc is None:
                    break
                record = record_from(doc.source)
                if record.kind == GONE:
                    return False
                state = after(state, record)
            else:
                continue
            break
        self.state = state
        if state.changes != started:
            self.memories.drop(self.thread)
        self.removed = self._pending()
        self.memories.put(self.thread, self.state)
        return True

    def _pending(self) -> Removed | None:
        """What an unfinished removal says. One that is finished has no more to say, and is forgotten."""
        if not self.state.removing:
            return None
        record = self.record(self.state.removing)
        removed = None if record is None else record.removed
        if removed is None:
            self.state = replace(self.state, removing=0)
        return removed

    def _fetch(self, ids: Iterable[str], bare: Collection[str] = ()) -> None:
        missing = [name for name in ids if name not in self._docs]
        if missing:
            self._docs |= dict.fromkeys(missing)
            excludes = LIGHT if self._light else ""
            self._docs |= self.client.get_many(self.thread, missing, excludes=excludes, bare=bare)

    def doc(self, name: str) -> Doc | None:
        self._fetch([name])
        return self._docs[name]

    def record(self, place: int) -> Record | None:
        """The record at a place, as `look` fetched it: with or without items."""
        return self.records([place]).get(place)

    def records(self, places: Iterable[int]) -> dict[int, Record]:
        """Those of these records that are there, by their places."""
        ids = {place: record_id(self.thread, self.state.batch, place) for place in places}
        self._fetch(ids.values())
        return {place: record_from(doc.source) for place, name in ids.items() if (doc := self._docs[name]) is not None}

    def full_record(self, place: int) -> Record | None:
        """The record as it is now, with its items."""
        found = self.client.get_many(self.thread, [record_id(self.thread, self.state.batch, place)])
        return next((record_from(doc.source) for doc in found.values()), None)

    def visible(self, record: Record | None) -> Record | None:
        """The record as readers may see it, if it is a checkpoint that is there."""
        return visible(self.state, self.removed, record)

    def find(self, namespace: str, checkpoint_id: str) -> Record | None:
        """A checkpoint by its id."""
        if not self.state.there(now()):
            return None
        name = (namespace, checkpoint_id)
        for place in self._places(name):
            record = self.visible(self.record(place))
            if record is not None and (record.namespace, record.checkpoint_id) == name:
                return record
        return None

    def _places(self, name: tuple[str, str]) -> Iterator[int]:
        """Where a checkpoint of that name may be: among the last ones, by its name, or in what was copied."""
        if name in self.state.names:
            yield self.state.names[name]
            return
        for batch in ("", self.state.batch) if self.state.batch else ("",):
            doc = self.doc(name_id(self.thread, *name, batch))
            if doc is not None:
                yield int(doc.source["body"]["place"])

    def latest(self, namespace: str) -> Record | None:
        """The newest checkpoint of a namespace."""
        if not self.state.there(now()):
            return None
        place = self.state.tips.get(namespace)
        if place is not None:
            record = self.visible(self.record(place))
            if record is None:
                raise Torn
            return record
        return self._searched(namespace) if self.state.more else None

    def _searched(self, namespace: str) -> Record | None:
        """The newest checkpoint of a namespace that was not in use for long."""
        self.client.refresh()
        body = {
            "query": {"bool": {"filter": [*live_filter(self.thread, self.state), {"term": {"namespace": namespace}}]}},
            "sort": [{"seq": "desc"}],
            "_source": {"excludes": LIGHT.split(",") if self._light else []},
        }
        for hits in self.client.pages(body, self.thread, size=20):
            for hit in hits:
                record = self.visible(record_from(hit.source))
                if record is not None:
                    return record
        return None

    def append(self, record: Record) -> bool:
        """Create the next record: the commit. False if another writer was faster."""
        (done,) = self.client.write(self.thread, [Write("create", record.id, record_source(record))])
        if done:
            self.state = after(self.state, record)
        return done

    def publish(self) -> None:
        """Write the document of the thread, and before it the names that it no longer has to tell."""
        state = self.state
        writes = [
            Write("index", name_id(self.thread, *name), name_source(self.thread, place, place), version=place)
            for name, place in state.names.items()
        ]
        document = thread_source(self.thread, state, now())
        writes.append(Write("index", self.thread, document, version=state.position))
        for attempt in range(8):
            done = self.client.write(self.thread, writes)
            writes = self._not_there([write for write, is_done in zip(writes, done, strict=True) if not is_done])
            if not writes:
                self.state = replace(state, names={}, published=published_by(state))
                return
            # A document of that id was removed a moment ago, and its version is not forgotten yet.
            pause(attempt)
            self.client.refresh()
        raise Failure(409, "removed a moment ago", f"thread {self.thread_id!r} cannot be listed yet")

    def _not_there(self, refused: list[Write]) -> list[Write]:
        """Of documents that were refused, those that are not there already as they are, or newer."""
        if not refused:
            return []
        found = self.client.get_many(self.thread, [write.id for write in refused])
        return [
            write for write in refused if write.id not in found or told_position(found[write.id]) < (write.version or 0)
        ]


def told_position(doc: Doc) -> int:
    """The record that a derived document was made of."""
    about = doc.source if doc.source["kind"] == NAME else doc.source["body"]["state"]
    return int(about["position"])


class Torn(Exception):
    """What was read was being removed at that moment: look again."""


def name_source(thread: str, place: int, position: int) -> dict[str, object]:
    return {"kind": NAME, "thread": thread, "position": position, "body": {"place": place}}


def visible(state: State, removed: Removed | None, record: Record | None) -> Record | None:
    """The record as readers may see it, if it is a checkpoint that is there in this state."""
    if record is None or record.kind != CHECKPOINT:
        return None
    if not state.epoch < record.position or record.batch not in ("", state.batch):
        return None
    if removed is None:
        return record
    if record.place in removed.places:
        return None
    return replace(record, parent_id=removed.parents.get(record.place, record.parent_id))


def live_filter(thread: str, state: State, *kinds: str) -> list[dict[str, object]]:
    """The clauses of a query for the checkpoints (or other kinds) of a thread."""
    copied: dict[str, object] = {"bool": {"must_not": {"exists": {"field": "batch"}}}}
    if state.batch:
        copied = {"bool": {"should": [copied, {"term": {"batch": state.batch}}]}}
    return [
        {"term": {"thread": thread}},
        {"terms": {"kind": list(kinds or (CHECKPOINT,))}},
        {"range": {"position": {"gt": state.epoch, "lte": state.position}}},
        copied,
    ]
