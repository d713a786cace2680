"""python -m tests.servers.oracle.listen PORT TLS-PORT SERVICE POSTGRESQL-URL FOLDER: the listener, until it is ended.

On the second port it speaks TLS, with the certificates in the folder, and lets in who has a wallet.

The password of the user ADMIN is in the environment, as LOCUS_ORACLE_ADMIN.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from pathlib import Path

import psycopg
import uvloop

from tests.servers.oracle.packets import Channel
from tests.servers.oracle.session import Session, Settings
from tests.servers.oracle.spares import Spares
from tests.servers.oracle.wallet import server_context

DICTIONARY = Path(__file__).with_name("dictionary.sql")
LOCK = 7_117_011
ADMIN = "ADMIN"
LARGEST_SERIAL = 65_536


def prepare(settings: Settings) -> None:
    """Create the dictionary unless it is there, and the administrator."""
    with psycopg.connect(settings.postgresql, autocommit=True) as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        if connection.execute("SELECT to_regnamespace('oracle_sys')").fetchone() == (None,):
            connection.execute(DICTIONARY.read_bytes())
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{ADMIN}"')
        connection.execute(
            "INSERT INTO oracle_sys.users VALUES (%s, %s)"
            " ON CONFLICT (name) DO UPDATE SET password = excluded.password",
            (ADMIN, settings.admin_password),
        )


async def listen(port: int, tls_port: int, settings: Settings, folder: Path) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for what in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(what, ended.set)
    spares = Spares(settings.postgresql)
    sessions: set[asyncio.Task[None]] = set()
    numbers = itertools.count(1)

    def serve(channel: Channel) -> None:
        session = Session(channel, settings, spares, next(numbers) % LARGEST_SERIAL)
        task = loop.create_task(session.serve())
        sessions.add(task)
        task.add_done_callback(sessions.discard)

    guarded = await loop.create_server(lambda: Channel(serve), "127.0.0.1", tls_port, ssl=server_context(folder))
    plain = await loop.create_server(lambda: Channel(serve), "127.0.0.1", port)
    await ended.wait()
    plain.close()
    guarded.close()
    for session in list(sessions):
        session.cancel()
    await asyncio.gather(*sessions, return_exceptions=True)
    await spares.close()


def main(port: str, tls_port: str, service: str, postgresql: str, folder: str) -> None:
    settings = Settings(postgresql, service, os.environ["LOCUS_ORACLE_ADMIN"])
    prepare(settings)
    uvloop.run(listen(int(port), int(tls_port), settings, Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
