"""Jobs that fork while they have a handle open. The children use the handle by blocking calls."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.testing.processes.jobs import Acknowledged, known_digest, opened
from locus.testing.processes.workers import Channel

PATIENCE = 60
"""The seconds after which a forked child that hangs is ended."""


class Child:
    """A forked process that does one of `works` each time it is told to."""

    def __init__(self, *works: Callable[[], Acknowledged]) -> None:
        ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            faulthandler.register(signal.SIGALRM, chain=True)
            signal.alarm(PATIENCE)
            _serve(works, Channel(theirs))
        theirs.close()
        self._channel = Channel(ours)

    def next(self) -> Acknowledged:
        """Let the child do its next work, and return the result."""
        self._channel.send()
        answer = self._channel.receive()
        assert answer, f"the forked child failed, or hung: status {os.waitpid(self._pid, 0)[1]}"
        thread_id, checkpoint_id, state = answer["done"]
        return thread_id, checkpoint_id, state

    def end(self) -> None:
        self._channel.close()
        status = os.waitpid(self._pid, 0)[1]
        assert status == 0, f"the forked child ended with status {status}"


def _serve(works: tuple[Callable[[], Acknowledged], ...], channel: Channel) -> NoReturn:
    code = 1
    try:
        for work in works:
            channel.receive()
            channel.send(done=work())
        channel.receive()
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def _save(checkpointer: Checkpointer, thread_id: str, text: str) -> Acknowledged:
    state = AgentState().with_message(Message.user(text))
    return thread_id, checkpointer.sync.save(state, thread_id), known_digest(state)


async def use_across_a_fork(talk: Channel, url: str, thread_id: str) -> list[Acknowledged]:
    """Save through one handle before a fork, and after it in both processes, also after the parent has closed it."""
    checkpointer = opened(url)
    saved = [_save(checkpointer, thread_id, "before the fork")]
    child = Child(
        lambda: _save(checkpointer, thread_id, "the child, while the parent's handle is open"),
        lambda: _save(checkpointer, thread_id, "the child, after the parent has closed its handle"),
    )
    saved.append(child.next())
    saved.append(_save(checkpointer, thread_id, "the parent, after the fork"))
    await checkpointer.close()
    saved.append(child.next())
    child.end()
    return saved


async def fork_while_writing(talk: Channel, url: str, forks: int) -> dict[str, int]:
    """Fork while another OS thread writes without a pause. Neither process may hang. Returns each thread's last number.

    It uses pending writes, because the library that validates states has locks of its own, which such a fork may
    leave locked in the child.
    """
    checkpointer = opened(url)
    written = {"busy": 0}
    stop = threading.Event()

    def put(thread_id: str, number: int) -> Acknowledged:
        checkpointer.sync.put_writes(thread_id, "checkpoint", "task", [("number", number)])
        written[thread_id] = number
        return thread_id, "checkpoint", str(number)

    def write_without_a_pause() -> None:
        while not stop.is_set():
            put("busy", written["busy"] + 1)

    writer = threading.Thread(target=write_without_a_pause)
    writer.start()
    for number in range(1, forks + 1):
        child = Child(partial(put, f"child {number}", number))
        before = written["busy"]
        while written["busy"] < before + 3:
            assert writer.is_alive(), "the parent cannot write any more"
            stop.wait(0.001)
        thread_id, _, last = child.next()
        written[thread_id] = int(last)
        child.end()
    stop.set()
    writer.join()
    return written
