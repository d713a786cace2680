"""Messages that are sent again: after an answer was lost, by a process that goes on, by several at the same time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.session import RepositorySessionManager
from strands.types.content import Message
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from locus.errors import BackendUnavailableError
from locus.integrations.strands import LocusSessionRepository
from locus.memory.checkpointer import Checkpointer
from locus.memory.store import CheckpointStore
from tests.integrations.strands.models import FakeModel, counting
from tests.integrations.strands.racing import AGENT, SESSION, text_of

ROOT = Path(__file__).resolve().parents[3]
PROCESSES = ("one", "two")
RACES = 30


@pytest.fixture
def sessions(handle: Checkpointer) -> LocusSessionRepository:
    made = LocusSessionRepository(handle)
    begin(made)
    return made


@pytest.fixture
def lose_answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets the next saves be done, and their answers be lost."""
    commit = CheckpointStore.commit
    left = 0

    async def lost(self: CheckpointStore, one: Any) -> Any:
        nonlocal left
        verdict = await commit(self, one)
        if left:
            left -= 1
            raise BackendUnavailableError("the connection was lost before the answer came")
        return verdict

    def lose(count: int) -> None:
        nonlocal left
        left = count

    monkeypatch.setattr(CheckpointStore, "commit", lost)
    return lose


def begin(sessions: LocusSessionRepository) -> None:
    sessions.create_session(Session(SESSION, SessionType.AGENT))
    sessions.create_agent(SESSION, SessionAgent(AGENT, {}, {}))


def said(text: str, number: int, *, at: str = "2026-01-01T00:00:00+00:00") -> SessionMessage:
    content: Message = {"role": "user", "content": [{"text": text}, {"image": _picture(text)}]}
    return SessionMessage(content, number, created_at=at, updated_at=at)


def _picture(text: str) -> Any:
    return {"format": "png", "source": {"bytes": text.encode()}}


def texts(sessions: LocusSessionRepository) -> list[str]:
    return [message.to_message()["content"][0]["text"] for message in sessions.list_messages(SESSION, AGENT)]


def changes(sessions: LocusSessionRepository) -> list[str]:
    return [point.change for point in sessions.history(SESSION, None)]


async def test_a_message_whose_answer_was_lost_is_sent_again(
    sessions: LocusSessionRepository, handle: Checkpointer, lose_answers: Callable[[int], None]
) -> None:
    sessions.create_message(SESSION, AGENT, said("zero", 0))
    for number, writer in enumerate((sessions, LocusSessionRepository(handle)), 1):
        lose_answers(1)
        with pytest.raises(BackendUnavailableError):
            sessions.create_message(SESSION, AGENT, said("first", number))
        writer.create_message(SESSION, AGENT, said("first", number, at="2026-01-01T00:00:09+00:00"))
    kept = sessions.list_messages(SESSION, AGENT)
    assert kept == [said("zero", 0), said("first", 1), said("first", 2)]  # with the times of the first attempt
    assert changes(sessions) == ["message"] * 3 + ["agent", "session"]


@pytest.mark.parametrize("text", ["another", "first "])
async def test_another_message_does_not_pass_for_one_whose_answer_was_lost(
    sessions: LocusSessionRepository, lose_answers: Callable[[int], None], text: str
) -> None:
    lose_answers(1)
    with pytest.raises(BackendUnavailableError):
        sessions.create_message(SESSION, AGENT, said("first", 0))
    with pytest.raises(SessionException, match="exists already, with other content"):
        sessions.create_message(SESSION, AGENT, said(text, 0))
    assert texts(sessions) == ["first"]


async def test_a_message_of_long_ago_is_sent_again(sessions: LocusSessionRepository) -> None:
    for number in range(50):
        sessions.create_message(SESSION, AGENT, said(f"message {number}", number))
    sessions.create_message(SESSION, AGENT, said("message 7", 7, at="later"))
    with pytest.raises(SessionException, match="message 7 of agent 'default' exists already"):
        sessions.create_message(SESSION, AGENT, said("message 8", 7))
    assert texts(sessions) == [f"message {number}" for number in range(50)]


async def test_a_redaction_survives_the_message_that_is_sent_again(sessions: LocusSessionRepository) -> None:
    sessions.create_message(SESSION, AGENT, said("a secret", 0))
    redacted = said("a secret", 0)
    redacted.redact_message = {"role": "user", "content": [{"text": "redacted"}]}
    sessions.update_message(SESSION, AGENT, redacted)
    sessions.create_message(SESSION, AGENT, said("a secret", 0, at="later"))
    sessions.create_message(SESSION, AGENT, redacted)
    assert texts(sessions) == ["redacted"]
    redacted.redact_message = {"role": "user", "content": [{"text": "redacted in another way"}]}
    with pytest.raises(SessionException, match="exists already"):
        sessions.create_message(SESSION, AGENT, redacted)
    assert changes(sessions) == ["redact", "message", "agent", "session"]


async def test_a_message_that_was_taken_back_is_added_again(
    sessions: LocusSessionRepository, handle: Checkpointer
) -> None:
    sessions.create_message(SESSION, AGENT, said("zero", 0))
    before = sessions.history(SESSION, 1)[0].checkpoint_id
    sessions.create_message(SESSION, AGENT, said("one", 1))
    other = LocusSessionRepository(handle)
    other.rewind(SESSION, before)
    sessions.create_message(SESSION, AGENT, said("one", 1))  # the repository remembers that it is there
    assert texts(other) == ["zero", "one"]


async def test_the_same_message_under_another_id_is_another_one(sessions: LocusSessionRepository) -> None:
    """Strands keeps both in its records, counts both, and redacts both."""
    for number in range(2):
        sessions.create_message(SESSION, AGENT, said("again", number))
    assert texts(sessions) == ["again", "again"]


def test_an_agent_whose_answer_was_lost_goes_on(tmp_path: Path, lose_answers: Callable[[int], None]) -> None:
    def clerk(sessions: LocusSessionRepository) -> Agent:
        manager = RepositorySessionManager(SESSION, sessions)
        return Agent(
            model=FakeModel(counting), session_manager=manager, callback_handler=None, load_tools_from_directory=False
        )

    with LocusSessionRepository(f"sqlite:{tmp_path / 'a.db'}") as sessions:
        agent = clerk(sessions)
        agent("Hello")
        lose_answers(1)
        with pytest.raises(BackendUnavailableError):
            agent("Are you there?")
        agent("Are you there?")
        again = clerk(sessions)
        assert again.messages == agent.messages
        # Strands has both questions, and so has the session: it gives each a number of its own.
        assert texts(sessions).count("Are you there?") == 2
        assert str(again("And now?")).strip() == "I see 6 messages."


def test_processes_that_send_the_same_messages_add_them_once(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    with LocusSessionRepository(url) as sessions:
        begin(sessions)
        racers = [_racer(url, name) for name in PROCESSES]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("\n")
            racer.stdin.flush()
        told = [racer.communicate(timeout=100)[0].split() for racer in racers]
        assert [len(one) for one in told] == [RACES] * len(racers)
        kept = texts(sessions)
        assert len(kept) == RACES
        for number, outcomes in enumerate(zip(*told, strict=True)):
            if number % 2:
                winner = PROCESSES[outcomes.index("done")]
                assert sorted(outcomes) == ["done", "refused"]
                assert kept[number] == f"{text_of(number)} of {winner}"
            else:
                assert outcomes == ("done", "done")
                assert kept[number] == text_of(number)
        assert changes(sessions).count("message") == RACES


def _racer(url: str, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.integrations.strands.racing", url, str(RACES), name]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
