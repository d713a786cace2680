"""Options that the backends on SQL servers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypedDict

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from locus.errors import ConfigurationError
from locus.hints import UnknownOptionError
from locus.memory.model.arguments import CACHE_MB, checked_megabytes, checked_seconds
from locus.memory.runtime.url import StoreURL, refuse_address

_FIRST_SECONDS = 1.0


@dataclass(frozen=True)
class PoolOptions:
    """The size of a pool: `least` connections stay open, the others close after `idle_seconds` without use."""

    least: int = 1
    most: int = 10
    wait_seconds: float = 10.0
    """The time to wait for a connection while all are in use."""
    idle_seconds: float = 300.0


class SQLServerOptions(TypedDict, total=False):
    """The options of `SQLServerConfig` by keyword, for type checkers."""

    table_name: str
    min_pool_size: int
    max_pool_size: int
    connect_timeout: float
    command_timeout: float
    retry_seconds: float
    ttl_seconds: float | None
    cache_mb: float
    auto_create_table: bool


class SQLServerConfig(BaseModel):
    """The options of a backend on an SQL server. A subclass adds the address. `repr` hides secrets."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    server: ClassVar[str] = "an SQL server"
    """The name of the server in errors."""
    example: ClassVar[str] = "sql://user:password@host/database"
    url_parts: ClassVar[frozenset[str]] = frozenset()
    """The options that are parts of the URL itself, and cannot follow its question mark."""

    table_name: str = "locus"
    """The prefix of the names of all tables."""
    min_pool_size: int = 1
    max_pool_size: int = 10
    connect_timeout: float = 10.0
    """The seconds to wait for a connection."""
    command_timeout: float = 60.0
    """The seconds to wait for the answer to a statement."""
    retry_seconds: float = 10.0
    """The time to keep trying to replace a lost connection, if it is safe to repeat the operation."""
    ttl_seconds: float | None = None
    cache_mb: float = CACHE_MB
    """The megabytes that a handle may hold in memory, so that loads read and decode only what is new."""
    auto_create_table: bool = True

    @field_validator("*", mode="before")
    @classmethod
    def _no_url(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse a URL in the place of a name: messages show the names of hosts, and a URL may hold a password."""
        if info.field_name not in ("dsn", "password", "wallet_password"):
            refuse_address(value, str(info.field_name))
        return value

    @classmethod
    def checked(cls, **options: Any) -> Self:
        """Make a config from a user's options, and check it."""
        try:
            config = cls(**options)
        except ValidationError as error:
            raise cls._refusal(error) from None
        config.check_numbers()
        return config

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        """Make a config from a URL and options. Options override the URL."""
        return cls.checked(**(cls.options_in(url) | options))

    @classmethod
    def options_in(cls, url: str) -> dict[str, Any]:
        """Read the options that a URL sets. An error does not show the URL."""
        raise NotImplementedError

    @classmethod
    def _read_url(cls, url: str) -> tuple[StoreURL, dict[str, Any]]:
        """Split a URL into its parts (one host, one name after it) and the options after its question mark."""
        parts = StoreURL(url, f"this is no URL of {cls.server}; one looks like {cls.example}")
        scheme = cls.example.partition("//")[0]
        if not url.startswith(f"{scheme}//") or parts.fragment or "/" in parts.path[1:]:
            raise ConfigurationError(
                f"{cls.server} is named by a URL like {cls.example}, with everything special percent-encoded"
            )
        names = [name for name in cls.model_fields if name not in cls.url_parts]
        unknown = f"the URL of {cls.server} has no option '{{name}}'; there are: {{known}}"
        return parts, parts.options(dict.fromkeys(names, str), unknown)

    @classmethod
    def _refusal(cls, error: ValidationError) -> ConfigurationError:
        """Make the error for options that are invalid. It does not show their values, because one is a password."""
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(map(str, first["loc"][:1]))
        if first["type"] == "extra_forbidden":
            return UnknownOptionError(cls.__name__.replace("Config", "Backend"), name, cls.model_fields)
        known = ", ".join(cls.model_fields)
        return ConfigurationError(f"option {name!r} of {cls.__name__}: {first['msg']}; the options are {known}")

    def check_numbers(self) -> None:
        """Refuse pool sizes and times that cannot work."""
        check_pool_sizes(self.min_pool_size, self.max_pool_size)
        checked_megabytes(self.cache_mb, "cache_mb")
        check_timeouts(
            connect_timeout=self.connect_timeout,
            command_timeout=self.command_timeout,
            retry_seconds=self.retry_seconds,
        )

    @property
    def first_seconds(self) -> float:
        """The time to keep trying to get the first connection of all: one second, unless `retry_seconds` is given.

        No connection is lost yet, so a wrong address is more likely than a server that restarts.
        """
        return self.retry_seconds if "retry_seconds" in self.model_fields_set else _FIRST_SECONDS

    def pool_options(self) -> PoolOptions:
        return PoolOptions(self.min_pool_size, self.max_pool_size, self.connect_timeout)


def check_pool_sizes(least: int, most: int) -> None:
    for value, what in ((least, "min_pool_size"), (most, "max_pool_size")):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ConfigurationError(f"{what} must be a number from 0 on, got {value!r:.40}")
    if most < 1 or least > most:
        raise ConfigurationError(f"max_pool_size must be at least 1, and at least min_pool_size, got {most!r}")


def check_timeouts(**seconds: float) -> None:
    for what, value in seconds.items():
        checked_seconds(value, what, least=-1.0 if what == "retry_seconds" else 0.0)
