"""The fuzzing itself: what is wrong on purpose is noticed, kept and can be replayed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from locus.errors import CorruptCheckpointError
from tests.fuzz import campaign, process
from tests.fuzz.campaign import ROOT, Campaign
from tests.fuzz.judge import TooMuchMade, TooMuchWork, UnexpectedError, judged
from tests.fuzz.targets import NAMES


def test_an_error_of_locus_is_an_answer() -> None:
    def damaged(data: bytes) -> int:
        raise CorruptCheckpointError("damaged")

    judged(damaged, b"x")


def test_any_other_error_is_a_fault() -> None:
    def careless(data: bytes) -> int:
        return {b"a": 1}[data]

    judged(careless, b"a")
    with pytest.raises(UnexpectedError, match="KeyError"):
        judged(careless, b"b")


def test_work_that_the_length_does_not_account_for_is_a_fault() -> None:
    def exponential(data: bytes) -> int:
        def walk(left: int) -> int:
            return 1 if not left else walk(left - 1) + walk(left - 1)

        return walk(len(data))

    judged(exponential, b"x" * 5)
    with pytest.raises(TooMuchWork):
        judged(exponential, b"x" * 60)


def test_work_is_a_fault_even_if_the_target_catches_all_errors() -> None:
    def careless(data: bytes) -> int:
        try:
            return sum(len(data[at:]) for at in range(10**6))
        except Exception:  # noqa: BLE001 - as code does that makes objects of any class
            return 0

    with pytest.raises(TooMuchWork):
        judged(careless, b"x")


def test_more_than_the_length_accounts_for_is_a_fault() -> None:
    with pytest.raises(TooMuchMade):
        judged(lambda data: 10**9, b"x")


def test_growth_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([100.0, *(100.0 + 300 * number for number in range(10))])
    monkeypatch.setattr(process, "peak_mb", lambda: next(taken))
    watched = process.Watched(lambda data: None)
    with pytest.raises(process.Grown):
        for _ in range(process.WARM + 3_000):
            watched(b"")


def test_a_fault_is_kept_and_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends with an error: its case is in the folder of faults, and the run goes on with others."""
    script = (
        "import pathlib, sys; name, cases, seed, corpus, faults = sys.argv[2:];"
        "print('#17'); pathlib.Path(faults, 'crash-abc').write_bytes(b'x'); sys.exit(name == 'codec')"
    )
    run = subprocess.run

    def started(command: list[str], **options: object) -> object:
        if command[3] == "codec" or not list((tmp_path / "faults" / command[3]).iterdir()):
            command = [sys.executable, "-c", script if command[3] == "codec" else "", *command[2:]]
        return run(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", started)
    started_here = Campaign(("codec", "url"), 50, 7, tmp_path)
    found = list(started_here.run())
    assert [(name, fault and Path(fault).name) for name, _, fault in found[:2]] == [
        ("codec", "crash-abc"),
        ("url", None),
    ]
    assert found[-1][1].cases["url"] == started_here.share("url")
    assert found[-1][1].faults["codec"][0] == str(tmp_path / "faults" / "codec" / "crash-abc")


def test_a_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[str] = []

    def done(command: list[str], **_options: object) -> subprocess.CompletedProcess[bytes]:
        seeds.append(command[5])
        return subprocess.CompletedProcess(command, 0, b"")

    monkeypatch.setattr(subprocess, "run", done)
    monkeypatch.setattr(campaign, "PIECE", 10)
    first = Campaign(("codec",), 20, 7, tmp_path)
    next(first.run())
    assert [progress.total for _, progress, _ in first.run()] == [20]
    assert [progress.total for _, progress, _ in Campaign(("codec",), 30, 7, tmp_path).run()] == [30]
    assert len(set(seeds)) == 3, "each piece has a seed of its own"


@pytest.mark.parametrize("target", ["codec"])
def test_a_short_run(target: str, tmp_path: Path) -> None:
    """As a user starts it, without atheris."""
    command = [sys.executable, "-m", "tests.fuzz", "--cases", "30", "--target", target, "--corpus", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "30 cases with seed 1" in ended.stdout
    (tmp_path / "case").write_bytes(b"\0{}")
    command = [sys.executable, "-m", "tests.fuzz", "--target", target, "--replay", str(tmp_path / "case")]
    assert "no fault" in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_every_target_is_documented() -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    assert all(f"`{name}`" in page for name in NAMES)


def test_the_page_says_what_was_run() -> None:
    runs = json.loads((Path(__file__).parent / "runs.json").read_text())
    assert f"{sum(sum(run['cases'].values()) for run in runs):,}" in (ROOT / "docs" / "testing.md").read_text()
    assert all(set(run["cases"]) <= set(NAMES) for run in runs)
