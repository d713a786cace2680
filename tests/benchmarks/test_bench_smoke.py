"""The benchmark runs, says what it measured, and can say no. No test here depends on how fast anything is."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import TOPICS, Topic, chosen, chosen_topics, main
from benchmarks.costs import (
    Figure,
    FrameworkCost,
    PeerCost,
    ReadCost,
    Report,
    SaveCost,
    Section,
    SideCost,
    Throughput,
    TurnCost,
)
from benchmarks.figures import figures
from benchmarks.peers.environments import Environment, PeerError, peer_costs, run_peer
from benchmarks.peers.running import Peer, run
from benchmarks.plot import draw
from benchmarks.publish import main as publish
from benchmarks.report import markdown
from benchmarks.settings import QUICK
from benchmarks.turns import Turn, turn
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[2]


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "benchmarks", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
    )


def test_a_quick_run_writes_the_report_its_data_and_the_plot(tmp_path: Path) -> None:
    out, stores = tmp_path / "out", tmp_path / "stores"
    stores.mkdir()
    done = bench("--quick", "--backends", "memory,file,sqlite n", "--out", str(out), "--dir", str(stores))
    assert done.returncode == 0, done.stderr
    assert (out / "latest.md").read_text(encoding="utf-8") in done.stdout
    assert "| figure | backend | target | measured | ok |" in done.stdout
    data = json.loads((out / "latest.json").read_text(encoding="utf-8"))
    assert {cost["backend"] for cost in data["saves"]} == {"memory", "file", "sqlite NORMAL"}
    assert {cost["workload"] for cost in data["saves"]} == {workload.name for workload in WORKLOADS}
    assert all(cost["save_ms"] > 0 and cost["grown_bytes"] > 0 for cost in data["saves"])
    assert all(cost["stored_bytes"] > cost["content_bytes"] for cost in data["reads"])
    assert (out / "cost.png").read_bytes().startswith(b"\x89PNG")
    assert list(stores.iterdir()) == []


def test_an_unknown_backend_is_refused_with_the_names_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick", "--backends", "nothing"])
    with pytest.raises(SystemExit, match="sqlite FULL"):
        main()


def test_an_unknown_topic_is_refused_with_the_names_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick", "--topics", "nothing"])
    with pytest.raises(SystemExit, match="langgraph"):
        main()


def test_a_topic_is_measured_if_the_chosen_backends_are_enough() -> None:
    assert chosen_topics("", chosen("memory,file")) == ["saves", "many", "loop"]
    assert chosen_topics("", chosen("")) == ["frameworks", "saves", "many", *TOPICS]
    assert chosen_topics("many,loop", chosen("file")) == ["many", "loop"]


def test_an_interrupted_run_keeps_what_it_has_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def part(name: str) -> Section:
        measured.append(name)
        if name == "memory" and len(measured) == 2:
            raise KeyboardInterrupt
        return Section(name, [Figure(name, "a", "b", "c", True)], "")

    topics = {name: Topic((), lambda *_, name=name: part(name)) for name in ("loop", "memory", "http")}
    monkeypatch.setattr("benchmarks.__main__.TOPICS", topics)
    arguments = ["--quick", "--topics", "loop,memory,http", "--resume", "--out", str(tmp_path)]
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
    assert measured == ["loop", "memory", "memory", "http"]
    assert "All 3 are reached." in (tmp_path / "latest.md").read_text(encoding="utf-8")


def save(workload: str, length: int) -> SaveCost:
    return SaveCost("sqlite FULL", workload, length, 1.0, 0.85, 3_000, 3_500, 4_000)


def read(length: int) -> ReadCost:
    return ReadCost("sqlite FULL", length, 10.0, 12.0, 8.0, 0.3, 0.3, 1_200 * length, 1_000 * length, 900 * length)


def graph_costs() -> list[FrameworkCost]:
    """Ours adds more than LangGraph's own at 30 turns, and nothing at 10,000."""
    return [
        FrameworkCost(
            "LangGraph, `add_messages`", "`ainvoke`", "PostgreSQL", "`AsyncPostgresSaver`", "`InMemorySaver`", length,
            3_000 * length, SideCost(ours, 1.0, 5_000.0), SideCost(theirs, 1.0, 6_000_000.0), SideCost(floor, 1.0),
        )
        for length, floor, theirs, ours in GRAPHS
    ]  # fmt: skip


GRAPHS = ((30, 3.0, 5.0, 7.0), (1_000, 9.0, 100.0, 12.0), (10_000, 99.0, 1_099.0, 98.0))


@pytest.fixture
def report() -> Report:
    lengths = (10, 1_000)
    saves = [save(workload.name, length) for workload in WORKLOADS for length in lengths]
    rates = [Throughput("sqlite FULL", 1_300.0, 1_000.0)]
    turns = [TurnCost("sqlite FULL", length, 1.0, 1.0, 5.0, 5.0, 9.0, 8.0, 9.0, 8.0) for length in lengths]
    return Report({"Python": "3"}, lengths, 1.0, saves, [read(length) for length in lengths], turns, rates)


