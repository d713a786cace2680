"""A stored checkpoint: its head, its manifest and its runs, one line each, put together in every way there is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from locus.memory.model.codec import decode
from locus.memory.model.manifest import by_branch
from locus.memory.model.parts import Range, Window, checked_range, page_of
from locus.memory.model.payloads import dict_from, payload_text, stored_trace
from locus.memory.model.records import Entry, Run, Stored
from locus.memory.model.states import loaded_state

_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)


def _run(line: str) -> Run | None:
    """A run whose facts have the types that a database gives them; its items are any text."""
    facts, _, items = line.partition(" ")
    branch, *numbers = facts.split(",")
    try:
        number, start, length = (min(abs(int(text[:15])), 2**53 - 1) for text in numbers)
    except ValueError:
        return None
    return Run(branch, number, start, length, items)


def stored_from(data: bytes) -> Stored:
    head, _, rest = data.decode(errors="replace").partition("\n")
    manifest, *lines = rest.split("\n")
    runs = {run[:2]: run for run in map(_run, lines) if run is not None}
    entry = Entry("t", "default", "c", None, 1, "rev", _AT, "{}")
    return Stored(entry, head, manifest, by_branch(runs.values()))


def run(data: bytes) -> int:
    stored = stored_from(data)
    made, failed = 0, None
    for read in (_dict, _payload, _state, _window, _page, _trace):
        try:
            made += read(stored)
        except Exception as error:  # noqa: BLE001 - each of them is to have its turn
            failed = failed or error
    if failed is not None:
        raise failed
    return made


def _dict(stored: Stored) -> int:
    return len(repr(dict_from(stored)))


def _payload(stored: Stored) -> int:
    text = payload_text(stored)
    decode(text)
    return len(text)


def _state(stored: Stored) -> int:
    return len(repr(loaded_state(stored)))


def _window(stored: Stored) -> int:
    return len(repr(loaded_state(stored, Window(2, frozenset({("messages",), ("tool_executions",)})))))


def _page(stored: Stored) -> int:
    ranges: list[Any] = [Range(("messages",), 0, 3), checked_range(("a", "b"), -2, 5)]
    return sum(len(page_of(stored, one).items) for one in ranges)


def _trace(stored: Stored) -> int:
    return len(repr(stored_trace(stored, sort_keys=False)))


_MESSAGE: Final = '{"role":"user","content":"hi","id":"m1","created_at":"2026-01-01T00:00:00Z"}'
SEEDS: Final = [
    text.encode()
    for text in (
        '{"agent_id":"a","messages":[],"metadata":{}}\n[[["messages"],[["b",0,0,1]]]]\nb,0,0,1 [' + _MESSAGE + "]",
        '{"messages":[]}\n[[["messages"],[["b",1,0,2]]]]\nb,0,0,2 [1,2]\nb,1,1,1 [3]',
        '{"a":{"b":[]},"large":null}\n[[["a","b"],[["b",0,0,1]]],[["large"],"v"]]\nb,0,0,1 [1]\nv,0,0,1 ["long"]',
        '{"messages":[1,2]}\n[]',
        *(
            f'{{"a":{"[" * depth}{"]" * depth},"messages":[]}}\n[[["messages"],[["b",0,0,1]]]]\nb,0,0,1 [[[1]]]'
            for depth in (95, 300, 500, 980)
        ),
        *(
            f'{{"messages":[]}}\n[[["messages"],[["b",0,0,1]]]]\nb,0,0,1 {"[" * depth}{"]" * depth}'
            for depth in (95, 300, 500, 980)
        ),
    )
]
