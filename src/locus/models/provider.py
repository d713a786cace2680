"""What the providers have in common: the base class, API keys, and retries.

Retries back off exponentially with jitter, are bounded, and heed `Retry-After`.
"""

from __future__ import annotations

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from email.utils import mktime_tz, parsedate_tz
from typing import Any, Self, TypeVar

from pydantic import SecretStr

from locus.core.messages import Message
from locus.errors import ConfigurationError
from locus.memory.runtime.retry import Backoff
from locus.models.base import ModelChunk, ModelResponse, ToolSpec

T = TypeVar("T")


class Provider(ABC):
    """A model behind a client library. `async with`, or `close()`, closes the connections of the running loop."""

    provider: str

    def __init__(self, model: str) -> None:
        if not isinstance(model, str) or not model:
            raise ConfigurationError(f"a model is named by text, got {model!r:.80}")
        self.model = model

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.provider}:{self.model})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    @abstractmethod
    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> ModelResponse: ...

    @abstractmethod
    def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> AsyncIterator[ModelChunk]: ...

    @abstractmethod
    async def close(self) -> None: ...


def secret(given: str | SecretStr | None, variable: str) -> SecretStr | None:
    """The key that was given, or that of the environment."""
    if isinstance(given, SecretStr):
        return given
    found = given or os.environ.get(variable)
    return SecretStr(found) if found else None


def required_secret(given: str | SecretStr | None, variable: str) -> SecretStr:
    found = secret(given, variable)
    if found is None:
        raise ConfigurationError(f"no API key: set {variable}, or pass api_key=…")
    return found


BETWEEN_ATTEMPTS = Backoff(0.5, 8.0, random_part=0.25)
LONGEST_RETRY_AFTER = 120.0
"""Seconds. A server that asks for more is not waited for: the caller hears of it at once."""

RetryDelay = Callable[[Exception], "float | None"]
"""Seconds to wait after this error: what the server asks for, 0 for the usual delay, None if a retry cannot help."""


async def with_retries(attempt: Callable[[], Awaitable[T]], retry_delay: RetryDelay, max_retries: int) -> T:
    """Call `attempt` until it succeeds, `max_retries` times more at most; the last error is raised."""
    for retry in range(max_retries):
        try:
            return await attempt()
        except Exception as error:
            delay = retry_delay(error)
            if delay is None or delay > LONGEST_RETRY_AFTER:
                raise
        await asyncio.sleep(delay_before(retry, delay))
    return await attempt()


def delay_before(retry: int, asked: float) -> float:
    """Seconds to wait before the retry with this number, counted from 0; `asked` is what the server asks for."""
    return asked if asked > 0 else BETWEEN_ATTEMPTS.seconds(retry)


def retry_after(header: str | None) -> float | None:
    """The seconds in a `Retry-After` header, which is a number or a date."""
    if header is None:
        return None
    try:
        return float(header)
    except ValueError:
        date = parsedate_tz(header)
        return None if date is None else mktime_tz(date) - time.time()
