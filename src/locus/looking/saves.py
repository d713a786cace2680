"""Reads what each checkpoint of a page of a history added, however long the thread is.

A checkpoint's own words are in the runs that it wrote, and its manifest names them. So a page is read with its runs in
one range (`Exports`), without those that its first checkpoint only continues. A store that has no such range is asked
for the end of each conversation on the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.looking.deltas import has_no_messages, keeps_deltas
from locus.looking.histories import readable_metadata
from locus.looking.previews import (
    MOST,
    Facts,
    Kind,
    Preview,
    call_words,
    facts_of,
    facts_together,
    first_words,
    previews_of,
)
from locus.looking.reading import list_paths
from locus.looking.tool_calls import on_one_line
from locus.looking.turns import Save, Stand, open_calls
from locus.memory.conversations import Call, conversation_path, messages_in
from locus.memory.engine import Engine, Exports, KeepsWrites
from locus.memory.model.codec import decode, decode_head
from locus.memory.model.manifest import by_branch, decode_manifest, newest_runs, walk
from locus.memory.model.parts import Range, total_of
from locus.memory.model.records import Entry, Extent, Path, Run, Stored, Write
from locus.memory.store import CheckpointStore

READS: Final = 4
"""The most ranges that are read for a page. Checkpoints that lie beyond them are read one by one."""
_LONGEST_MANIFEST: Final = 250_000
"""In characters. Of a manifest with thousands of lists, nobody wants to know how each of them grew."""
_AT_ONCE: Final = 8
_END: Final = 8
"""The number of items that are read of one conversation, where checkpoints are read one by one."""
_STATES: Final[Mapping[str, Stand]] = {
    "running": Stand.RUNNING,
    "done": Stand.DONE,
    "interrupted": Stand.WAITS,
    "failed": Stand.FAILED,
}
_TASKS: Final[Mapping[str, Stand]] = {
    "submitted": Stand.RUNNING,
    "working": Stand.RUNNING,
    "completed": Stand.DONE,
    "input_required": Stand.WAITS,
    "auth_required": Stand.WAITS,
    "failed": Stand.FAILED,
    "rejected": Stand.FAILED,
}
"""What the state of a task of A2A says about it."""
_RUN_AT_THE_END: Final = frozenset({"openai-agents", "pydantic-ai"})
"""The namespaces of frameworks that save a call without its result only if a person has to allow it."""
INTERRUPT, _ERROR = "__interrupt__", "__error__"
_OF_AN_INTERRUPT: Final = frozenset(
    {"$type", "value", "id", "interrupt_id", "ns", "resumable", "when", "response_schema"}
)
"""The fields of an interrupt of LangGraph, in all of its versions."""
_OF_INTERRUPT: Final = ("metadata", "locus:interrupt")

Place = tuple[str, str]


@dataclass(slots=True)
class _Read:
    """What was read of a page."""

    stored: dict[Place, Stored] = field(default_factory=dict)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    writes: dict[Place, list[Write]] = field(default_factory=dict)
    damaged: dict[Place, CorruptCheckpointError] = field(default_factory=dict)

    def parent(self, entry: Entry) -> Stored | None:
        return None if entry.parent_id is None else self.stored.get((entry.namespace, entry.parent_id))


async def saves_of(store: CheckpointStore, entries: Sequence[Entry]) -> list[Save]:
    """What each of these checkpoints of one thread added, in their order.

    The number of reads does not depend on how long the thread is. A checkpoint that is damaged says so in its preview,
    and one that was deleted meanwhile says nothing.
    """
    if not entries:
        return []
    read = await _read(store, entries)
    return [await _save_of(entry, read) for entry in entries]


async def _save_of(entry: Entry, read: _Read) -> Save:
    here = (entry.namespace, entry.checkpoint_id)
    stored, damage = read.stored.get(here), read.damaged.get(here)
    if damage is None:
        if stored is None or stored.entry.rev != entry.rev:
            return Save(entry)
        try:
            return await asyncio.to_thread(_save, stored, read) if _is_large(stored) else _save(stored, read)
        except UnsupportedFormatError:
            raise
        except CorruptCheckpointError as error:
            damage = error
    return Save(entry, (Preview(Kind.FAILED, "error", first_words(f"cannot be read: {damage}")),), stand=Stand.FAILED)


async def items_added(store: CheckpointStore, entry: Entry, most: int = 1_000) -> list[tuple[int | None, Any]]:
    """The items that a checkpoint added to its conversation, with their positions; of very many, the last ones."""
    read = await _read(store, [entry])
    stored = read.stored.get((entry.namespace, entry.checkpoint_id))
    return [] if stored is None else [*_change(stored, read, most).found]


def _is_large(stored: Stored) -> bool:
    return len(stored.head) + len(stored.manifest) > 250_000


async def _read(store: CheckpointStore, entries: Sequence[Entry]) -> _Read:
    thread_id = entries[0].thread_id
    wanted = {(entry.namespace, entry.checkpoint_id) for entry in entries}
    parents = {(entry.namespace, entry.parent_id) for entry in entries if entry.parent_id is not None} - wanted
    read = _Read()
    gate = asyncio.Semaphore(_AT_ONCE)

    async def without_items(engine: Engine, place: Place) -> None:
        async with gate:
            stored = await engine.read_part(thread_id, *place, Range(("messages",), 0, 0))
            if stored is not None:
                read.stored[place] = stored
                if has_no_messages(stored) and isinstance(engine, KeepsWrites):
                    read.writes[place] = await engine.get_writes(thread_id, *place, None)

    async def its_end(engine: Engine, place: Place) -> None:
        try:
            await without_items(engine, place)
            stored = read.stored.get(place)
            path = None if stored is None else conversation_path(list_paths(stored))
            if path is not None:
                async with gate:
                    stored = await engine.read_part(thread_id, *place, Range(path, -_END, _END))
                if stored is not None:
                    read.stored[place] = stored
                    _add_runs(read, [run for runs in stored.runs.values() for run in runs])
        except UnsupportedFormatError:
            raise
        except CorruptCheckpointError as error:
            read.damaged[place] = error

    async with store.using() as engine:
        with suppress(CorruptCheckpointError):  # then each is read alone, and says what is wrong with it
            await asyncio.gather(*(without_items(engine, place) for place in sorted(parents)))
            known = newest_runs(stored.manifest for stored in read.stored.values())
            if isinstance(engine, Exports) and engine.offers(Exports):
                await _read_range(engine, entries, known, read)
        missing = wanted - read.stored.keys()
        await asyncio.gather(*(its_end(engine, place) for place in sorted(missing)))
    return read


async def _read_range(engine: Exports, entries: Sequence[Entry], known: Mapping[str, int], read: _Read) -> None:
    """Read the checkpoints from the oldest of these to the newest, and the runs that they wrote."""
    at, last = min(entry.seq for entry in entries) - 1, max(entry.seq for entry in entries)
    held = dict(known)
    for _ in range(READS):
        page = await engine.export(entries[0].thread_id, at, min(last - at, 500), held)
        _add_runs(read, page.runs)
        for run in page.runs:
            held[run.branch] = max(run.number, held.get(run.branch, 0))
        for stored in page.checkpoints:
            read.stored[stored.entry.namespace, stored.entry.checkpoint_id] = stored
        read.writes |= {place: list(writes) for place, writes in page.writes.items()}
        if not page.checkpoints or page.checkpoints[-1].entry.seq >= last:
            return
        at = page.checkpoints[-1].entry.seq


def _add_runs(read: _Read, runs: Iterable[Run]) -> None:
    for branch, some in by_branch(runs).items():
        of_branch = {run.number: run for run in [*read.runs.get(branch, ()), *some]}
        read.runs[branch] = [of_branch[number] for number in sorted(of_branch)]


@dataclass(frozen=True, slots=True)
class _Change:
    """What a checkpoint did to its conversation."""

    added: int = 0
    removed: int = 0
    total: int | None = None
    path: Path | None = None
    found: Sequence[tuple[int | None, Any]] = ()
    """The last of the added items, with their positions."""


def _change(stored: Stored, read: _Read, most: int) -> _Change:
    entry, before, head = stored.entry, read.parent(stored.entry), decode_head(stored.head)
    path = conversation_path(list_paths(stored))
    if keeps_deltas(stored):
        # The messages are in what the tasks of the checkpoint before wrote.
        written = read.writes.get((entry.namespace, entry.parent_id or ""), [])
        items = messages_in(written) if _is_new(head, before) else []
        return _Change(len(items), found=[(None, item) for item in items[-most:]])
    if path is None or "__start__" in path:
        return _Change()
    added, removed, total, found = _added(stored, before, path, head, read.runs, most)
    return _Change(added, removed, total, path, found)


def _save(stored: Stored, read: _Read) -> Save:
    entry, before = stored.entry, read.parent(stored.entry)
    head = decode_head(stored.head)
    metadata = readable_metadata(entry)
    writes = read.writes.get((entry.namespace, entry.checkpoint_id), [])
    change = _change(stored, read, MOST)
    previews: list[Preview] = []
    facts: list[Facts] = []
    is_input = "langgraph" in head and metadata.get("source") == "input"
    for position, item in change.found:
        previews += previews_of(item, position)
        facts.append(facts_of(item))
    stand = _STATES.get(metadata["status"]) if isinstance(metadata.get("status"), str) else None
    asked = _asked(stored, head, read.runs, writes)
    if asked is not None:
        stand = Stand.WAITS
        previews.append(Preview(Kind.WAITS, "assistant", asked))
    elif entry.namespace in _RUN_AT_THE_END and (waiting := open_calls(previews)):
        stand = Stand.WAITS
        previews += [Preview(Kind.WAITS, "assistant", call.text, call.name) for call in waiting.values()]
    for write in writes:
        if write.channel == _ERROR:
            stand = Stand.FAILED
            previews.append(Preview(Kind.FAILED, "error", first_words(_words(decode(write.value)))))
    previews += _errors(head, before)
    task = _task_status(head)
    if task is not None:
        stand, told = _TASKS.get(_state_of_task(task), stand), task.get("message")
        if isinstance(told, dict) and task != _task_status(None if before is None else decode(before.head)):
            parts = _list_at(stored, ("status", "message", "parts"), told.get("parts"), read.runs)
            words = previews_of({**told, "parts": parts})
            previews += [replace(one, kind=Kind.WAITS) for one in words] if stand is Stand.WAITS else words
    if "langgraph" in head and stand is None and _has_next(head):
        stand = Stand.RUNNING
    together = facts_together(facts).with_defaults(facts_of(metadata)).with_defaults(_counted(head, before))
    return Save(
        entry,
        tuple(previews),
        change.added,
        change.removed,
        change.total,
        change.path,
        together,
        stand,
        _grown(stored, before),
        is_input,
    )


def _added(
    stored: Stored, before: Stored | None, path: Path, head: Any, runs: Mapping[str, Sequence[Run]], most: int
) -> tuple[int, int, int, Sequence[tuple[int, Any]]]:
    """The number of items that were added, removed and are there, and the last added ones with their positions."""
    cut = decode_manifest(stored.manifest).get(path)
    old = _length(before, path)
    if not isinstance(cut, tuple):
        items = _in_head(head, path)
        start = _shared(items, before, path)
        first = max(start, len(items) - most)
        return len(items) - start, max(0, old - start), len(items), [*enumerate(items[first:], first)]
    total = total_of(cut)
    shown = _newest_of(before, path)
    if before is not None and old and not shown.keys() & {extent.branch for extent in cut}:
        # Written anew as a whole: by a store that keeps no runs, or because it was shortened.
        start = old if old < total else total - 1
        pieces = [piece for piece in _pieces(cut, {}, runs, most) if piece[0] >= start]
        return max(total - old, 1), max(old - total, 0), total, pieces
    added = _count(cut, shown, runs)
    return added, max(0, old - (total - added)), total, _pieces(cut, shown, runs, most)


def _new_parts(
    cut: Sequence[Extent], shown: Mapping[str, int], runs: Mapping[str, Sequence[Run]]
) -> list[tuple[int, Run, int, int]]:
    """The parts of runs that are new: the position of the first item, the run, from, to. From the end backwards."""
    parts: list[tuple[int, Run, int, int]] = []
    end = total_of(cut)
    for extent in reversed(cut):
        end -= extent.length
        of_branch = runs.get(extent.branch, ())
        for index, low, high in walk(extent, of_branch):
            run = of_branch[index]
            if run.number <= shown.get(extent.branch, -1):
                break
            parts.append((end + run.start + low - extent.skip, run, low, high))
    return parts


def _count(cut: Sequence[Extent], shown: Mapping[str, int], runs: Mapping[str, Sequence[Run]]) -> int:
    return sum(high - low for _, _, low, high in _new_parts(cut, shown, runs))


def _pieces(
    cut: Sequence[Extent], shown: Mapping[str, int], runs: Mapping[str, Sequence[Run]], most: int
) -> list[tuple[int, Any]]:
    """The last new items of a list, with their positions."""
    found: list[tuple[int, Any]] = []
    for start, run, low, high in _new_parts(cut, shown, runs):
        items = decode(run.items)
        if not isinstance(items, list) or len(items) < high:
            raise CorruptCheckpointError(f"run {run.number} of branch {run.branch!r} is damaged")
        found = [*enumerate(items[low:high], start), *found]
        if len(found) >= most:
            break
    return found[-most:]


def _newest_of(before: Stored | None, path: Path) -> dict[str, int]:
    """The newest run that the checkpoint before shows, by branch, of the list at a path."""
    cut = None if before is None else decode_manifest(before.manifest).get(path)
    newest: dict[str, int] = {}
    for extent in cut if isinstance(cut, tuple) else ():
        newest[extent.branch] = max(extent.run, newest.get(extent.branch, -1))
    return newest


def _length(before: Stored | None, path: Path) -> int:
    if before is None:
        return 0
    cut = decode_manifest(before.manifest).get(path)
    return total_of(cut) if isinstance(cut, tuple) else len(_in_head(decode(before.head), path))


def _in_head(head: Any, path: Path) -> list[Any]:
    for step in path:
        head = head.get(step) if isinstance(head, dict) else None
    return head if isinstance(head, list) else []


def _shared(items: Sequence[Any], before: Stored | None, path: Path) -> int:
    """The number of items at the beginning of a short list that were there before."""
    earlier = [] if before is None else _in_head(decode(before.head), path)
    count = 0
    while count < min(len(items), len(earlier)) and items[count] == earlier[count]:
        count += 1
    return count


def _grown(stored: Stored, before: Stored | None) -> dict[Path, int]:
    """The number of items by which each list became longer, or shorter."""
    if stored.entry.parent_id is not None and before is None:
        return {}
    manifests = [stored.manifest, *([] if before is None else [before.manifest])]
    if max(map(len, manifests)) > _LONGEST_MANIFEST:
        return {}
    after, earlier = [
        {path: total_of(cut) for path, cut in decode_manifest(manifest).items() if not isinstance(cut, str)}
        for manifest in (manifests if before is not None else [*manifests, "[]"])
    ]
    changes = {path: after.get(path, 0) - earlier.get(path, 0) for path in {**earlier, **after}}
    return {path: by for path, by in sorted(changes.items()) if by}


def _is_new(head: Any, before: Stored | None) -> bool:
    """Whether a graph's checkpoint has other messages than the one before."""
    earlier = None if before is None else decode(before.head)
    return bool(_version(head) != _version(earlier))


