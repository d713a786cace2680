"""No answer that an agent goes on from is wrong after one change, and no error is foreign."""

from __future__ import annotations

from pathlib import Path

from tests.flips.campaign import campaign
from tests.flips.stores import ChangedFiles

CHANGES = 100
"""How many `make test` makes of each store. `python -m tests.flips` makes 10,000."""


async def test_files(tmp_path: Path) -> None:
    figures = await campaign(ChangedFiles(tmp_path), CHANGES, 1)
    assert not figures.wrong, figures.examples
    assert not figures.foreign, figures.examples
    assert figures.told == CHANGES
