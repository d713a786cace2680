"""Anthropic's messages. Needs the extra `anthropic`.

`max_retries` is how often a request is sent again after 408, 409, 429, 5xx and connection errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from locus.core.messages import Message
from locus.extras import require
from locus.memory.runtime.per_loop import PerLoop
from locus.models import anthropic_wire as wire
from locus.models.base import ModelChunk, ModelResponse, ToolSpec
from locus.models.errors import ModelError, ModelUnavailableError, translated
from locus.models.provider import Provider, required_secret, with_retries
from locus.models.stainless import retry_delay, translation

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic


class AnthropicModel(Provider):
    """A model of Anthropic's.

    Options that are not named here (`temperature`, `thinking`, …) go into every request. The key is that of
    `ANTHROPIC_API_KEY` unless given.
    """

    provider = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | SecretStr | None = None,
        base_url: str | None = None,
        max_tokens: int = 4096,
        max_retries: int = 2,
        timeout: float = 600.0,
        **parameters: Any,
    ) -> None:
        super().__init__(model)
        self._library = require("anthropic", "anthropic")
        self._api_key = required_secret(api_key, "ANTHROPIC_API_KEY")
        self._connection: dict[str, Any] = {"base_url": base_url, "max_retries": 0, "timeout": timeout}
        self._parameters = {"max_tokens": max_tokens, **parameters}
        self._clients: PerLoop[AsyncAnthropic] = PerLoop(self._client, lambda client: client.close())
        self._errors = translation(self._library, self.provider)
        self._retry_delay = retry_delay(self._library)
        self._max_retries = max_retries

    def _client(self) -> AsyncAnthropic:
        client: AsyncAnthropic = self._library.AsyncAnthropic(
            api_key=self._api_key.get_secret_value(), **self._connection
        )
        return client

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None, options: Any) -> dict[str, Any]:
        request = {"model": self.model, "messages": wire.to_messages(messages), **self._parameters, **options}
        if system := wire.to_system(messages):
            request.setdefault("system", system)
        return {**request, "tools": wire.to_tools(tools)} if tools else request

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> ModelResponse:
        with translated(self._errors, self._api_key):
            message = await self._sent(self._request(messages, tools, kwargs))
            if not isinstance(message, self._library.BaseModel):
                raise ModelError(f"{self.provider} answered with something that is no JSON: {message!r:.80}")
            return wire.from_message(message.model_dump(warnings=False))

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> AsyncIterator[ModelChunk]:
        answer = wire.StreamedMessage()
        with translated(self._errors, self._api_key):
            events = await self._sent(self._request(messages, tools, {**kwargs, "stream": True}))
            async with events:
                async for event in events:
                    if text := answer.add(event.model_dump(warnings=False)):
                        yield ModelChunk(text=text)
            response = answer.finished()
        if response is None:
            raise ModelUnavailableError(f"{self.provider}: the stream ended before the answer was complete")
        yield ModelChunk(response=response)

    async def _sent(self, request: dict[str, Any]) -> Any:
        create: Any = self._clients.current().messages.create
        return await with_retries(lambda: create(**request), self._retry_delay, self._max_retries)

    async def close(self) -> None:
        await self._clients.close_here()
