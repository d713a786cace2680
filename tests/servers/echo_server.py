"""A server of a few lines, which is all that the base class needs."""

import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from tests.servers.base import Server


class EchoServer(Server):
    name = "echo"
    start_seconds: ClassVar[float] = 10
    behaviour: ClassVar[str] = "sound"

    @property
    def url(self) -> str:
        return f"echo://127.0.0.1:{self.port}"

    @classmethod
    def install(cls) -> Path:
        return Path(__file__).parent

    def command(self) -> Sequence[str | Path]:
        process = self.install() / "echo_process.py"
        return [sys.executable, process, str(self.port), self.data / "said", self.behaviour]

    def answers(self) -> bool:
        try:
            return ask(self.port, b"hello") == b"HELLO"
        except OSError:
            return False

    def said(self) -> str:
        return (self.data / "said").read_text(encoding="ascii")


class BrokenServer(EchoServer):
    behaviour = "broken"


class SilentServer(EchoServer):
    start_seconds = 0.5
    behaviour = "silent"


class StubbornServer(EchoServer):
    stop_seconds = 0.3
    behaviour = "stubborn"


def ask(port: int, question: bytes, seconds: float = 0.5) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(question)
        return connection.recv(65_536)
