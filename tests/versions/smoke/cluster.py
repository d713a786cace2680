"""A Redis Cluster that cannot be reached for long, and then can: `python -m tests.versions.smoke.cluster PORT`."""

from __future__ import annotations

import asyncio
import sys
from contextlib import closing, suppress
from socket import create_server

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.backends import redis_checkpointer

ATTEMPTS = 50
"""More than there are connections."""


async def check(port: int) -> None:
    """Where nobody listens at first, there is a way to one of the nodes later."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError):
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    with closing(create_server(("127.0.0.1", 0))) as taken:
        entrance = taken.getsockname()[1]
    state = AgentState().with_message(Message.user("hi"))
    async with redis_checkpointer(f"redis://127.0.0.1:{entrance}", cluster=True, retries=0) as checkpointer:
        for _ in range(ATTEMPTS):
            try:
                await checkpointer.load("t")
                raise AssertionError("a cluster answered that is not there")
            except BackendUnavailableError:
                pass
        async with await asyncio.start_server(forward, "127.0.0.1", entrance):
            for _ in range(2):
                with suppress(BackendUnavailableError):
                    await checkpointer.save(state, "t")
            assert await checkpointer.load("t") == state
            await checkpointer.delete("t")
            await checkpointer.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with closing(writer):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


if __name__ == "__main__":
    asyncio.run(check(int(sys.argv[1])))
