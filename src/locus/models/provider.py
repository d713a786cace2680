"""The base class of model providers, their API keys, and their retries.

Retries back off exponentially with jitter, are limited in number, and obey `Retry-After`.
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
    """The key that was passed, or else that of the environment variable; None if there is neither."""
    if isinstance(given, SecretStr):
        return given
    key = given or os.environ.get(variable)
    return SecretStr(key) if key else None


def required_secret(given: str | SecretStr | None, variable: str) -> SecretStr:
    key = secret(given, variable)
    if key is None:
        raise ConfigurationError(f"no API key: set {variable}, or pass api_key=…")
    return key


BETWEEN_ATTEMPTS = Backoff(0.5, 8.0, random_part=0.25)
LONGEST_RETRY_AFTER = 120.0
"""The longest `Retry-After` to wait for, in seconds. If a server asks for more, its error is raised at once."""

RetryDelay = Callable[[Exception], "float | None"]
"""A function from an error to the seconds that the server asks to wait: 0 for the usual pause, None for no retry."""


async def with_retries(attempt: Callable[[], Awaitable[T]], retry_delay: RetryDelay, max_retries: int) -> T:
    """Call `attempt`, and after errors again, up to `max_retries` times. Raises the last error."""
    for retry in range(max_retries):
        try:
            return await attempt()
        except Exception as error:
            delay = retry_delay(error)
            if delay is None or delay > LONGEST_RETRY_AFTER:
                raise
        await asyncio.sleep(delay_before(retry, delay))
    return await attempt()


def delay_before(retry: int, requested: float) -> float:
    """Seconds to wait before a retry, counted from 0: those that the server has requested, or else the usual pause."""
    return requested if requested > 0 else BETWEEN_ATTEMPTS.seconds(retry)


def retry_after(header: str | None) -> float | None:
    """The seconds in a `Retry-After` header, which is a number or a date."""
    if header is None:
        return None
    try:
        return float(header)
    except ValueError:
        date = parsedate_tz(header)
        return None if date is None else mktime_tz(date) - time.time()
