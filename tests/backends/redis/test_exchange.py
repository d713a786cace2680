"""Commands that are encoded here and sent through connections of the driver's pool."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.connection import Connection
from redis.exceptions import ResponseError

from locus.memory.backends.redis.exchange import encoded, exchange
from tests.backends.redis.stores import RedisStore
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.redis


@pytest.mark.parametrize(
    "words",
    [("PING",), ("SET", b"\x00\r\n", "ü\n😀"), ("EVALSHA", "a" * 40, 0, "", b"", 12, -1, "x" * 70_000)],
    ids=["one word", "bytes and text", "numbers, nothing and much"],
)
def test_a_command_is_encoded_as_the_driver_does(words: tuple[Any, ...]) -> None:
    assert encoded(words) == b"".join(Connection(protocol=2).pack_command(*words))


@pytest.mark.parametrize("word", [None, True, 1.5, ["a"]])
def test_what_is_no_word_is_refused_and_never_sent_as_its_text(word: object) -> None:
    with pytest.raises(TypeError, match=type(word).__name__):
        encoded(("GET", word))


@pytest.mark.parametrize("single", [False, True], ids=["of a pool", "single"])
async def test_each_command_has_its_answer_or_its_error(
    single: bool, redis_server: RedisServer, store: RedisStore
) -> None:
    key = f"{store.prefix}x"
    async with Redis(port=redis_server.port, protocol=2, single_connection_client=single) as client:
        ok, error, value = await exchange(client, [("SET", key, "ü"), ("INCR", key), ("GET", key)])
    assert ok in (True, b"OK")
    assert isinstance(error, ResponseError)
    assert value == "ü".encode()


async def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next(
    redis_server: RedisServer, store: RedisStore
) -> None:
    begun, never = f"{store.prefix}begun", f"{store.prefix}never"
    # Else the driver gives up an answer after some seconds by itself, before it is cancelled here.
    async with Redis(port=redis_server.port, protocol=2, socket_timeout=None, socket_connect_timeout=None) as client:
        waiting = asyncio.create_task(exchange(client, [("RPUSH", begun, "1"), ("BLPOP", never, 0)]))
        assert await exchange(client, [("BLPOP", begun, 0)]) == [[begun.encode(), b"1"]]
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await exchange(client, [("ECHO", "a"), ("ECHO", "b")]) == [b"a", b"b"]
