"""What a client reads of a server's answers, and what a server reads of its operator: tokens, rates, ids in paths.

The first byte chooses what reads the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from locus.memory.backends.http.locus_server import _read
from locus.server.auth import parse_tokens
from locus.server.rates import Rate
from locus.server.routes.engine import PartQuery
from locus.wire.format import (
    diff_from,
    entry_from,
    exported_from,
    from_etag,
    from_segment,
    hit_from,
    newest_threads_from,
    outcome_from,
    segment,
    sizes_from,
    stored_from,
    write_from,
)
from locus.wire.problems import Problem
from tests.fuzz.judge import expects

_ANSWERS: Final[tuple[Callable[[Any], Any], ...]] = (
    diff_from, entry_from, exported_from, hit_from, newest_threads_from, outcome_from, sizes_from, stored_from,
    write_from,
)  # fmt: skip


def _of_answers(data: bytes) -> int:
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return 0
    made, failed = 0, None
    for read in _ANSWERS:
        try:
            made += len(repr(_read(read, answer)))
        except Exception as error:  # noqa: BLE001 - each of them is to have its turn
            failed = failed or error
    if failed is not None:
        raise failed
    return made


def _parameter(name: str) -> Callable[[str], object]:
    return lambda text: PartQuery.check({name: text})


def _of_paths(data: bytes) -> int:
    text, failed = data.decode(errors="replace"), None
    expects(from_segment(segment(text)) == text or not text, "an id in a path came back as another one")
    for read in (from_segment, from_etag, *map(_parameter, ("path", "window", "held"))):
        try:
            read(text)
        except (ValueError, Problem):
            pass  # a request that says it is refused
        except Exception as error:  # noqa: BLE001 - each of them is to have its turn
            failed = failed or error
    if failed is not None:
        raise failed
    return len(text)


def _of_operators(data: bytes) -> int:
    text, failed = data.decode(errors="replace"), None
    for read in (parse_tokens, Rate.parse):
        try:
            read(text)
        except Exception as error:  # noqa: BLE001 - each of them is to have its turn
            failed = failed or error
    if failed is not None:
        raise failed
    return len(text)


_READERS: Final[tuple[Callable[[bytes], int], ...]] = (_of_answers, _of_paths, _of_operators)


def run(data: bytes) -> int:
    return _READERS[data[0] % len(_READERS)](data[1:]) if data else 0


_ENTRY: Final = (
    '{"thread_id":"t","namespace":"default","checkpoint_id":"c","parent_id":null,"seq":1,"rev":"r",'
    '"created_at":"2026-01-01T00:00:00+00:00","metadata":{}}'
)
SEEDS: Final = [
    *(b"\0" + b'{"entry":' * depth + b"1" + b"}" * depth for depth in (100, 300, 980)),
    *(b"\1" + b"[" * depth + b"]" * depth for depth in (100, 300, 980)),
    b"\0" + _ENTRY.encode(),
    f'\0{{"entry":{_ENTRY},"head":"{{}}","manifest":"[]","runs":[["b",0,0,1,"[1]"]],"passed":false}}'.encode(),
    f'\0{{"checkpoints":[{_ENTRY}],"hits":[{{"entry":{_ENTRY},"score":1.5,"snippet":"x"}}],"next":null}}'.encode(),
    b'\0{"verdict":"committed","seq":1,"parent_id":null}',
    b'\0{"task_id":"a","task_path":"","idx":0,"channel":"x","value":"1"}',
    b"\1~dGVuYW50L2E",
    b'\1[50,[["messages"]]]',
    b'\1["c6","r6"]',
    b'\1"etag"',
    b"\2a-token-that-may-write write acme/ saves=1000 megabytes=unlimited; another-long-token read",
    b"\00250/200",
]