def _version(head: Any) -> Any:
    versions = head.get("channel_versions") if isinstance(head, dict) else None
    return versions.get("messages") if isinstance(versions, dict) else None


def _has_next(head: Mapping[str, Any]) -> bool:
    """Whether a graph has nodes to run after this checkpoint."""
    values = head.get("channel_values")
    return isinstance(values, dict) and any(name.startswith("branch:to:") for name in values)


def _asked(stored: Stored, head: Any, runs: Mapping[str, Sequence[Run]], writes: Iterable[Write]) -> str | None:
    """What a checkpoint asks a person: in our own agent, in LangGraph, and in Strands. None if it asks nothing."""
    metadata = head.get("metadata") if isinstance(head, dict) else None
    interrupt = metadata.get("locus:interrupt") if isinstance(metadata, dict) else None
    if isinstance(interrupt, dict):
        calls = _list_at(stored, (*_OF_INTERRUPT, "calls"), interrupt.get("calls"), runs)
        return first_words(", ".join(map(_asked_call, calls)))
    for write in writes:
        if write.channel == INTERRUPT:
            return first_words(", ".join(questions_in(decode(write.value))))
    if ("who",) in decode_manifest(stored.manifest):
        return _asked_by_strands(_list_at(stored, ("who",), None, runs))
    return None


