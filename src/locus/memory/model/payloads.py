"""Payloads of any shape: a dict taken apart and put together, and traces of what is stored.

`dict_payload` takes a dict apart for the planner, and `dict_from` puts a stored one together again. A trace says what
the next save may refer to: `stored_trace`, `unread_trace` and `kept_trace` make one of a checkpoint that was read.
States are the subject of `states`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, cast

from locus.core.frozen import FrozenDict
from locus.errors import CorruptCheckpointError, SerializationError, WindowError
from locus.memory.model.alignment import part
from locus.memory.model.codec import decode, decode_head, encode
from locus.memory.model.digests import DigestChain, fingerprint
from locus.memory.model.ids import shown_thread
from locus.memory.model.manifest import (
    chain_of,
    decode_manifest,
    extents_at,
    items_text,
    items_texts,
    list_items,
    newest_in,
)
from locus.memory.model.parts import between, total_of
from locus.memory.model.plan import Payload
from locus.memory.model.records import Base, Extent, Path, Run, Stored
from locus.memory.model.trace import FieldTrace, ListTrace, Trace

OMITTED: Final = "locus_omitted"
"""The field of a state that is never stored: it says what a window left out."""


def dict_payload(data: Mapping[str, Any]) -> Payload:
    """Take a plain dict apart for a save. Its keys must be text."""
    if not isinstance(data, dict):
        raise SerializationError(
            f"a storage backend keeps dicts, got {type(data).__name__}: {data!r:.80}. "
            "An AgentState is kept by a checkpointer: StorageBackendAdapter(backend).save(state, thread_id)"
        )
    if data.get(OMITTED):
        raise WindowError(
            "this dict is the dump of a window of a state, and what the window left out would be lost. Nothing was "
            "written. Save the state itself with a checkpointer, or dump it after `without_omitted()`"
        )
    for key in data:
        if not isinstance(key, str):
            raise SerializationError(f"the payload has a key of type {type(key).__name__}: {key!r:.40}")
    return Payload({}, data, frozen=False)


def payload_text(stored: Stored) -> str:
    """The payload as JSON text: the head, with everything that was cut out put back."""
    cuts = decode_manifest(stored.manifest)
    if not cuts:
        decode_head(stored.head)
        return stored.head
    tree: dict[str, Any] = {}
    for path, cut in cuts.items():
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        # Below the key None, which no path has: the parts of the text that stands here.
        if isinstance(cut, str):
            node[cast(str, None)] = [items_text(extents_at(cut), stored.runs)[1:-1]]
        else:
            node[cast(str, None)] = items_texts(cut, stored.runs)
    parts: list[str] = []
    _fill(parts, decode_head(stored.head), tree)
    return "".join(parts)


def _fill(parts: list[str], value: Any, tree: Mapping[Any, Any]) -> None:
    """Add the pieces of a value's JSON to `parts`, which are joined once: the text may be very long."""
    inner = {key: node for key, node in tree.items() if key is not None}
    if None in tree:
        if not inner:
            parts += tree[None]
            return
        value = decode("".join(tree[None]))
    if not isinstance(value, dict) or not inner.keys() <= value.keys():
        raise _unfit()
    opening = "{"
    for key, item in value.items():
        parts.append(f"{opening}{encode(key)}:")
        if key in inner:
            _fill(parts, item, inner[key])
        else:
            parts.append(encode(item))
        opening = ","
    parts.append("}" if value else "{}")


def _unfit() -> CorruptCheckpointError:
    return CorruptCheckpointError("stored head and manifest do not fit together")


def dict_from(stored: Stored, without: Collection[Path] = ()) -> dict[str, Any]:
    """The dict of a stored checkpoint. The lists at the paths `without` stay empty, and need not have been read."""
    payload: Any = decode_head(stored.head)
    cuts = decode_manifest(stored.manifest)
    for path in sorted(cuts.keys() - set(without), key=len):  # what lies inside a large value comes after it
        cut = cuts[path]
        content: Any = list_items(extents_at(cut), stored.runs)
        if isinstance(cut, str):
            (content,) = content
        payload = placed(payload, path, content)
    if not isinstance(payload, dict):
        raise CorruptCheckpointError(
            f"checkpoint {stored.entry.seq} of {shown_thread(stored.entry.thread_id)} is not an object"
        )
    return payload


def placed(payload: Any, path: Path, content: Any) -> Any:
    """A payload with `content` at a path. It is changed in place, unless it is frozen."""
    if not path:
        return content
    if not isinstance(payload, dict) or path[0] not in payload:
        raise _unfit()
    if isinstance(payload, FrozenDict):
        payload = dict(payload)
    payload[path[0]] = placed(payload[path[0]], path[1:], content)
    return payload


