"""A load: the arguments of the scripts that read a checkpoint, or a part of it, and the meaning of their answers.

READ, READ_PART and READ_SINCE find the runs inside Redis, so that a load is one round trip. They give the same answer,
which `lua/shared/runs.lua` describes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.redis.schema import (
    index_field,
    net,
    nets,
    run_of,
    to_entry,
    to_extents,
    to_payload,
    to_stored_entry,
)
from locus.memory.model.ids import shown_thread
from locus.memory.model.manifest import check_named, newest_in, wanted
from locus.memory.model.parts import Ends, Part, Window, needed
from locus.memory.model.records import Base, Extent, Path, Run, Stored

RunsByBranch = dict[str, list[Run]]


def which_arguments(namespace: str, checkpoint_id: str | None) -> list[Any]:
    """The arguments of READ, READ_PART and READ_SINCE that name the checkpoint."""
    return [namespace, b"" if checkpoint_id is None else index_field(namespace, checkpoint_id)]


def held_arguments(namespace: str, held: Base) -> list[Any]:
    """The further arguments of READ_SINCE: the checkpoint that a reader has."""
    return [index_field(namespace, held.checkpoint_id), held.rev]


def part_arguments(part: Part) -> list[Any]:
    """The further arguments of READ_PART: the part."""
    if isinstance(part, Ends):
        return ["ends", part.last]
    if isinstance(part, Window):
        return ["window", part.last, *map(_steps, part.paths)]
    ways = (part.path[:length] for length in range(1, len(part.path) + 1))
    return ["range", part.start, part.count, *map(_steps, ways)]


def _steps(path: Path) -> bytes:
    """A path as READ_PART takes it. A caller may ask for a name that nothing can have."""
    return b"".join(net(step.encode(errors="surrogatepass")) for step in path)


def to_stored(
    thread_id: str, answer: Sequence[Any], part: Part | None = None, held: Base | None = None
) -> Stored | None:
    """Make the checkpoint of an answer: whole, a part of it, or what it has beyond a held one."""
    if not answer:
        return None
    *about, known, packets, long_texts = answer
    return _stored(thread_id, about, lambda: _unpacked(packets, long_texts), part, known, held)


def is_many(answer: Sequence[Any]) -> bool:
    """Whether there are so many runs that they have to be read in portions (`ManyRuns`)."""
    return answer[:1] == [b"MANY"]


class ManyRuns:
    """The runs of a checkpoint that are read in portions, from whatever runs its thread has."""

    def __init__(self, thread_id: str, answer: Sequence[Any]) -> None:
        self._thread_id = thread_id
        _, *self._about = answer
        self.entry = to_entry(thread_id, self._about[0], self._about[1])
        payload = self._about[2]
        with self._reading():
            self._newest = newest_in(to_extents(nets(payload)[0])) if payload else {}
        self._runs: dict[str, dict[int, Run]] = {}

    def add(self, fields: Mapping[bytes, bytes]) -> None:
        """Add those of these fields of the hash of runs that belong to the checkpoint. One may come twice."""
        with self._reading():
            for field, text in fields.items():
                branch, _, number = field.decode().partition(" ")
                if number and int(number) <= self._newest.get(branch, -1):
                    self._runs.setdefault(branch, {})[int(number)] = run_of(branch, int(number), text)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except ValueError:
            raise CorruptCheckpointError(f"runs of {shown_thread(self._thread_id)} cannot be read") from None

    def stored(self, part: Part | None) -> Stored:
        runs = {branch: [found[number] for number in sorted(found)] for branch, found in self._runs.items()}
        return _stored(self._thread_id, self._about, lambda: runs, part)


def _stored(
    thread_id: str,
    about: Sequence[Any],
    runs_of: Callable[[], RunsByBranch],
    part: Part | None,
    known: bytes | None = None,
    held: Base | None = None,
) -> Stored:
    seq, entry, payload, passed = about
    row = to_stored_entry(thread_id, seq, entry)
    checkpoint = row.entry
    try:
        _, head, manifest, is_checked = to_payload(payload, row.bound)
        runs = runs_of()
        extents = wanted(manifest) if part is None else needed(manifest, part)
        if is_checked:
            check_named(extents if known is None else _not_held(extents, to_extents(known)), runs)
    except ValueError:
        raise CorruptCheckpointError(
            f"checkpoint {checkpoint.seq} of {shown_thread(thread_id)} cannot be read"
        ) from None
    return Stored(checkpoint, head, manifest, runs, bool(int(passed)), None if known is None else held)


def _unpacked(packets: Iterable[bytes], long_texts: Iterable[bytes]) -> RunsByBranch:
    """The runs of an answer by branch, oldest first."""
    runs: RunsByBranch = {}
    long = iter(long_texts)
    for packet in packets:
        parts = packet.split(b"\0")
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            branch, _, number = name.decode().partition(" ")
            runs.setdefault(branch, []).append(run_of(branch, int(number), text or next(long, b"")))
    for newest_first in runs.values():
        newest_first.reverse()
    return runs


def _not_held(extents: Iterable[Extent], held: Iterable[Extent]) -> list[Extent]:
    """The extents of which some run was sent: the reader has not all runs of them."""
    versions: dict[tuple[str, int], list[Extent]] = {}
    for extent in held:
        versions.setdefault((extent.branch, extent.run), []).append(extent)
    return [
        extent
        for extent in extents
        if not any(
            other.skip <= extent.skip and extent.skip + extent.length <= other.skip + other.length
            for other in versions.get((extent.branch, extent.run), ())
        )
    ]
