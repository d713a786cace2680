"""Files that are imported: threads as JSON Lines (`locus import jsonl`), moved into a store in memory."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Final

from locus.memory.backends import MemoryCheckpointer
from locus.transfer.jsonl import JSONLinesSource
from locus.transfer.move import move
from tests.fuzz.places import scratch


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


async def _moved(path: str) -> int:
    handle = MemoryCheckpointer()
    report = await move(JSONLinesSource(path), handle.store, name="memory", jobs=1)
    made = len(repr(report))
    for thread_id in await handle.list_threads():
        for entry in await handle.store.history(thread_id, 100, None, None):
            stored = await handle.store.read(thread_id, entry.checkpoint_id, entry.namespace)
            made += len(repr(stored))
    return made


def run(data: bytes) -> int:
    path = scratch() / "threads.jsonl"
    path.write_bytes(data)
    return _loop().run_until_complete(_moved(str(path)))


_LINES: Final = (
    b'{"locus": 1, "thread_id": "t"}\n'
    b'{"branch": "b", "run": 0, "start": 0, "items": [{"role": "user"}, 2]}\n'
    b'{"namespace": "default", "checkpoint_id": "c1", "parent_id": null, "created_at": "2026-01-01T00:00:00+00:00",'
    b' "metadata": {"k": 1}, "state": {"messages": []}, "lists": [[["messages"], [["b", 0, 0, 2]]]],'
    b' "writes": [{"task_id": "a", "task_path": "", "idx": 0, "channel": "x", "value": 1}]}\n'
)
_NEXT: Final = (
    b'{"branch": "b", "run": 1, "start": 1, "items": [3]}\n'
    b'{"namespace": "default", "checkpoint_id": "c2", "parent_id": "c1", "created_at": "2026-01-01T00:00:01+00:00",'
    b' "metadata": {}, "state": {"messages": [], "v": null}, "lists": [[["messages"], [["b", 1, 0, 2]]]],'
    b' "writes": []}\n'
)
_DEEP: Final = [_LINES.replace(b'{"k": 1}', b'{"k": %s}' % (b"[" * deep + b"]" * deep)) for deep in (95, 300, 980)]
_WHOLE: Final = _LINES + b'{"end": "t", "checkpoints": 1}\n'
SEEDS: Final = [
    *[lines + b'{"end": "t", "checkpoints": 1}\n' for lines in _DEEP],
    _LINES,
    _WHOLE,
    _LINES + _NEXT + b'{"end": "t", "checkpoints": 2}\n',
    _WHOLE + _WHOLE.replace(b'"t"', b'"u"'),
]
