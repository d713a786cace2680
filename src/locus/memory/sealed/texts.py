"""Seals the texts of records and opens them again. Pure functions of the keys.

Each text is bound to its place: a head to its checkpoint, its rev and its manifest, a run to its branch, its number and
its size. What a database or a server has to see stays readable: ids, numbers, times, which runs a list is made of, and
how long it is. The names that lead to lists, of channels and of tasks are sealed so that equal ones look alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from locus.encryption.data_key import MARK, DataKey, NotOpenedError, NotSealedError
from locus.memory.model.codec import SEALED, canonical, decode, encode_trusted
from locus.memory.model.manifest import decode_manifest, extents_in
from locus.memory.model.parts import Part, Range, Window
from locus.memory.model.records import Commit, Cuts, Entry, Extent, Path, Run, Stored, TaskWrites, Write, writes_order
from locus.memory.model.retention import STEPS_NEEDED, steps_needed
from locus.memory.sealed.keys import Origin, ThreadKeys

_DIGEST_BYTES: Final = 16

T = TypeVar("T")


def sealed_commit(commit: Commit, keys: ThreadKeys, index: DataKey | None, clear: frozenset[str]) -> Commit:
    """A commit as it is stored. `index` marks metadata for searches; what has a key of `clear` stays clear."""
    names, cuts = keys.names, decode_manifest(commit.manifest)
    manifest = encode_trusted([[_sealed_path(names, path), _sealed_cut(names, cut)] for path, cut in cuts.items()])
    place = _head_place(commit, manifest)
    return replace(
        commit,
        head=encode_trusted({SEALED: keys.key.seal(commit.head, place)} | _skeleton(names, cuts, ())),
        manifest=manifest,
        metadata=_sealed_metadata(commit, keys, index, clear),
        runs=tuple([_sealed_run(run, keys, {}) for run in commit.runs]),
        values=tuple([_sealed_run(run, keys, _inside_value(names, cuts, run.branch)) for run in commit.values]),
        writes=tuple([sealed_writes(task, keys) for task in commit.writes]),
        extents=None if commit.extents is None else tuple(extents_in(decode_manifest(manifest))),
    )


def sealed_writes(task: TaskWrites, keys: ThreadKeys) -> TaskWrites:
    """The pending writes of a task as they are stored."""
    place = task.namespace, task.checkpoint_id
    return replace(task, writes=tuple([_sealed_write(write, keys, place) for write in task.writes]))


def sealed_part(part: Part, key: DataKey) -> Part:
    """The part of a checkpoint as its sealed manifest names it."""
    match part:
        case Range(path=path):
            return replace(part, path=tuple(_sealed_path(key, path)))
        case Window(paths=paths):
            return replace(part, paths=frozenset(tuple(_sealed_path(key, path)) for path in paths))
        case _:
            return part


def sealed_branch(branch: str, key: DataKey) -> str:
    """The name of a branch as it is stored: that of a large value is made of its content."""
    return f"#{key.number(branch[1:])}" if branch.startswith("#") else branch


def index_marks(index: DataKey, name: str, value: str) -> tuple[str, str]:
    """The marks of a key of metadata and of its value, which is canonical JSON."""
    return index.mark(name), MARK + index.mark(f"{name}\0{value}")


def opened(keys: ThreadKeys, work: Callable[[Origin], T]) -> T:
    """Open something with the key of a thread, or with that of a thread that it was copied from."""
    for origin in keys.lineage:
        try:
            return work(origin)
        except NotOpenedError:
            continue
    raise NotOpenedError


def opened_entry(entry: Entry, keys: ThreadKeys) -> Entry:
    metadata = decode(entry.metadata)
    sealed = metadata.get(SEALED) if isinstance(metadata, dict) else None

    def work(origin: Origin) -> str:
        return origin.key.open(_text(sealed), _place("metadata", origin.thread_id, *_of_entry(entry)))

    return replace(entry, metadata=opened(keys, work))


def opened_stored(stored: Stored, keys: ThreadKeys) -> Stored:
    """A stored checkpoint with its texts."""
    entry = opened_entry(stored.entry, keys)
    head, manifest = _opened_head(stored, keys)
    runs = {
        opened_branch(branch, keys): [opened_run(run, keys) for run in of_branch]
        for branch, of_branch in stored.runs.items()
    }
    return replace(stored, entry=entry, head=head, manifest=manifest, runs=runs)


def opened_manifest(manifest: str, keys: ThreadKeys) -> str:
    """A manifest with the names that lead to what was cut out."""
    return encode_trusted(
        [
            [[keys.unname(step) for step in path], opened_branch(cut, keys) if isinstance(cut, str) else cut]
            for path, cut in decode_manifest(manifest).items()
        ]
    )


def opened_run(run: Run, keys: ThreadKeys) -> Run:
    branch = opened_branch(run.branch, keys)
    if not run.length:
        return run._replace(branch=branch, items="[]")
    items = decode(run.items)
    first = items[0] if isinstance(items, list) and items else None
    sealed = first.get(SEALED) if isinstance(first, dict) else first

    def work(origin: Origin) -> str:
        return origin.key.open(_text(sealed), _run_place(run._replace(branch=branch), origin.thread_id))

    before, _, text = opened(keys, work).partition("\n")
    return run._replace(branch=branch, items=text, before=before or None)


def opened_branch(branch: str, keys: ThreadKeys) -> str:
    if not branch.startswith("#"):
        return branch
    try:
        return f"#{keys.names.unnumber(branch[1:])}"
    except ValueError:
        raise NotOpenedError from None


def opened_writes(writes: Iterable[Write], keys: ThreadKeys, namespace: str, checkpoint_id: str) -> list[Write]:
    """Pending writes of a checkpoint, in their order."""
    return sorted([_opened_write(write, keys, (namespace, checkpoint_id)) for write in writes], key=writes_order)


def _sealed_path(key: DataKey, path: Path) -> list[str]:
    return [key.name(step) for step in path]


def _sealed_cut(key: DataKey, cut: tuple[Extent, ...] | str) -> Any:
    return sealed_branch(cut, key) if isinstance(cut, str) else cut


def _skeleton(key: DataKey, cuts: Cuts, above: Path) -> dict[str, Any]:
    """The empty places below a path, to which the sealed names of a manifest lead."""
    places: dict[str, Any] = {}
    for path, cut in cuts.items():
        if len(path) <= len(above) or path[: len(above)] != above:
            continue
        if any(isinstance(cuts.get(path[:depth]), str) for depth in range(len(above) + 1, len(path))):
            continue  # inside a large value, which has places of its own
        node = places
        *steps, last = _sealed_path(key, path[len(above) :])
        for step in steps:
            node = node.setdefault(step, {})
        node[last] = None if isinstance(cut, str) else []
    return places


def _inside_value(key: DataKey, cuts: Cuts, branch: str) -> dict[str, Any]:
    """The empty places inside a large value."""
    above = next((path for path, cut in cuts.items() if cut == branch), None)
    return {} if above is None else _skeleton(key, cuts, above)


def _sealed_run(run: Run, keys: ThreadKeys, places: Mapping[str, Any]) -> Run:
    branch = sealed_branch(run.branch, keys.names)
    if not run.length:
        return run._replace(branch=branch, items="[]", before=None)
    sealed: Any = keys.key.seal(f"{run.before or ''}\n{run.items}", _run_place(run, keys.thread_id))
    first = {SEALED: sealed, **places} if places else sealed
    items = encode_trusted([first, *[0] * (run.length - 1)])
    return run._replace(branch=branch, items=items, before=None)


def _sealed_write(write: Write, keys: ThreadKeys, place: tuple[str, str]) -> Write:
    names = keys.names
    value = encode_trusted(keys.key.seal(write.value, _write_place(write, keys.thread_id, place)))
    # Those with numbers below 0 are channels of the same few names, from which a server tells the number.
    channel = write.channel if write.idx < 0 else names.name(write.channel)
    return write._replace(task_path=names.name(write.task_path), channel=channel, value=value)


def _opened_write(write: Write, keys: ThreadKeys, place: tuple[str, str]) -> Write:
    sealed = _text(decode(write.value))
    channel = write.channel if write.idx < 0 else keys.unname(write.channel)
    named = write._replace(task_path=keys.unname(write.task_path), channel=channel)

    def work(origin: Origin) -> str:
        return origin.key.open(sealed, _write_place(named, origin.thread_id, place))

    return named._replace(value=opened(keys, work))


def _sealed_metadata(commit: Commit, keys: ThreadKeys, index: DataKey | None, clear: frozenset[str]) -> str:
    place = _place("metadata", keys.thread_id, *_of_entry(commit))
    stored: dict[str, Any] = {SEALED: keys.key.seal(commit.metadata, place)}
    if commit.metadata != "{}":
        if steps := steps_needed(commit.metadata, commit.head):
            stored[STEPS_NEEDED] = {"": [steps]}  # a vacuum has to know, with keys or without
        for name, value in decode(commit.metadata).items():
            if name in clear:
                stored[name] = value
            elif index is not None:
                mark, marked = index_marks(index, name, canonical(value))
                stored[mark] = marked
    return encode_trusted(stored)


def _opened_head(stored: Stored, keys: ThreadKeys) -> tuple[str, str]:
    head = decode(stored.head)
    sealed = _text(head.get(SEALED) if isinstance(head, dict) else None)

    def work(origin: Origin) -> str:
        return origin.key.open(sealed, _head_place(stored.entry, stored.manifest, origin.thread_id))

    return opened(keys, work), opened_manifest(stored.manifest, keys)


def _text(sealed: object) -> str:
    if not isinstance(sealed, str):
        raise NotSealedError
    return sealed


def _of_entry(entry: Entry | Commit) -> tuple[str, str, str]:
    return entry.namespace, entry.checkpoint_id, entry.rev


def _head_place(entry: Entry | Commit, manifest: str, thread_id: str | None = None) -> bytes:
    # Some databases give JSON back with other spaces.
    text = encode_trusted(decode(manifest))
    digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return _place("head", thread_id or entry.thread_id, *_of_entry(entry), digest)


def _run_place(run: Run, thread_id: str) -> bytes:
    return _place("run", thread_id, run.branch, *map(str, run[1:4]))


def _write_place(write: Write, thread_id: str, place: tuple[str, str]) -> bytes:
    return _place("write", thread_id, *place, write.task_id, write.task_path, str(write.idx), write.channel)


def _place(*parts: str) -> bytes:
    """The parts in a form that no other parts have."""
    return "".join(f"{len(part)}:{part}" for part in parts).encode()