def _list_at(stored: Stored, path: Path, in_head: Any, runs: Mapping[str, Sequence[Run]]) -> list[Any]:
    """A short list of a checkpoint, as far as its runs were read."""
    cut = decode_manifest(stored.manifest).get(path)
    if not isinstance(cut, tuple):
        return in_head if isinstance(in_head, list) else []
    return [item for _, item in _pieces(cut, {}, runs, MOST)]


def _asked_call(call: Any) -> str:
    if not isinstance(call, dict):
        return _words(call)
    arguments = call.get("arguments", call.get("args", {}))
    return call_words(Call(str(call.get("name") or "?"), arguments))


def questions_in(interrupts: Any) -> list[str]:
    """The questions of LangGraph's interrupts: what the graph gave, or the calls that a person has to review."""
    values = interrupts.get("value") if isinstance(interrupts, dict) else interrupts
    questions: list[str] = []
    for one in values if isinstance(values, list) else [values]:
        value = one
        if isinstance(one, dict) and "value" in one and not one.keys() - _OF_AN_INTERRUPT:
            value = one["value"]
        requests = value.get("action_requests") if isinstance(value, dict) else None
        questions += map(_asked_call, requests) if isinstance(requests, list) else [_words(value)]
    return questions


def _words(value: Any) -> str:
    """A value in words: a text, the only text of an object, or JSON."""
    if isinstance(value, dict):
        texts = [text for name, text in value.items() if isinstance(text, str) and name != "$type"]
        return texts[0] if len(texts) == 1 else on_one_line(value)
    return value if isinstance(value, str) else on_one_line(value)


