"""The configuration of `locus serve`, checked before anything is opened and handed to the worker processes."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from locus.errors import ConfigurationError
from locus.memory.model.arguments import checked_seconds
from locus.memory.runtime.url import is_loopback
from locus.server.auth import TOKEN_FILE, Token, parse_tokens, read_token_file
from locus.server.hosts import LOCAL
from locus.server.quotas import Quota
from locus.server.rates import Rate


@dataclass(frozen=True)
class ServerConfig:
    """The options of `locus serve`.

    `tokens` is text for `parse_tokens`, one token per line. `file_tokens` is the text of the file `token_file`, which
    is read again on SIGHUP. `store_token` is for a store on another server.
    """

    store: str = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 8700
    workers: int = 1
    tokens: str = field(default="", repr=False)
    max_body_bytes: int = 64 * 1024 * 1024
    header_seconds: float = 15.0
    body_seconds: float = 30.0
    query_seconds: float = 30.0
    grace_seconds: float = 30.0
    log_level: str = "info"
    max_values: int = 1_000_000
    send_seconds: float = 30.0
    max_connections: int = 500
    rate: str | None = None
    audit: str | None = None
    log_key: str = field(default="", repr=False)
    token_file: str | None = None
    file_tokens: str = field(default="", repr=False)
    store_token: str | None = field(default=None, repr=False)
    daily_saves: int | None = None
    daily_bytes: int | None = None
    quota_file: str | None = None
    inspector: bool = False
    inspector_writes: bool = False
    inspector_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ConfigurationError(f"--port is a number from 0 to 65535, got {self.port}")
        if not 1 <= self.workers <= 1_000:
            raise ConfigurationError(f"--workers is a number from 1 on, got {self.workers}")
        if self.max_body_bytes < 1024:
            raise ConfigurationError("--max-body is a number of megabytes, and a kilobyte at least")
        checked_seconds(self.header_seconds, "--header-timeout")
        checked_seconds(self.body_seconds, "--body-timeout")
        checked_seconds(self.send_seconds, "--send-timeout")
        checked_seconds(self.query_seconds, "--query-timeout")
        checked_seconds(self.grace_seconds, "--grace")
        if self.max_values < 1:
            raise ConfigurationError(f"--max-values is a number from 1 on, got {self.max_values}")
        if not 1 <= self.max_connections <= 1_000_000:
            raise ConfigurationError(f"--max-connections is a number from 1 on, got {self.max_connections}")
        if self.rate is not None:
            Rate.parse(self.rate)
        for option, value in (("--daily-saves", self.daily_saves), ("--daily-megabytes", self.daily_bytes)):
            if value is not None and value < 1:
                raise ConfigurationError(f"{option} is a number from 1 on")
        if self.workers > 1 and self.store.partition(":")[0] == "memory":
            raise ConfigurationError("several workers cannot share a memory store: leave out --workers")
        if not self.inspector and (self.inspector_writes or self.inspector_hosts):
            raise ConfigurationError("--inspector-write and --inspector-host belong to --inspector")
        if self.inspector and self.workers > 1:
            raise ConfigurationError(
                "the inspector keeps logins in one process: leave out --workers, or start a second server for it "
                "on the same store"
            )
        if not self.auth and not is_loopback(self.host):
            raise ConfigurationError(
                f"without a token this server would be open to everybody who reaches {self.host}: "
                "give --token, --token-file or LOCUS_SERVER_TOKENS, or listen on 127.0.0.1"
            )

    @property
    def auth(self) -> list[Token] | None:
        return [*parse_tokens(self.tokens), *parse_tokens(self.file_tokens, TOKEN_FILE)] or None

    def with_tokens_read_again(self) -> Self:
        """A copy with the present text of the token file."""
        assert self.token_file is not None
        return replace(self, file_tokens=read_some_tokens(self.token_file))

    @property
    def quota(self) -> Quota:
        return Quota(self.daily_saves, self.daily_bytes)

    @property
    def hosts(self) -> Collection[str] | None:
        """The accepted host names; None for any. Without tokens, a web page could get in by a DNS name of its own."""
        return None if self.auth else self.names

    @property
    def names(self) -> Collection[str]:
        """The host names of this server. The inspector accepts no others, with tokens or without."""
        return {*LOCAL, self.host.lower(), *(host.lower() for host in self.inspector_hosts)}


def read_some_tokens(path: str) -> str:
    """Read a token file. Raises if it holds no token, or if every user can read it: both would open the server."""
    text = read_token_file(path)
    if not parse_tokens(text, TOKEN_FILE):
        raise ConfigurationError(f"{TOKEN_FILE} holds no token")
    if os.name != "nt" and Path(path).stat().st_mode & stat.S_IROTH:
        raise ConfigurationError(
            f"every user of this machine can read {TOKEN_FILE}: take that right away, chmod o= FILE"
        )
    return text
