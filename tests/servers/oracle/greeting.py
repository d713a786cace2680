"""How a session begins: the listener takes the client, and the database lets it log on."""

from __future__ import annotations

import re

from tests.servers.oracle import packets
from tests.servers.oracle.answers import Answer
from tests.servers.oracle.buffers import Writer
from tests.servers.oracle.calls import Logon
from tests.servers.oracle.database import Command, Database
from tests.servers.oracle.errors import OracleError
from tests.servers.oracle.logon import Challenge
from tests.servers.oracle.messages import Messages
from tests.servers.oracle.packets import Channel
from tests.servers.oracle.requests import read_call

ACCEPT_FAST_LOGON, ACCEPT_END_OF_RESPONSE = 0x10000000, 0x02000000
PROTOCOL_VERSION = 319
MAY_NOT_ENCRYPT = 0x04
SERVER_VERSION = (23 << 24) | (26 << 16) | (1 << 12)
SMALLEST_PACKET, LARGEST_PACKET = 512, 65_535
UNKNOWN_SERVICE, NO_SERVICE = 12514, 12505


async def connected(channel: Channel, service: str) -> bool:
    """Whether the client asks for the service that is here."""
    kind, body = await channel.packet()
    if kind != packets.CONNECT:
        return False
    length = int.from_bytes(body[16:18], "big")
    offset = int.from_bytes(body[18:20], "big") - packets.HEADER
    data = body[offset : offset + length]
    if not data and length:
        data = (await channel.packet())[1][2:]
    wanted = re.search(rb"SERVICE_NAME=([^)]*)\)", data, re.IGNORECASE)
    if wanted is None or wanted[1].decode().upper() != service.upper():
        _refuse(channel, UNKNOWN_SERVICE if wanted else NO_SERVICE)
        return False
    _accept(channel, int.from_bytes(body[50:54], "big"))
    return True


def _refuse(channel: Channel, code: int) -> None:
    text = f"(DESCRIPTION=(TMP=)(VSNNUM=0)(ERR={code})(ERROR_STACK=(ERROR=(CODE={code})(EMFI=4))))"
    channel.send(packets.REFUSE, b"\x22\x00" + len(text).to_bytes(2, "big") + text.encode())


def _accept(channel: Channel, size: int) -> None:
    channel.size = max(SMALLEST_PACKET, min(size, LARGEST_PACKET))
    writer = Writer()
    writer.u16(PROTOCOL_VERSION)
    writer.u16(1)
    writer.raw(bytes(10))
    writer.u8(MAY_NOT_ENCRYPT)
    writer.raw(bytes(9))
    writer.raw(channel.size.to_bytes(4, "big"))
    writer.raw(bytes(5))
    writer.raw((ACCEPT_FAST_LOGON | ACCEPT_END_OF_RESPONSE).to_bytes(4, "big"))
    channel.send(packets.ACCEPT, bytes(writer.data))
    channel.large = True


async def logged_on(messages: Messages, database: Database, first: Logon) -> tuple[Logon, Challenge, int] | None:
    """The second half of the log-on if the password is right, and None after it was told that it is wrong."""
    question = Command("SELECT password FROM oracle_sys.users WHERE name = $1", (first.user.upper().encode(),), (25,))
    found = (await database.run(question))[0]
    password = found.get_value(0, 0) if found.ntuples else None
    challenge = Challenge(password.decode() if password is not None else None)
    answer = Answer(0)
    answer.protocol()
    answer.pairs(challenge.pairs())
    messages.send(answer)
    second = await messages.request(lambda reader: read_call(reader, {}))
    if not isinstance(second.body, Logon):
        return None
    if not challenge.is_met(second.body.pairs):
        refused = Answer(second.token)
        refused.error(OracleError(1017, "invalid credential or not authorized; logon denied"))
        messages.send(refused)
        return None
    return second.body, challenge, second.token


def facts(proof: str, service: str, session: int, serial: int) -> list[tuple[str, str, int]]:
    """What a client is told about the server and its session."""
    told = {
        "AUTH_SVR_RESPONSE": proof,
        "AUTH_VERSION_NO": str(SERVER_VERSION),
        "AUTH_VERSION_STRING": "- Stand-in",
        "AUTH_SESSION_ID": str(session),
        "AUTH_SERIAL_NUM": str(serial),
        "AUTH_SC_DBUNIQUE_NAME": "FREE",
        "AUTH_SC_DB_DOMAIN": "",
        "AUTH_DBNAME": service,
        "AUTH_SC_SERVICE_NAME": service.lower(),
        "AUTH_INSTANCENAME": "FREE",
        "AUTH_MAX_OPEN_CURSORS": "300",
        "AUTH_MAX_IDEN_LENGTH": "128",
    }
    return [(key, value, 0) for key, value in told.items()]
