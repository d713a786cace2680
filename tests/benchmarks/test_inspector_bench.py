"""The pages of the inspector are measured: what they weigh, what they read, and what a process keeps of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.inspector_pages import Elements, grow, inspector_section, shown_again
from benchmarks.settings import QUICK


def test_all_figures_are_there(tmp_path: Path) -> None:
    settings = replace(QUICK, threads=(10, 120), pages=1, inspected=(10, 40), shown=3)
    section = inspector_section(settings, tmp_path)
    told = [figure.what for figure in section.figures]
    for what in (": KB", ": nodes", ": ms", ": reads", "threads", "growth"):
        assert any(what in one for one in told), what
    # What does not depend on how fast the machine is has to be reached.
    assert [
        figure for figure in section.figures if not figure.ok and (": reads" in figure.what or ": KB" in figure.what)
    ] == []


async def test_the_thread_has_its_forks(tmp_path: Path) -> None:
    handle = await grow(tmp_path / "memory.db", 100, 5)
    try:
        entries = await handle.history("t", limit=None)
        parents = [entry.parent_id for entry in entries]
        assert len(entries) == 100
        assert len(parents) - len(set(parents)) == 5
    finally:
        await handle.close()
    found = await shown_again(tmp_path, 3)
    assert found["after"] > 0


def test_elements_are_counted() -> None:
    counting = Elements()
    counting.feed("<ul><li>one<br></li><li>two</ul>")
    assert counting.count == 4
