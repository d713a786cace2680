"""The options, and the URL that carries them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from locus.errors import ConfigurationError
from locus.memory.runtime.url import StoreURL

SYNTAX = "write tiny://host/shelf"


@dataclass(frozen=True)
class TinyConfig:
    """Which shelf of which host."""

    host: str
    shelf: str = "first"
    seats: int = 1

    @classmethod
    def from_url(cls, url: str, **options: Any) -> TinyConfig:
        """From `tiny://host/shelf?seats=2`, and options, which go before those in the URL."""
        parts = StoreURL(url, SYNTAX)
        if not parts.host:
            raise ConfigurationError(SYNTAX)
        shelf = {"shelf": parts.path.strip("/")} if parts.path.strip("/") else {}
        return cls(parts.host, **(shelf | parts.options({"seats": int}) | options))
