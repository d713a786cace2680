"""The worker processes of the suite: what they say arrives, what goes wrong is shown, and none is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from locus.testing.processes.workers import Crew, Worker, WorkerFailed
from tests.testing import odd_jobs


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    with Crew(f"file:{tmp_path}") as crew:
        yield crew


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_job_says_all_it_has_to_say_and_returns_a_result(crew: Crew) -> None:
    worker = crew.start(odd_jobs.say_much, lines=3_000)
    assert [message["number"] for message in worker.hear_out()] == list(range(3_000))
    assert worker.finish() == 3_000
    assert worker.status == 0


def test_jobs_hear_what_they_are_told(crew: Crew) -> None:
    worker = crew.start(odd_jobs.echo)
    worker.tell(text="é 😀 \n\0", number=10**30)
    worker.tell(stop=True)
    assert worker.finish() == [{"text": "é 😀 \n\0", "number": 10**30}]


def test_an_error_is_shown_with_its_traceback_and_what_was_printed(crew: Crew) -> None:
    worker = crew.start(odd_jobs.raise_an_error)
    with pytest.raises(WorkerFailed, match="raise_an_error") as failure:
        worker.finish()
    assert "RuntimeError: it went wrong" in str(failure.value)
    assert "odd_jobs.py" in str(failure.value)
    assert "a word before the end" in str(failure.value)
    assert worker.status == 1


@pytest.mark.parametrize("ask", [Worker.finish, Worker.hear])
def test_a_silent_death_is_a_failure_that_shows_what_was_printed(crew: Crew, ask: object) -> None:
    worker = crew.start(odd_jobs.die_silently)
    with pytest.raises(WorkerFailed, match="status 7") as failure:
        worker.finish() if ask is Worker.finish else worker.hear()
    assert "a word before the end" in str(failure.value)


def test_a_job_that_hangs_is_ended(crew: Crew) -> None:
    worker = crew.start(odd_jobs.hang)
    pid = worker.hear()["pid"]
    with pytest.raises(WorkerFailed, match="said nothing"):
        worker.finish(timeout=0.1)
    assert worker.killed
    assert not _is_running(pid)


def test_whatever_a_test_leaves_running_is_killed(tmp_path: Path) -> None:
    with Crew(f"file:{tmp_path}") as crew:
        pids = [crew.start(odd_jobs.hang).hear()["pid"] for _ in range(3)]
        assert all(map(_is_running, pids))
    assert not any(map(_is_running, pids))


def test_a_server_that_cannot_open_such_a_store_says_why(tmp_path: Path) -> None:
    with pytest.raises(WorkerFailed, match="unknown checkpointer 'nonsense'"):
        Crew("nonsense:")


def test_the_server_and_its_children_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    """Also when that process is killed, and cannot tidy up."""
    script = (
        "import os, signal\n"
        "from locus.testing.processes.workers import Crew, shared_server\n"
        "from tests.testing import odd_jobs\n"
        f"crew = Crew({f'file:{tmp_path}'!r})\n"
        "print(shared_server().pid, crew.start(odd_jobs.hang).hear()['pid'], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    pids = [int(pid) for pid in ran.stdout.split()]
    assert len(pids) == 2, ran.stderr
    end = time.monotonic() + 20
    while any(map(_is_running, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(_is_running, pids))