def _asked_by_strands(who: Sequence[Any]) -> str | None:
    for part in who:
        agents = part.get("agents") if isinstance(part, dict) else None
        for agent in agents.values() if isinstance(agents, dict) else ():
            inner = agent.get("_internal_state") if isinstance(agent, dict) else None
            state = inner.get("interrupt_state") if isinstance(inner, dict) else None
            if isinstance(state, dict) and state.get("activated") is True:
                interrupts = state.get("interrupts")
                open_ones = interrupts.values() if isinstance(interrupts, dict) else ()
                asked = [_words(one.get("reason") or one.get("name")) for one in open_ones if isinstance(one, dict)]
                return first_words(", ".join(asked))
    return None


def _errors(head: Any, before: Stored | None, path: Path = ("errors",)) -> list[Preview]:
    """The errors that a state of our agent has got."""
    errors = _in_head(head, path)
    new = errors[_shared(errors, before, path) :]
    return [Preview(Kind.FAILED, "error", first_words(error)) for error in new[-MOST:] if isinstance(error, str)]


def _task_status(head: Any) -> Mapping[str, Any] | None:
    """The status of a task of A2A: its state, and what the agent says with it. None if the payload is none."""
    status = head.get("status") if isinstance(head, dict) else None
    return status if isinstance(status, dict) and isinstance(status.get("state"), str) else None


def _state_of_task(status: Mapping[str, Any]) -> str:
    return str(status["state"]).lower().removeprefix("task_state_").replace("-", "_")


def _counted(head: Any, before: Stored | None) -> Facts:
    """The tokens that a state has counted since the checkpoint before."""
    now, earlier = [
        state.get("total_tokens_used") if isinstance(state, dict) else None
        for state in (head, None if before is None else decode(before.head))
    ]
    used = now - (earlier if isinstance(earlier, int) else 0) if isinstance(now, int) else 0
    return Facts(tokens=used if used > 0 else None)
