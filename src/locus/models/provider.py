"""What the providers have in common."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self

from pydantic import SecretStr

from locus.core.messages import Message
from locus.errors import ConfigurationError
from locus.models.base import ModelChunk, ModelResponse, ToolSpec


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
