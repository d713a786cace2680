"""Looks for threads and markers that lost each other, for `locus doctor`.

A newest event that is lost leaves nothing behind that names it: the store is then, byte for byte, what it was before
that save. Only the first event of a thread has a second witness, the marker that was put before it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from itertools import groupby

from locus.errors import CorruptCheckpointError
from locus.memory.backends.objects.client import PAGE, ListedObject, ObjectStore
from locus.memory.backends.objects.markers import MarkedThread, ThreadMarkers
from locus.memory.backends.objects.read import ThreadObjects, list_objects, read_thread
from locus.memory.backends.objects.schema import (
    MarkerState,
    event_key,
    marker_of,
    parse_event,
    parse_marker,
    parse_merged,
    read_record,
    thread_name,
)
from locus.memory.backends.objects.texts import ObjectGone
from locus.memory.model.ids import Pattern
from locus.memory.model.records import Finding


async def marker_findings(store: ObjectStore, markers: ThreadMarkers) -> list[Finding]:
    """Compare the markers with the events that there are: both only by the names of objects, where these are enough."""
    marked: dict[str, tuple[int, MarkerState]] = {}
    async for thread in _marked(markers):
        marked[thread_name(thread.thread_id)] = (thread.number, thread.state)
    suspects: list[str] = []
    lost = unbegun = 0
    async for folder, last in _folders(store):
        number, state = marked.pop(folder, (0, MarkerState.GONE))
        if state is MarkerState.GONE and last > number:
            suspects.append(folder)
        lost += state is MarkerState.SURE and last < number
        unbegun += state is MarkerState.MAYBE and last < number
    lost += sum(state is MarkerState.SURE for _, state in marked.values())
    unbegun += sum(state is MarkerState.MAYBE for _, state in marked.values())
    unmarked = sum([await _lacks_marker(store, folder) for folder in suspects])
    results: list[Finding] = []
    if lost:
        what = f"{_threads(lost)} lost the newest objects: there are markers of later events"
        results.append(Finding("error", what, "restore them, from a version of the bucket or from a backup"))
    if unmarked:
        what = f"{_threads(unmarked)} lost the marker, without which no list shows a thread"
        advice = "such a thread is loaded by its id, and is listed again once it was deleted and begun anew"
        results.append(Finding("error", what, advice))
    if unbegun:
        what = f"{_threads(unbegun)} with a marker but without a first event"
        advice = "a first save was cut off, which a vacuum settles, or that object is lost: see the bucket's versions"
        results.append(Finding("warning", what, advice))
    return results


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count:,} threads"


async def _marked(markers: ThreadMarkers) -> AsyncIterator[MarkedThread]:
    for thread in await markers.long(Pattern()):
        yield thread
    async for page in markers.all(Pattern()):
        for thread in page:
            yield thread


async def _folders(store: ObjectStore) -> AsyncGenerator[tuple[str, int]]:
    """Yield the folders of threads, each with the number of its last event."""
    after: str | None = None
    here, last = "", 0
    while True:
        page = await store.list("t/", start_after=after, limit=PAGE)
        for folder, objects in groupby(page, _folder):
            if here not in ("", folder):
                yield here, last
                last = 0
            here, last = folder, max([last, *map(_number, objects)])
        if len(page) < PAGE:
            break
        after = page[-1].key
    if here:
        yield here, last


def _folder(listed: ListedObject) -> str:
    return listed.key.split("/")[1]


def _number(listed: ListedObject) -> int:
    merged = parse_merged(listed.key, listed.size)
    return (merged.high if merged is not None else parse_event(listed.key)) or 0


async def _lacks_marker(store: ObjectStore, folder: str) -> bool:
    """Tell whether a thread has checkpoints, and no marker says so. It may have begun since the markers were listed."""
    try:
        thread_id = await _owner(store, folder, await list_objects(store, folder))
        if thread_id is None:
            return False
        known, _ = await read_thread(store, thread_id)
    except ObjectGone:
        return False  # it is being changed just now
    except CorruptCheckpointError:
        return True
    beginning = marker_of(thread_id, 0, MarkerState.SURE).key.rpartition("-")[0]
    markers = [parse_marker(listed.key) for listed in await store.list(f"{beginning}-")]
    newest = max((marker for marker in markers if marker), key=lambda marker: marker.number, default=None)
    return bool(known.index.rows) and (newest is None or newest.state is MarkerState.GONE)


async def _owner(store: ObjectStore, folder: str, objects: ThreadObjects) -> str | None:
    """The id of the thread in a folder, as its newest events say; None if they were removed by a sweep."""
    if objects.unmerged:
        body = await store.get(event_key(folder, objects.unmerged[-1]))
        lines = [] if body is None else [body.partition(b"\n")[0]]
    else:
        bodies = await store.get_many([merged.key(folder) for merged in objects.entries])
        lines = [line for body in bodies.values() for line in (body or b"").split(b"\n")]
    for line in reversed(lines):
        thread_id = read_record(line).get("thread")
        if isinstance(thread_id, str) and thread_name(thread_id) == folder:
            return thread_id
    return None
