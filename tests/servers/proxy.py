"""A TCP proxy that misbehaves when it is told to: it refuses, cuts, delays, stalls, and loses answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import NoReturn, Self, TypeVar

from tests.servers.ports import free_port

T = TypeVar("T")

CHUNK = 65_536
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time to linger: closing sends RST, not FIN."""


class Proxy:
    """Listens on `port` and forwards to `target_port`, in a thread of its own. Every method works at once.

    With `tls` it speaks TLS to its clients, and not to the server.
    """

    def __init__(self, target_port: int, target_host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.port = free_port()
        self.target = (target_host, target_port)
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._pipes: set[_Connection] = set()
        self._seconds = 0.0
        self._flowing = asyncio.Event()
        self._holding = threading.Event()
        self._budgets: dict[str, int | None] = {"to_server": None, "from_server": None}
        self._spent = threading.Event()
        self._drops = _Drops()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def start(self) -> None:
        self._thread.start()
        self.accept()

    def stop(self) -> None:
        self.refuse()
        asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def accept(self) -> None:
        """Behave as if the proxy were not there: the end of every misbehaviour."""
        self._seconds = 0.0
        self._budgets.update(to_server=None, from_server=None)
        self._drops = _Drops()
        self._now(self._flowing.set)
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def refuse(self) -> None:
        """Refuse new connections; live ones go on."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()

    def cut(self) -> int:
        """Reset all live connections, and return how many these were. New ones are accepted."""
        return self._now(self._cut)

    def cut_after(self, to_server: int | None = None, from_server: int | None = None) -> None:
        """Reset all live connections when so many more bytes have passed in one direction; those still pass."""
        self._spent.clear()
        self._budgets.update(to_server=to_server, from_server=from_server)

    def wait_until_it_cuts(self, seconds: float = 30.0) -> bool:
        """Until the bytes of `cut_after` have passed; false if they have not in so many seconds."""
        return self._spent.wait(seconds)

    def drop_answers(self, count: int = 1, to: Sequence[bytes] = (b"",)) -> None:
        """Pass requests on, but not the answers to the next few: their connections are reset instead.

        `to` limits it to requests that contain one of these texts.
        """
        self._drops = _Drops(count, tuple(to))

    def wait_for_dropped_answers(self, seconds: float = 30.0) -> int:
        """Until all the answers have been dropped that `drop_answers` asked for, or the time is over: how many."""
        drops = self._drops
        drops.done.wait(seconds)
        return drops.dropped

    def delay(self, seconds: float) -> None:
        """Hold back every piece of data for so long, in both directions."""
        self._seconds = seconds

    def stall(self) -> None:
        """Accept connections and data, and pass nothing on until `accept`."""
        self._holding.clear()
        self._now(self._flowing.clear)

    def wait_until_it_holds(self, seconds: float = 30.0) -> None:
        """Until something has arrived that is not passed on, because of `stall`."""
        if not self._holding.wait(seconds):
            raise TimeoutError(f"nothing has arrived within {seconds:g} seconds")

    def wait_for_the_dead(self, seconds: float = 30.0) -> None:
        """Until the server has ended the connections that a client has: it has done what it was sent on them."""
        time.sleep(0.02)  # what a client that was just killed had sent is on its way to here
        end = time.monotonic() + seconds
        while dead := self._now(lambda: sum(pipe.client_ended for pipe in self._pipes)):
            if time.monotonic() > end:
                raise TimeoutError(f"{dead} connections of ended clients are still open after {seconds:g} seconds")
            time.sleep(0.002)

    def _now(self, action: Callable[[], T]) -> T:
        """Do something in the proxy's thread, and wait until it is done."""

        async def do() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result()

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)

    async def _close(self) -> None:
        if self._server is not None:
            for listener in self._server.sockets:
                # A forked child may have the same socket, and closing ours would not close it.
                listener.shutdown(socket.SHUT_RDWR)
            self._server.close()
            self._server = None

    async def _finish(self) -> None:
        self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _cut(self) -> int:
        live = list(self._pipes)
        for pipe in live:
            pipe.reset()
        return len(live)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(*self.target)
        except OSError:
            _reset(writer)
            return
        pipe = _Connection(writer, there[1])
        self._pipes.add(pipe)
        try:
            await asyncio.gather(self._upwards(pipe, reader, there[1]), self._downwards(pipe, there[0], writer))
        except (OSError, EOFError):
            pipe.reset()
        finally:
            self._pipes.discard(pipe)
            writer.close()
            there[1].close()

    async def _upwards(self, pipe: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._forward("to_server", reader, writer, lambda data: self._drops.note(pipe, data))
        pipe.client_ended = True

    async def _downwards(self, pipe: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._forward("from_server", reader, writer, lambda _: self._drops.drop(pipe))

    async def _forward(
        self,
        direction: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        is_lost: Callable[[bytes], bool],
    ) -> None:
        while data := await reader.read(CHUNK):
            if is_lost(data):
                continue
            if not self._flowing.is_set():
                self._holding.set()
                await self._flowing.wait()
            if self._seconds:
                await asyncio.sleep(self._seconds)
            left = self._budgets[direction]
            if left is None:
                writer.write(data)
                await writer.drain()
            else:
                await self._spend(direction, left, data, writer)
        if writer.can_write_eof() and not writer.is_closing():
            writer.write_eof()

    async def _spend(self, direction: str, left: int, data: bytes, writer: asyncio.StreamWriter) -> None:
        self._budgets[direction] = max(0, left - len(data))
        writer.write(data[:left])
        await writer.drain()
        if len(data) >= left:
            self._budgets[direction] = None
            self._cut()
            self._spent.set()


class NoProxy(Proxy):
    """In the place of one, for a test that never makes it misbehave: passing on each byte would take half its time."""

    def __init__(self, target_port: int) -> None:
        self.port = target_port
        self.target = ("127.0.0.1", target_port)

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def accept(self) -> None:
        pass

    def _none(self, *_arguments: object, **_named: object) -> NoReturn:
        raise AssertionError("there is no proxy: tests.backends.proxied says which tests have one")

    refuse = cut = cut_after = delay = stall = drop_answers = _none
    wait_until_it_holds = wait_until_it_cuts = wait_for_dropped_answers = wait_for_the_dead = _none


class _Connection:
    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._client, self._server = client, server
        self.client_ended = False
        self.answer_is_due = False
        self.loses_answers = False

    def reset(self) -> None:
        self.reset_client()
        _reset(self._server)

    def reset_client(self) -> None:
        """The server finds a polite end, once it has done what it was sent."""
        _reset(self._client)


class _Drops:
    """Answers that are to be lost, and how many have been."""

    def __init__(self, count: int = 0, to: tuple[bytes, ...] = ()) -> None:
        self._left = count
        self._to = to
        self.dropped = 0
        self.done = threading.Event()

    def note(self, connection: _Connection, request: bytes) -> bool:
        """A request passes in any case; its answer may not."""
        if self._left and any(text in request for text in self._to):
            connection.answer_is_due = True
        return False

    def drop(self, connection: _Connection) -> bool:
        """Whether an answer of this connection is lost. Once one is, so is the rest of it."""
        if connection.answer_is_due and self._left:
            self._left -= 1
            self.dropped += 1
            connection.loses_answers = True
            connection.reset_client()
            if not self._left:
                self.done.set()
        connection.answer_is_due = False
        return connection.loses_answers


def _reset(writer: asyncio.StreamWriter) -> None:
    channel = writer.get_extra_info("socket")
    if channel is not None and channel.fileno() != -1:  # TLS forgets its socket when it has ended
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()
