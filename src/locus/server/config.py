"""The configuration of `locus serve`, checked before anything is opened and passed on to the worker processes."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from typing import Self

from locus.errors import ConfigurationError
from locus.memory.model.arguments import checked_seconds
from locus.server.auth import Token, parse_tokens

VARIABLE = "LOCUS_SERVER_WORKER"
"""The environment variable that holds the configuration of workers."""

_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class ServerConfig:
    """How a server is started. `tokens` is text, one token per line, as `parse_tokens` reads it."""

    store: str
    host: str = "127.0.0.1"
    port: int = 8700
    workers: int = 1
    tokens: str = ""
    max_body_bytes: int = 64 * 1024 * 1024
    header_seconds: float = 15.0
    body_seconds: float = 30.0
    query_seconds: float = 30.0
    grace_seconds: float = 30.0
    log_level: str = "info"

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ConfigurationError(f"--port is a number from 0 to 65535, got {self.port}")
        if not 1 <= self.workers <= 1_000:
            raise ConfigurationError(f"--workers is a number from 1 on, got {self.workers}")
        if self.max_body_bytes < 1024:
            raise ConfigurationError("--max-body is a number of megabytes, and a kilobyte at least")
        checked_seconds(self.header_seconds, "--header-timeout")
        checked_seconds(self.body_seconds, "--body-timeout")
        checked_seconds(self.query_seconds, "--query-timeout")
        checked_seconds(self.grace_seconds, "--grace")
        if self.workers > 1 and self.store.partition(":")[0] == "memory":
            raise ConfigurationError("several workers cannot share a memory store: leave out --workers")
        if not self.auth and not is_loopback(self.host):
            raise ConfigurationError(
                f"without a token this server would be open to everybody who reaches {self.host}: "
                "give --token, --token-file or LOCUS_SERVER_TOKENS, or listen on 127.0.0.1"
            )

    @property
    def auth(self) -> list[Token] | None:
        return parse_tokens(self.tokens) or None

    @property
    def hosts(self) -> Collection[str] | None:
        """The host names to accept. Without tokens, a web page must not reach the server by a DNS name of its own."""
        return None if self.auth else {*_LOCAL, self.host.lower()}

    def to_environment(self) -> None:
        """Store this for worker processes to read."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Self:
        return cls(**json.loads(os.environ[VARIABLE]))


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
