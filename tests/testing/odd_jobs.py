"""Jobs that go wrong, for the tests of the worker processes."""

from __future__ import annotations

import os
import sys
import time

from locus.testing.processes.workers import Channel, JSONMessage


async def raise_an_error(talk: Channel) -> None:
    sys.stderr.write("a word before the end\n")
    raise RuntimeError("it went wrong")


async def die_silently(talk: Channel) -> None:
    sys.stderr.write("a word before the end\n")
    os._exit(7)


async def hang(talk: Channel) -> None:
    talk.send(pid=os.getpid())
    while True:
        time.sleep(1)  # noqa: ASYNC251 (nothing else is to happen)


async def say_much(talk: Channel, lines: int) -> int:
    for number in range(lines):
        talk.send(number=number, text="x" * 200)
    return lines


async def echo(talk: Channel) -> list[JSONMessage]:
    heard = []
    while (message := talk.receive()) is not None and not message.get("stop"):
        heard.append(message)
    return heard
