"""No answer that an agent goes on from is wrong after one change, and no error is foreign."""

from __future__ import annotations

from pathlib import Path

from tests.flips.campaign import campaign
from tests.flips.stores import ChangedFiles, ChangedSQLite

CHANGES = 100
"""How many `make test` makes of each store. `python -m tests.flips` makes 10,000."""


async def test_files(tmp_path: Path) -> None:
    figures = await campaign(ChangedFiles(tmp_path), CHANGES, 1)
    assert not figures.wrong, figures.examples
    assert not figures.foreign, figures.examples
    assert figures.told == CHANGES


async def test_sqlite(tmp_path: Path) -> None:
    """What only an index has lost, such as a pending write or a word, `locus doctor` finds."""
    figures = await campaign(ChangedSQLite(tmp_path), 2 * CHANGES, 2)
    assert figures.told > CHANGES // 2
    assert not figures.foreign, figures.examples
    assert not {"newest", "by id", "history"} & set(figures.wrong), figures.examples
    assert not figures.silent, figures.examples