def test_all_figures_can_be_reached(report: Report) -> None:
    assert [figure.what for figure in figures(report) if not figure.ok] == []
    assert "All 13 are reached." in markdown(report)


@pytest.mark.parametrize(
    ("workload", "change", "what"),
    [
        ("append", {"save_ms": 1.21}, "time of a save, at 1,000 ÷ at 10 turns"),
        ("fork", {"floor_ms": 0.4}, "time of a save ÷ the floor, at 1,000 turns"),
        ("cold", {"sent_bytes": 6_000}, "bytes of a save as sent to the engine, at 1,000 ÷ at 10 turns"),
        ("dict", {"grown_bytes": 7_000}, "bytes that a save adds to the store, at 1,000 ÷ at 10 turns"),
    ],
)
def test_a_save_that_costs_too_much_is_marked(report: Report, workload: str, change: Any, what: str) -> None:
    report.saves = [
        replace(cost, **change) if (cost.workload, cost.length) == (workload, 1_000) else cost for cost in report.saves
    ]
    assert [figure.what for figure in figures(report) if not figure.ok] == [what]
    assert "1 of 13 are missed." in markdown(report)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"stored_bytes": 1_600_000}, "stored bytes ÷ the floor's, at 1,000 turns"),
        ({"load_ms": 17.0}, "load ÷ `model_validate_json`, at 1,000 turns"),
        (
            {"load_ms": 23.0, "read_ms": 3.0},
            "load ÷ the raw driver's read and `model_validate_json`, at 1,000 turns",
        ),
        ({"history_ms": 0.5}, "`list_checkpoints` and `history`, at 1,000 ÷ at 10 turns"),
    ],
)
def test_reads_that_cost_too_much_are_marked(report: Report, change: Any, what: str) -> None:
    report.reads = [report.reads[0], replace(report.reads[1], **change)]
    assert [figure.what for figure in figures(report) if not figure.ok] == [what]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"turn_ms": 1.3}, "a turn of a worker that knows nothing, at 1,000 ÷ at 10 turns"),
        ({"warm_load_ms": 2.1}, "warm load of a state with one new turn, at 1,000 ÷ at 10 turns"),
        ({"warm_dict_load_ms": 6.6}, "warm load of a dict with one new turn ÷ parsing, at 1,000 turns"),
        ({"cold_load_ms": 12.1}, "cold load ÷ `model_validate_json`, at 1,000 turns"),
        ({"cold_save_ms": 12.9}, "cold save ÷ encoding item by item, at 1,000 turns"),
    ],
)
def test_turns_that_cost_too_much_are_marked(report: Report, change: Any, what: str) -> None:
    report.turns = [report.turns[0], replace(report.turns[1], **change)]
    assert [figure.what for figure in figures(report) if not figure.ok] == [what]


def test_too_few_saves_at_once_are_marked(report: Report) -> None:
    report.throughput = [replace(report.throughput[0], ours=900.0)]
    what = "saves per second of many conversations at once ÷ the floor's"
    assert [figure.what for figure in figures(report) if not figure.ok] == [what]


def test_a_workload_that_is_measured_in_shorter_threads_says_so(report: Report) -> None:
    long = [replace(cost, length=10_000) for cost in report.saves if cost.length == 1_000 and cost.workload != "edited"]
    report.saves += long
    growth = next(figure for figure in figures(report) if figure.what == "time of a save, at 10,000 ÷ at 10 turns")
    assert growth.ok
    assert "edited (at 1,000) 1.00" in growth.measured
    assert "append 1.00" in growth.measured


def test_a_report_can_be_read_again(report: Report) -> None:
    report.sections["loop"] = Section("Loop", [Figure("a", "b", "c", "d", True)], "table")
    report.took["loop"] = 1.5
    report.peers = [PeerCost("other", 10, 1.0, 2.0, None, 5_000)]
    report.frameworks = graph_costs()
    report.versions = {"PostgreSQL": "17.2"}
    assert Report.from_dict(json.loads(json.dumps(report.as_dict()))) == report


def test_time_of_cold_and_dict_saves_is_not_promised(report: Report) -> None:
    report.saves = [replace(cost, save_ms=50.0) if cost.workload in ("cold", "dict") else cost for cost in report.saves]
    assert all(figure.ok for figure in figures(report))


class Slow(Peer):
    """Keeps nothing, and takes longer than it may."""

    def add(self, texts: Turn) -> None:
        pass

    async def save(self) -> None:
        (self.folder / "state").write_bytes(b"x" * 1_000)

    async def load(self) -> None:
        pass


@pytest.mark.parametrize(("limits", "why"), [((0, 10), "0 s were over"), ((60, 0), "0 MB were full")])
async def test_a_peer_is_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], limits: tuple[int, int], why: str
) -> None:
    seconds, megabytes = limits
    await run(Slow(tmp_path), {"lengths": [10, 1_000], "seconds": seconds, "megabytes": megabytes})
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    last = peer_costs("slow", lines)[-1]
    assert last.length < 1_000
    assert last.note == f"cut off at turn {last.length:,}: {why}"


