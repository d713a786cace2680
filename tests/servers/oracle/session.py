"""One client's session: what it asks, and what it is told."""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass

import psycopg

from tests.servers.oracle import packets
from tests.servers.oracle.answers import Answer
from tests.servers.oracle.calls import Call, Execute, Fetch
from tests.servers.oracle.errors import OracleError, translated_error
from tests.servers.oracle.failures import DatabaseError, DatabaseLostError
from tests.servers.oracle.greeting import connected, facts, logged_on
from tests.servers.oracle.messages import Messages
from tests.servers.oracle.packets import Channel, ClientGoneError
from tests.servers.oracle.requests import read_call, read_fast_logon
from tests.servers.oracle.spares import Spares
from tests.servers.oracle.work import Worker

SESSION_KILLED = 28


@dataclass(frozen=True)
class Settings:
    postgresql: str
    service: str
    admin_password: str


class Session:
    def __init__(self, channel: Channel, settings: Settings, spares: Spares, number: int) -> None:
        self._channel = channel
        self._settings = settings
        self._spares = spares
        self._number = number
        self._messages = Messages(channel)
        self._broken = False
        self._reset = asyncio.Event()
        self._worker: Worker | None = None
        self._is_working = False
        channel.on_marker = self._marked

    async def serve(self) -> None:
        """To its end. The client's connection is closed last, when all is done or undone."""
        try:
            if await connected(self._channel, self._settings.service):
                await self._log_on()
        except ClientGoneError:
            pass
        except (DatabaseLostError, psycopg.OperationalError):
            self._channel.abort()
        except Exception:  # noqa: BLE001
            traceback.print_exc()
            self._channel.abort()
        finally:
            self._channel.close()

    async def _log_on(self) -> None:
        first = await self._messages.request(read_fast_logon)
        try:
            database = await self._spares.take()
        except psycopg.OperationalError:
            self._tell(OracleError(1034, "The Oracle instance is not available for use."))
            return
        try:
            found = await logged_on(self._messages, database, first)
            if found is None:
                return
            second, challenge, token = found
            self._worker = Worker(database)
            await self._worker.begin(first.user.upper(), self._number, second.pairs.get("AUTH_ALTER_SESSION", ""))
            answer = Answer(token)
            answer.pairs(facts(challenge.proof(), self._settings.service, database.pid, self._number))
            answer.status(False)
            self._messages.send(answer)
            await self._work(self._worker)
        finally:
            await self._spares.give(database)

    async def _work(self, worker: Worker) -> None:
        alive = True
        while alive:
            call = await self._messages.request(lambda reader: read_call(reader, worker.cursors))
            answer = Answer(call.token)
            self._is_working = True
            try:
                alive = await self._do(worker, call, answer)
            finally:
                self._is_working = False
            if self._broken:
                await self._after_break()
            else:
                self._messages.send(answer)

    async def _do(self, worker: Worker, call: Call, answer: Answer) -> bool:
        try:
            return await worker.do(call, answer)
        except OracleError as error:
            failure = error
        except DatabaseError as error:
            failure = translated_error(error, "", worker.user)
        except DatabaseLostError as error:
            if not error.killed:
                raise
            failure = OracleError(SESSION_KILLED, "Your session has been terminated.")
        answer.error(failure, worker.database.in_transaction)
        _log(worker, call, failure)
        return failure.code != SESSION_KILLED

    def _marked(self, kind: int) -> None:
        """The client wants to stop what is running, or has seen that it stopped."""
        if kind == packets.RESET:
            self._reset.set()
            return
        self._broken = True
        if self._is_working and self._worker is not None:
            self._worker.database.cancel()
        else:
            self._breaking = asyncio.get_running_loop().create_task(self._after_break())

    async def _after_break(self) -> None:
        """Both sides agree on it, and the client is told that the call has ended."""
        self._channel.send_marker(packets.BREAK)
        await self._reset.wait()
        self._reset.clear()
        self._broken = False
        self._channel.send_marker(packets.RESET)
        self._tell(OracleError(1013, "user requested cancel of current operation"))

    def _tell(self, error: OracleError) -> None:
        answer = Answer(0)
        in_transaction = self._worker is not None and self._worker.database.in_transaction
        answer.error(error, in_transaction)
        self._messages.send(answer)


def _log(worker: Worker, call: Call, failure: OracleError) -> None:
    """For whoever reads the log. No values: they are the client's."""
    text = type(call.body).__name__
    if isinstance(call.body, Execute | Fetch) and call.body.cursor in worker.cursors:
        text = worker.cursors[call.body.cursor].statement.text
    elif isinstance(call.body, Execute) and call.body.text:
        text = call.body.text
    print(f"{failure.text}\n  {' '.join(text.split())[:300]}", flush=True)
