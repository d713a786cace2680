"""OpenAI, and servers that speak its chat completions (`base_url=…`). Needs the extra `openai`.

`max_retries` is how often a request is sent again after 408, 409, 429, 5xx and connection errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from locus.core.messages import Message
from locus.extras import require
from locus.memory.runtime.per_loop import PerLoop
from locus.models import openai_wire as wire
from locus.models.base import ModelChunk, ModelResponse, ToolSpec
from locus.models.errors import ModelError, ModelUnavailableError, translated
from locus.models.provider import Provider, required_secret, with_retries
from locus.models.stainless import retry_delay, translation

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIModel(Provider):
    """A model of OpenAI's.

    Options that are not named here (`temperature`, `top_p`, …) go into every request. The key is that of
    `OPENAI_API_KEY` unless given.
    """

    provider = "openai"
    extra = "openai"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | SecretStr | None = None,
        base_url: str | None = None,
        max_tokens: int | None = None,
        max_retries: int = 2,
        timeout: float = 600.0,
        **parameters: Any,
    ) -> None:
        super().__init__(model)
        self._library = require("openai", self.extra)
        self._api_key = self._key(api_key)
        self._base_url = base_url
        self._connection: dict[str, Any] = {"max_retries": 0, "timeout": timeout}
        self._parameters = {**self._limit(max_tokens), **parameters}
        self._clients: PerLoop[AsyncOpenAI] = PerLoop(self._client, lambda client: client.close())
        self._errors = translation(self._library, self.provider)
        self._retry_delay = retry_delay(self._library)
        self._max_retries = max_retries

    def _key(self, given: str | SecretStr | None) -> SecretStr:
        return required_secret(given, "OPENAI_API_KEY")

    def _client(self) -> AsyncOpenAI:
        client: AsyncOpenAI = self._library.AsyncOpenAI(
            api_key=self._api_key.get_secret_value(), base_url=self._base_url, **self._connection
        )
        return client

    def _limit(self, max_tokens: int | None) -> dict[str, Any]:
        """OpenAI's newer models refuse `max_tokens`; many other servers know nothing else."""
        if max_tokens is None:
            return {}
        return {"max_completion_tokens" if self._base_url is None else "max_tokens": max_tokens}

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None, given: Any) -> dict[str, Any]:
        options = dict(given)
        if "max_tokens" in options:
            options |= self._limit(options.pop("max_tokens"))
        request = {"model": self.model, "messages": wire.to_messages(messages), **self._parameters, **options}
        return {**request, "tools": wire.to_tools(tools)} if tools else request

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> ModelResponse:
        with translated(self._errors, self._api_key):
            request = self._request(messages, tools, kwargs)
            completion = await self._sent(request)
            if not isinstance(completion, self._library.BaseModel):
                raise ModelError(f"{self.provider} answered with something that is no JSON: {completion!r:.80}")
            return wire.from_completion(completion.model_dump(warnings=False))

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> AsyncIterator[ModelChunk]:
        answer = wire.StreamedCompletion()
        with translated(self._errors, self._api_key):
            options = {"stream": True, "stream_options": {"include_usage": True}, **kwargs}
            chunks = await self._sent(self._request(messages, tools, options))
            async with chunks:
                async for chunk in chunks:
                    if text := answer.add(chunk.model_dump(warnings=False)):
                        yield ModelChunk(text=text)
            response = answer.finished()
        if response is None:
            raise ModelUnavailableError(f"{self.provider}: the stream ended before the answer was complete")
        yield ModelChunk(response=response)

    async def _sent(self, request: dict[str, Any]) -> Any:
        create: Any = self._clients.current().chat.completions.create
        return await with_retries(lambda: create(**request), self._retry_delay, self._max_retries)

    async def close(self) -> None:
        await self._clients.close_here()
