"""Campaigns on several stores at a time: their counts add up, and go on where they were left."""

from __future__ import annotations

from pathlib import Path

import pytest

from locus.testing.campaign.tally import Tally
from tests.soak.__main__ import main


@pytest.mark.crash
def test_counts_of_several_processes_add_up(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    arguments = ["--only", "sqlite,file", "--at-once", "2", "--seconds", "0", "--round-seconds", "0.3", "--kills"]
    arguments += ["--clients", "1", "--seed", "4", "--state", str(state), "--keep", str(tmp_path / "histories")]
    assert main(arguments) == 0
    first = Tally.read(state)
    assert {name: site.rounds for name, site in first.sites.items()} == {"sqlite": {4: 1}, "file": {4: 1}}
    # As if the campaign had been stopped before it had added this up.
    part = first.part("file")
    part.add("file", "files", 4, {}, {"acknowledged": 1}, [], 1.0)
    (tmp_path / "state.parts").mkdir()
    part.write(tmp_path / "state.parts" / "file.json")
    assert main(arguments) == 0
    second = Tally.read(state)
    assert {name: site.rounds for name, site in second.sites.items()} == {"sqlite": {4: 2}, "file": {4: 3}}
    assert second.seconds > first.seconds + 1.0
    assert not (tmp_path / "state.parts").exists()