async def test_a_peer_that_keeps_within_its_limits_is_not_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await run(Slow(tmp_path), {"lengths": [5, 30], "seconds": 60, "megabytes": 10})
    costs = peer_costs("slow", [json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert [(cost.length, cost.note) for cost in costs] == [(5, ""), (30, "")]


def test_peers_are_in_the_report(report: Report) -> None:
    report.peers = [
        PeerCost("other `Saver`", 10, 1.0, 2.0, None, 5_000_000),
        PeerCost("other `Saver`", 640, 80.0, None, None, 900_000_000, "cut off at turn 640: 60 s were over"),
        PeerCost("absent", 0, None, None, None, None, "could not be installed: no network"),
    ]
    text = markdown(report)
    assert "| other `Saver` | 1 | – | – | – | 900 | 640 | cut off at turn 640: 60 s were over |" in text
    assert "| absent | – | – | – | – | – | 0 | could not be installed: no network |" in text
    assert "| **Locus, sqlite FULL** | 1 | 1 | 12.0 | 0.3 | 1.20 | 1,000 |  |" in text


def test_the_pages_get_the_figures_of_one_run(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report.machine = dict.fromkeys(("Locus", "date", "system", "Python", "SQLite", "file system"), "x")
    report.saves += [replace(cost, backend="postgresql") for cost in report.saves]
    report.reads += [replace(cost, backend="postgresql") for cost in report.reads]
    report.turns += [replace(cost, backend="postgresql", turn_ms=9.0) for cost in report.turns]
    report.frameworks = graph_costs()
    report.versions = {"PostgreSQL": "17.2", "langgraph": "1.2.22", "langgraph-checkpoint-postgres": "3.2.0"}
    data = tmp_path / "latest.json"
    data.write_text(json.dumps(report.as_dict()), encoding="utf-8")
    (tmp_path / "docs").mkdir()
    pages = [tmp_path / "README.md", tmp_path / "docs" / "benchmarks.md"]
    for page in pages:
        page.write_text("before\n<!-- figures -->\noutdated\n<!-- /figures -->\nafter\n", encoding="utf-8")
    monkeypatch.setattr("benchmarks.publish.ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["publish", str(data)])
    for _ in range(2):
        publish()
        readme, benchmarks = (page.read_text(encoding="utf-8") for page in pages)
        for text in (readme, benchmarks):
            assert text.startswith("before\n<!-- figures -->\n")
            assert text.endswith("\n<!-- /figures -->\nafter\n")
            assert "outdated" not in text
    assert "a save takes 1 ms at turn 10 and 1 ms at turn 1,000" in " ".join(readme.split())
    assert "adds 5 KB to PostgreSQL; with LangGraph's own saver 6,000 KB" in " ".join(readme.split())
    assert "| `add_messages` | 2 → 4 | 1,000 → −1 |" in readme, "even where somebody else is better"
    assert "PostgreSQL 17.2, LangGraph 1.2.22, its saver 3.2.0" in " ".join(readme.split())
    assert "### A turn through the framework" in benchmarks
    assert "Versions: langgraph 1.2.22, langgraph-checkpoint-postgres 3.2.0" in benchmarks
    assert max(map(len, readme.splitlines())) <= 118
    flat = "a turn of a worker that knows nothing, at 1,000 ÷ at 10 turns | ≤ 1.25 | sqlite FULL, postgresql | – |"
    assert flat in benchmarks


def test_a_plot_shows_other_libraries_as_far_as_they_got(report: Report, tmp_path: Path) -> None:
    report.peers = [
        PeerCost("locus-sdk 3 `FileCheckpointer`", 10, 1.0, 2.0, None, 5_000_000, turn_ms=3.0),
        PeerCost("locus-sdk 3 `FileCheckpointer`", 640, 80.0, None, None, 900_000_000, "cut off"),
        PeerCost("absent", 0, None, None, None, None, "could not be installed"),
    ]
    report.frameworks = graph_costs()
    data, picture = tmp_path / "latest.json", tmp_path / "cost.png"
    data.write_text(json.dumps(report.as_dict()), encoding="utf-8")
    draw(Report.from_dict(json.loads(data.read_text(encoding="utf-8"))), picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_runner_that_fails_is_an_error_that_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.environments.installed", lambda *_: Path(sys.executable))
    broken = Environment("broken", (), "benchmarks.peers.no_such_runner", ("Any",))
    with pytest.raises(PeerError, match="no_such_runner"):
        run_peer(broken, "Any", QUICK, tmp_path, lambda _: None)


def test_turns_are_always_the_same_and_have_the_promised_size() -> None:
    texts = vars(turn(7)).values()
    assert turn(7) == turn(7)
    assert turn(7) != turn(8)
    assert turn(7) != turn(7, conversation=1)
    assert 2_700 < sum(map(len, texts)) < 3_100