def left_out_items(stored: Stored, trace: Trace) -> dict[Path, list[Any]]:
    """The items that a window left out, read from the whole checkpoint that it was loaded from."""
    lists = ((path, cut) for field in trace.fields.values() for path, cut in field.cuts.items())
    return {
        path: list_items(between(cut.extents, 0, cut.omitted), stored.runs)
        for path, cut in lists
        if isinstance(cut, ListTrace) and cut.omitted
    }


def traced_again(fields: Mapping[str, FieldTrace], stored: Stored, window: Base | None) -> Trace | None:
    """The trace of a window, adapted to an equal checkpoint; None if that one is stored differently."""
    stored_cuts = decode_manifest(stored.manifest)
    moved: dict[str, FieldTrace] = {}
    for name, trace in fields.items():
        cuts: dict[Path, ListTrace | str] = {}
        for path, cut in trace.cuts.items():
            stored_cut = stored_cuts.get(path)
            if isinstance(cut, ListTrace) and isinstance(stored_cut, tuple):
                cuts[path] = cut._replace(extents=stored_cut, chains=chains(stored, stored_cut))
            elif cut == stored_cut:
                cuts[path] = cut
            else:
                return None
        moved[name] = trace._replace(cuts=cuts)
    return Trace(Base(stored.entry.checkpoint_id, stored.entry.rev), moved, stored.passed, window)


def chains(stored: Stored, extents: tuple[Extent, ...]) -> dict[str, DigestChain]:
    """The digest chain of each branch that a list is stored on."""
    newest = newest_in(extents)
    return {branch: chain_of(stored.runs.get(branch, ()), number) for branch, number in newest.items()}


def unread_trace(stored: Stored) -> Trace:
    """A trace of a checkpoint of which only the ends of lists were read. It has no items."""
    return _trace(stored, lambda _, extents: ListTrace(extents, chains=chains(stored, extents)))


def stored_trace(stored: Stored, sort_keys: bool, older: Trace | None = None) -> Trace:
    """A trace of a checkpoint that was read, with the digest of every item.

    Where a list begins as in an older trace, only the items behind that are looked at.
    """
    return _trace(stored, lambda path, extents: _digested(stored, path, extents, sort_keys, older))


def kept_trace(stored: Stored, kept: Mapping[str, int], sort_keys: bool) -> Trace:
    """A trace for a save that keeps the first items of some lists without having read them.

    They are for the payload to name as `omitted`. Of each of the lists the last item has to be there, and all of
    everything else (a `Window`).
    """

    def list_trace(path: Path, extents: tuple[Extent, ...]) -> ListTrace:
        if len(path) == 1 and path[0] in kept:
            return ListTrace(extents, None, (), chains(stored, extents), kept[path[0]])
        return _digested(stored, path, extents, sort_keys)

    trace = _trace(stored, list_trace)
    return trace._replace(window=trace.base)


def _digested(
    stored: Stored, path: Path, extents: tuple[Extent, ...], sort_keys: bool, older: Trace | None = None
) -> ListTrace:
    rest: Sequence[Extent] = extents
    known: tuple[bytes, ...] = ()
    field = None if older is None else older.fields.get(path[0])
    cut = None if field is None else field.cuts.get(path)
    if isinstance(cut, ListTrace) and cut.digests and not cut.omitted:
        known = cut.digests[: _shared(cut.extents, extents, stored.runs)]
        rest = part(extents, len(known), total_of(extents))
    fresh = tuple([fingerprint(encode(item, path, sort_keys=sort_keys)) for item in list_items(rest, stored.runs)])
    return ListTrace(extents, None, known + fresh, chains(stored, extents))


def _shared(old: Sequence[Extent], new: Sequence[Extent], runs: Mapping[str, Sequence[Run]]) -> int:
    """The number of items at the beginning that two versions of a list share, judged by their extents."""
    shared = 0
    for before, now in zip(old, new, strict=False):
        if before == now:
            shared += now.length
            continue
        if (before.branch, before.skip) == (now.branch, now.skip) and before.run <= now.run:
            later = [run.start for run in runs.get(now.branch, ()) if before.run < run.number <= now.run]
            shared += max(0, min(before.length, now.length, *(start - now.skip for start in later)))
        break
    return shared


def _trace(stored: Stored, list_trace: Callable[[Path, tuple[Extent, ...]], ListTrace]) -> Trace:
    """A trace of the parts that were cut out of a checkpoint's head. It says nothing about the head itself."""
    fields: dict[str, dict[Path, ListTrace | str]] = {}
    for path, cut in decode_manifest(stored.manifest).items():
        fields.setdefault(path[0], {})[path] = cut if isinstance(cut, str) else list_trace(path, cut)
    base = Base(stored.entry.checkpoint_id, stored.entry.rev)
    return Trace(base, {name: FieldTrace(None, "null", cuts) for name, cuts in fields.items()}, stored.passed)
