"""SIGKILL at random instants of an agent's run: what was done stays done, once, and every run comes to its end."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from locus.agent.config import UnknownOutcome
from locus.agent.recovery import unknown
from locus.memory.backends import sqlite_checkpointer
from locus.testing.data import SOAK
from locus.testing.processes.workers import PATIENCE, Crew, JSONMessage, Worker
from tests.agent.crash_jobs import REPEATABLE, as_told, work

UNKNOWN = unknown("taken_over")
"""No process waits until the lease of the one before it is over."""
KILLS = 600 if SOAK else 50
POLICIES: tuple[UnknownOutcome, ...] = ("skip", "ask", "retry")
MOST_KILLS = 5
"""How often one run is killed, at most, before it is let go to its end."""
MOMENT = 0.004
"""Seconds, at most, between the last thing that a process says and its end."""


@dataclass
class Attempt:
    """One process of a run: what it said, and whether it was killed."""

    said: list[JSONMessage] = field(default_factory=list)
    killed: bool = False
    result: dict[str, Any] | None = None

    def open(self, kind: str) -> list[str]:
        """What it had begun, and not ended, when it ended itself."""
        counts: Counter[str] = Counter()
        for message in self.said:
            if message.get("begin") == kind:
                counts[message["of"]] += 1
            elif message.get("end") == kind:
                counts[message["of"]] -= 1
        return [name for name, count in counts.items() if count > 0]

    @property
    def completed(self) -> list[str]:
        return [message["complete"] for message in self.said if message.get("recovered") is False]

    @property
    def started(self) -> set[str]:
        """The calls whose beginning it recorded, or was about to."""
        return {message["of"] for message in self.said if message.get("started")}


@dataclass
class Trial:
    """One run, with as many processes as it took."""

    thread_id: str
    path: Path
    policy: UnknownOutcome
    decision: str | None
    attempts: list[Attempt] = field(default_factory=list)

    def lines(self) -> list[tuple[str, int]]:
        """The effects: which call, and in which attempt."""
        text = self.path.read_text() if self.path.exists() else ""
        assert text.endswith("\n") or not text
        return [(call_id, int(attempt)) for call_id, attempt in (line.split() for line in text.splitlines())]

    def in_flight(self) -> set[str]:
        """The calls that must not be repeated and were under way when a process was killed."""
        found: set[str] = set()
        for attempt in self.attempts:
            if attempt.killed:
                found |= attempt.started - set(attempt.completed)
        return found - {call_id for attempt in self.attempts for call_id in attempt.completed}


@dataclass
class Tally:
    """Where the kills fell."""

    kills: int = 0
    in_save: int = 0
    in_record: int = 0
    in_tool: int = 0
    elsewhere: int = 0
    in_doubt: int = 0

    def note(self, attempt: Attempt) -> None:
        self.kills += 1
        self.in_save += bool(attempt.open("save"))
        self.in_record += bool(attempt.open("record"))
        self.in_tool += bool(attempt.open("tool"))
        self.elsewhere += not (attempt.open("save") or attempt.open("record") or attempt.open("tool"))

    def __str__(self) -> str:
        return (
            f"{self.kills} kills: {self.in_save} inside a save, {self.in_record} inside a record, {self.in_tool} "
            f"inside a tool, {self.elsewhere} elsewhere; {self.in_doubt} calls had an unknown outcome"
        )


class Campaign:
    """Runs that are killed, on one SQLite file."""

    def __init__(self, crew: Crew, folder: Path, seed: int) -> None:
        self.crew = crew
        self.folder = folder
        self.random = random.Random(seed)
        self.tally = Tally()
        self.trials = 0
        self.answer = ""
        self.conversation: list[list[Any]] = []
        self.sayings = 0

    def start(self, trial: Trial) -> Worker:
        # A process is given a decision only if the one before it ended with a question.
        asked = trial.attempts and trial.attempts[-1].result is not None
        return self.crew.start(
            work,
            url=self.crew.url,
            thread_id=trial.thread_id,
            path=str(trial.path),
            attempt=len(trial.attempts),
            policy=trial.policy,
            decision=trial.decision if asked else None,
        )

    def undisturbed(self) -> None:
        """The run that nobody kills: how it ends, and how much it says."""
        trial = Trial("undisturbed", self.folder / "undisturbed", "skip", None)
        worker = self.start(trial)
        attempt = Attempt(worker.hear_out())
        self.sayings = len(attempt.said)
        result = worker.result
        worker.close()
        every = [f"c{number}" for number in range(1, 9)]
        assert sorted(call_id for call_id, _ in trial.lines()) == every
        assert sorted(attempt.completed) == every
        assert sorted(attempt.started) == [call_id for call_id in every if call_id not in REPEATABLE]
        assert [attempt.open(kind) for kind in ("save", "record", "tool")] == [[], [], []]
        self.answer, self.conversation = result["answer"], result["messages"]

    def new_trial(self) -> Trial:
        self.trials += 1
        name = f"run {self.trials}"
        policy = POLICIES[self.trials % len(POLICIES)]
        decision = self.random.choice(["skip", "retry"]) if policy == "ask" else None
        return Trial(name, self.folder / name, policy, decision)

    def attempt(self, trial: Trial, *, kill: bool) -> Attempt:
        worker = self.start(trial)
        attempt = Attempt()
        trial.attempts.append(attempt)
        if kill:
            self.kill_somewhere(worker, trial)
        attempt.said += worker.hear_out()
        attempt.killed, attempt.result = worker.killed, worker.result
        worker.close()
        if attempt.killed:
            attempt.result = None
            self.tally.note(attempt)
        else:
            assert worker.status == 0
        return attempt

    def kill_somewhere(self, worker: Worker, trial: Trial) -> None:
        """Let it say some of the things that a whole run says, and end it a moment later, unless it is over by then.

        By what it says and not by a clock, so that a busy machine spreads the kills over the run as well.
        """
        *earlier, attempt = trial.attempts
        left = self.sayings - sum(len(before.said) for before in earlier)
        for _ in range(self.random.randrange(max(4, left))):
            message = next(worker.hear_until(time.monotonic() + PATIENCE), None)
            if message is None:
                return
            attempt.said.append(message)
        attempt.said += worker.hear_until(time.monotonic() + self.random.uniform(0, MOMENT))
        attempt.said += worker.kill()

    def run(self) -> Trial:
        """One run: killed a few times, and then let go; questions are answered."""
        trial = self.new_trial()
        kills = self.random.randint(1, MOST_KILLS)
        for _ in range(20):
            attempt = self.attempt(trial, kill=kills > 0)
            kills -= attempt.killed
            if attempt.result is not None and not attempt.result["asked"]:
                return trial
        raise AssertionError(f"{trial.thread_id} does not come to its end: {trial.attempts}")


def check_effects(trial: Trial) -> None:
    """Every call that was reported as completed ran once, and none ran after that."""
    lines = trial.lines()
    counts = Counter(call_id for call_id, _ in lines)
    reported: dict[str, int] = {}
    for number, attempt in enumerate(trial.attempts):
        assert len(set(attempt.completed)) == len(attempt.completed)
        for call_id in attempt.completed:
            assert call_id not in reported, f"{call_id} was reported twice as completed"
            reported[call_id] = number
    for call_id, number in reported.items():
        of_this = [attempt for known, attempt in lines if known == call_id]
        assert of_this.count(number) == 1, f"{call_id} was reported, and ran {of_this.count(number)} times"
        assert max(of_this) == number, f"{call_id} ran again after it was reported"
        if call_id not in REPEATABLE and trial.policy == "skip":
            assert counts[call_id] == 1, f"{call_id} must not be repeated, and ran {counts[call_id]} times"
    for call_id, count in counts.items():
        lost = sum(attempt.killed and call_id not in attempt.completed for attempt in trial.attempts)
        assert count <= 1 + lost, f"{call_id} ran {count} times"
        may_repeat = call_id in REPEATABLE or "retry" in (trial.policy, trial.decision)
        assert count == 1 or may_repeat, f"{call_id} was repeated silently: {lines}"


def check_conversation(trial: Trial, campaign: Campaign) -> int:
    """Nothing is lost or doubled; what was in doubt was dealt with as the policy says. Returns how much that was."""
    result = trial.attempts[-1].result
    assert result is not None
    unknown = {call_id for _, text, call_id, _ in result["messages"] if text == UNKNOWN}
    assert unknown <= trial.in_flight(), "a call that was not under way is said to be in doubt"
    if "retry" in (trial.policy, trial.decision):
        assert unknown == set(), "what was to be repeated was not"
    expected = [
        [who, UNKNOWN if call_id in unknown else text, call_id, ids]
        for who, text, call_id, ids in campaign.conversation
    ]
    # The answer repeats the results, so it says the same of them.
    expected[-1][1] = "; ".join(
        f"{told.partition('=')[0]}={UNKNOWN}" if f"c{number}" in unknown else told
        for number, told in enumerate(campaign.answer.split("; "), start=1)
    )
    assert result["messages"] == expected
    assert result["answer"] == expected[-1][1]
    if not unknown:
        assert result["answer"] == campaign.answer
    return len(unknown)


async def check_history(trial: Trial, store_path: Path) -> None:
    """What is stored is what the last process returned; nothing that was accepted is missing from the history."""
    async with sqlite_checkpointer(store_path) as store:
        entries = await store.history(trial.thread_id, limit=None)
        state = await store.load(trial.thread_id)
        assert state is not None
        result = trial.attempts[-1].result
        assert result is not None
        assert as_told(state.messages) == result["messages"]
        assert [entry.parent_id for entry in entries] == [*(entry.checkpoint_id for entry in entries[1:]), None]
        saves = sum(message.get("end") == "save" for attempt in trial.attempts for message in attempt.said)
        begun = sum(message.get("begin") == "save" for attempt in trial.attempts for message in attempt.said)
        assert saves <= len(entries) <= begun, "a save that was acknowledged is missing, or one came from nowhere"
        first = await store.load(trial.thread_id, entries[-1].checkpoint_id)
        assert first is not None
        assert [message.text for message in first.messages] == ["Do it all."]


@pytest.mark.crash
@pytest.mark.timeout(0 if SOAK else 300)
async def test_an_agent_killed_at_any_instant(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    path = tmp_path / "agents.db"
    with Crew(f"sqlite:{path}", ["tests.agent.crash_jobs"]) as crew:
        seed = random.SystemRandom().randrange(10**6) if SOAK else 20_250_611
        campaign = Campaign(crew, tmp_path, seed)
        campaign.undisturbed()
        while campaign.tally.kills < KILLS:
            trial = campaign.run()
            check_effects(trial)
            campaign.tally.in_doubt += check_conversation(trial, campaign)
            await check_history(trial, path)
    tally = campaign.tally
    record_property("crash", f"{tally}, in {campaign.trials} runs, seed {seed}")
    assert tally.in_save >= KILLS // 20, f"too few kills fell inside a save: {tally}"
    assert tally.in_record >= KILLS // 50, f"too few kills fell inside a record: {tally}"
    assert tally.in_tool >= KILLS // 10, f"too few kills fell inside a tool: {tally}"
    assert tally.in_doubt > 0, f"no call was ever in doubt: {tally}"
