"""Campaigns: what a seed decides, pieces that add up, the report, and a sound store whose clients are killed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from locus.errors import ConfigurationError
from locus.memory import get_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.campaign.__main__ import OwnStore, main
from locus.testing.campaign.client import with_small_pool
from locus.testing.campaign.clients import Clients
from locus.testing.campaign.faults import CLIENT_FAULTS, KILLED
from locus.testing.campaign.finding import Finding, Kind
from locus.testing.campaign.history import ClientLog, History, has_begun, log_of
from locus.testing.campaign.plan import RoundPlan, planned
from locus.testing.campaign.report import report
from locus.testing.campaign.rounds import Campaign, CampaignOptions, RoundOutcome, fault_names, run_round
from locus.testing.campaign.tally import FailedRound, Tally
from locus.testing.processes.workers import Crew
from tests.soak.pages import BEGIN, END, summary, write_report

NAMES = ("a", "b", "c", *CLIENT_FAULTS)


def test_a_seed_decides_the_rounds() -> None:
    first = [planned(1, "sqlite", number, NAMES) for number in range(30)]
    assert first == [planned(1, "sqlite", number, NAMES) for number in range(30)]
    assert first != [planned(2, "sqlite", number, NAMES) for number in range(30)]
    assert {name for plan in first for name in plan.faults} == set(NAMES)
    assert {len(plan.faults) for plan in first} == {1, 2, 3}
    assert [plan.rng().random() for plan in first] == [plan.rng().random() for plan in first]


def test_kills_come_besides_what_has_its_turn() -> None:
    plans = [planned(1, "sqlite", number, NAMES) for number in range(40)]
    besides = [planned(1, "sqlite", number, NAMES, [KILLED]) for number in range(40)]
    for number, (plan, other) in enumerate(zip(plans, besides, strict=True)):
        assert other.faults[: len(plan.faults)] == plan.faults, "whose turn it is stays the same"
        assert other.faults.count(KILLED) == (number % 4 > 0 or KILLED in plan.faults)


def test_a_client_is_at_work_once_it_has_begun_something(tmp_path: Path) -> None:
    path = log_of(tmp_path, "a")
    assert not has_begun(path)
    log = ClientLog(path, "a")
    log.note(fault="clock jumps")
    assert not has_begun(path)
    log.begin("save", "t")
    assert has_begun(path)
    log.close()


@pytest.mark.crash
async def test_nobody_is_killed_who_is_not_at_work(tmp_path: Path) -> None:
    """But for a few, which do not count."""
    with Crew(f"sqlite:{tmp_path / 'locus.db'}") as crew:
        clients = Clients(crew, tmp_path, seed="1", prefix="t/", faults=[], count=2, vacuums=False, crowd=10)
        await clients.at_work()
        rng, kills = random.Random(1), 0
        while kills < 5:
            kills += clients.kill_one(rng)
            await asyncio.sleep(0)
        await clients.stop()
    assert clients.failures == []
    history = History.read(tmp_path)
    assert len({one.client for one in history.operations}) >= 5


@pytest.mark.crash
async def test_a_sound_store_survives_kills(tmp_path: Path) -> None:
    site = OwnStore(f"sqlite:{tmp_path / 'locus.db'}")
    options = CampaignOptions(folder=tmp_path, clients=2, round_seconds=2.0)
    outcome = await run_round(site, RoundPlan(1, "sqlite", 0, (KILLED,)), options)
    assert outcome.findings == []
    assert outcome.struck[KILLED] > 0
    assert outcome.history.told()["acknowledged"] > 0
    assert outcome.found


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:secret@localhost/agents",
        "mysql://user:secret@localhost/agents?min_pool_size=1",
        "oracle://user:secret@localhost:1521/agents",
        "redis://localhost:6379",
        "valkey://localhost:6379",
        "opensearch://localhost:9200",
        "s3://bucket",
        "http://localhost:8700",
        "sqlite:agents.db",
        "file:agents",
    ],
)
def test_the_pool_of_a_crowd_is_small_where_there_is_one(url: str) -> None:
    crowded = with_small_pool(url)
    assert isinstance(get_checkpointer(crowded), Checkpointer)
    assert (crowded == url) == url.startswith(("s3", "http", "sqlite", "file"))


def test_only_some_faults_may_be_chosen(tmp_path: Path) -> None:
    site = OwnStore(f"sqlite:{tmp_path / 'locus.db'}")
    assert fault_names(site) == list(CLIENT_FAULTS)
    assert fault_names(site, [KILLED]) == [KILLED]
    with pytest.raises(ConfigurationError, match="'server killed'; it has 'client killed'"):
        fault_names(site, ["server killed"])


def test_what_was_found_says_how_to_see_it_again(tmp_path: Path) -> None:
    site, said = OwnStore(f"sqlite:{tmp_path / 'locus.db'}"), list[str]()
    options = CampaignOptions(tmp_path / "kept", 1, 0.1, only=(KILLED,), command="this --fault kills", say=said.append)
    tally = Tally()
    campaign = Campaign(site, tally, options)
    plan = campaign.plan(3, 0)
    outcome = RoundOutcome(plan, {KILLED: 1}, History(), [Finding(Kind.LOST, "t", "gone")])
    (tmp_path / "kept" / f"{site.name}-3-0").mkdir(parents=True)
    campaign.note(outcome)
    assert "lost: t: gone" in said[1]
    assert said[-1].strip() == "this --fault kills --seed 3 --round 0"
    assert [failure.findings for failure in tally.failures] == [["lost: t: gone"]]
    assert (tmp_path / "kept" / f"{site.name}-3-0" / "findings.txt").read_text() == "lost: t: gone"


@pytest.mark.crash
def test_a_campaign_goes_on_where_it_was_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "state.json"
    name = OwnStore(f"sqlite:{tmp_path / 'locus.db'}").name
    arguments = [f"sqlite:{tmp_path / 'locus.db'}", "--seconds", "0", "--round-seconds", "0.3", "--clients", "1"]
    arguments += ["--state", str(state), "--keep", str(tmp_path / "histories"), "--seed", "4"]
    for done in (1, 2):
        assert main(arguments) == 0
        assert Tally.read(state).sites[name].rounds == {4: done}
    assert "No violation was found." in capsys.readouterr().out
    assert list((tmp_path / "histories").iterdir()) == [], "what went well is not kept"
    assert main([*arguments, "--round", "0"]) == 0
    assert Tally.read(state).sites[name].rounds == {4: 2}, "what is repeated does not count"


def test_what_was_done_on_several_stores_at_once_adds_up() -> None:
    whole, finding = Tally(), Finding(Kind.LOST, "t", "gone")
    whole.add("a", "A 1", 1, {KILLED: 2}, {"acknowledged": 5}, [], 1.0)
    whole.add("b", "B 1", 1, {KILLED: 3}, {"acknowledged": 5}, [], 1.0)
    parts = [whole.part("a"), whole.part("c")]
    for part, site in zip(parts, "ac", strict=True):
        part.add(site, "1", 1, {KILLED: 1}, {"acknowledged": 1}, [finding], 0.5)
        part.failures.append(FailedRound(site=site, seed=1, round=0, faults=[], findings=["gone"], folder=""))
        whole.take(part)
    assert {name: site.rounds for name, site in whole.sites.items()} == {"a": {1: 2}, "b": {1: 1}, "c": {1: 1}}
    assert {name: site.faults[KILLED].struck for name, site in whole.sites.items()} == {"a": 3, "b": 3, "c": 1}
    assert whole.seconds == 3.0
    assert len(whole.failures) == 2
    assert whole.first is not None
    assert whole.last is not None
    assert whole.first <= whole.last


def test_the_report_has_a_row_for_each_fault_of_each_store(tmp_path: Path) -> None:
    tally = Tally()
    found = [Finding(Kind.LOST, "t", "gone"), Finding(Kind.TWICE, "t", "paid")]
    tally.add("redis", "Redis 8.2", 7, {KILLED: 4}, {"acknowledged": 10}, [], 1.0)
    tally.add("redis", "Redis 8.2", 8, {KILLED: 1, "server killed": 2}, {"unknown": 3}, found, 1.0)
    lines = report(tally).splitlines()
    assert "Redis 8.2" in lines[0]
    assert "seeds 7, 8" in lines[0]
    assert "**5 kills of clients and 2 faults of stores and networks** in 2 rounds" in lines[2]
    assert f"| redis | {KILLED} | 5 | 1 | 0 | 0 | 1 |" in lines
    assert "| redis | server killed | 2 | 1 | 0 | 0 | 1 |" in lines
    assert "5 kills and 2 faults" in summary(tally)
    assert "of 10 acknowledged changes none was lost" in summary(tally).replace("\n  ", " ")
    tally.failures.append(
        FailedRound(site="redis", seed=8, round=0, faults=[KILLED], findings=["lost: t"], folder="kept")
    )
    assert "there were 1 findings" in summary(tally).replace("\n  ", " ")
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    write_report(tally, page)
    write_report(tally, page)
    assert page.read_text() == f"before\n\n{BEGIN}\n{report(tally)}{END}\n\nafter\n"
    state = tmp_path / "state.json"
    tally.write(state)
    assert Tally.read(state) == tally
