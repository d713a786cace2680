"""Every page of the inspector, for tests that visit them all."""

from __future__ import annotations

from pathlib import Path

from locus.memory.backends import sqlite_checkpointer
from tests.server.inspector.browser.stores import GRAPH, LONG, PLANTED, SESSION, TRIP

Place = tuple[tuple[str, ...], dict[str, str]]
"""The segments of an address, and its query."""


async def every_page(path: Path, *, writes: bool = False) -> dict[str, Place]:
    """Every kind of page, with something to show on it, by a name."""
    async with sqlite_checkpointer(path) as handle:
        newest, before, *_ = [entry.checkpoint_id for entry in await handle.history(TRIP, limit=2)]
        waiting = (await handle.history(GRAPH, limit=1))[0].checkpoint_id
        called = (await handle.history(SESSION, limit=1))[0].checkpoint_id
    places: dict[str, Place] = {
        "threads": (("threads",), {}),
        "threads, none": (("threads",), {"q": "nobody*"}),
        "search": (("search",), {"q": "hazelnuts"}),
        "timeline": (("t", LONG), {}),
        "timeline, too early": (("t", TRIP), {"at": "2000-01-01T10:00:00"}),
        "timeline with namespaces": (("t", GRAPH), {}),
        "conversation": (("t", TRIP, "c", newest), {}),
        "conversation with calls": (("t", SESSION, "c", called), {}),
        "state": (("t", TRIP, "c", newest), {"view": "state"}),
        "pending writes": (("t", GRAPH, "c", waiting), {}),
        "diff": (("t", TRIP, "diff", before, newest), {}),
        "bisect": (("t", LONG, "bisect"), {"appears": PLANTED}),
        "bisect, nothing": (("t", LONG, "bisect"), {"appears": "Another way to put section 5", "case": "1"}),
        "storage": (("stats",), {}),
        "storage of a thread": (("t", LONG, "stats"), {}),
        "export": (("t", TRIP, "export"), {}),
        "memory": (("memory",), {}),
        "memory, found": (("memory",), {"q": "what tea does she drink", "under": "users/"}),
        "item": (("memory", "item"), {"path": "users/ada/memories/", "key": "tea"}),
        "nothing there": (("t", "nobody"), {}),
    }
    if writes:
        places |= {
            "fork": (("t", TRIP, "fork"), {"checkpoint": newest}),
            "delete": (("t", TRIP, "delete"), {}),
            "vacuum": (("vacuum",), {}),
        }
    return places
