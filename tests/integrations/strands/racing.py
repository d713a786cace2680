"""Sends the same messages as other processes do at the same time.

`python -m tests.integrations.strands.racing URL COUNT NAME` says that it is ready, waits for a line, and says
what has become of each message: `done`, or `refused`.
"""

from __future__ import annotations

import sys

from strands.types.exceptions import SessionException
from strands.types.session import SessionMessage

from locus.integrations.strands import LocusSessionRepository

SESSION = "alice"
AGENT = "default"


def text_of(number: int) -> str:
    return f"message {number}"


def send(sessions: LocusSessionRepository, text: str, number: int) -> str:
    message = SessionMessage({"role": "user", "content": [{"text": text}]}, number)
    try:
        sessions.create_message(SESSION, AGENT, message)
    except SessionException:
        return "refused"
    return "done"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def race(url: str, count: int, name: str) -> None:
    """The messages with even numbers are the same in all processes, and those with odd numbers are each one's own."""
    with LocusSessionRepository(url) as sessions:
        sessions.read_session(SESSION)
        say("ready")
        sys.stdin.readline()
        for number in range(count):
            own = f" of {name}" if number % 2 else ""
            say(send(sessions, text_of(number) + own, number))


if __name__ == "__main__":
    race(sys.argv[1], int(sys.argv[2]), sys.argv[3])
