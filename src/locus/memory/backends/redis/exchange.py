"""Sends commands to a Redis server in one write, and reads their answers.

A save is one command of some forty words. The driver encodes and checks each word by itself, and passes a command
through its retries and its metrics, which takes longer than everything else that a save does. So commands are encoded
here, and sent through a connection of the driver's pool: the pool opens connections and logs in, and a connection that
fails, or whose answer nobody waited for, is closed by the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis
from redis.asyncio import Redis
from redis.exceptions import ResponseError

Command = Sequence[Any]
"""The words of a command: bytes, text and numbers."""

# Older versions ask for what the connection is for, and newer ones warn if they are told.
_PURPOSE = ("EVALSHA",) if redis.VERSION < (5, 3) else ()


def encoded(words: Command) -> bytes:
    """A command as the server reads it: the number of its words, and each with its length."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        if isinstance(word, str):
            data = word.encode()
        elif isinstance(word, bytes):
            data = word
        elif type(word) is int:
            data = b"%d" % word
        else:  # a text of None, or of a truth value, would be taken for an id
            raise TypeError(f"no word of a command: {type(word).__name__}")
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


async def exchange(client: Any, commands: Sequence[Command]) -> list[Any]:
    """Send commands in one write, and return the answer of each, or its error; in a cluster, each to its node."""
    if type(client) is not Redis or client.single_connection_client:
        return await _through_pipeline(client, commands)
    pool: Any = client.connection_pool
    connection = await pool.get_connection(*_PURPOSE)
    try:
        await connection.send_packed_command(b"".join(map(encoded, commands)))
        return [await _answer(connection) for _ in commands]
    finally:
        await pool.release(connection)


async def _answer(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


async def _through_pipeline(client: Any, commands: Sequence[Command]) -> list[Any]:
    async with client.pipeline(transaction=False) as pipe:
        for words in commands:
            pipe.execute_command(*words)
        answers: list[Any] = await pipe.execute(raise_on_error=False)
    return answers
