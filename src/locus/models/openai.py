"""Models of OpenAI, and of servers with the same chat completions API (`base_url=…`). Needs the extra `openai`.

`max_retries` is how often a request is sent again after 408, 409, 429, 5xx and connection errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from locus.core.messages import Message
from locus.models import openai_wire as wire
from locus.models.base import ModelResponse, ToolSpec
from locus.models.provider import required_secret
from locus.models.stainless import StainlessModel

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIModel(StainlessModel):
    """A model of OpenAI, or of a server with the same API.

    Options that are not named here (`temperature`, `top_p`, …) go into every request. Without `api_key`, the key comes
    from `OPENAI_API_KEY`.
    """

    provider = "openai"
    extra = "openai"
    _streaming: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}

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
        super().__init__(model, "openai", self.extra, api_key, max_retries)
        self._base_url = base_url
        self._connection: dict[str, Any] = {"max_retries": 0, "timeout": timeout}
        self._parameters = {**self._limit(max_tokens), **parameters}

    def _key(self, given: str | SecretStr | None) -> SecretStr:
        return required_secret(given, "OPENAI_API_KEY")

    def _client(self) -> AsyncOpenAI:
        client: AsyncOpenAI = self._library.AsyncOpenAI(
            api_key=self._api_key.get_secret_value(), base_url=self._base_url, **self._connection
        )
        return client

    def _limit(self, max_tokens: int | None) -> dict[str, Any]:
        """The parameter that limits tokens. OpenAI's newer models refuse `max_tokens`; many servers know no other."""
        if max_tokens is None:
            return {}
        return {"max_completion_tokens" if self._base_url is None else "max_tokens": max_tokens}

    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        options = dict(given)
        if "max_tokens" in options:
            options |= self._limit(options.pop("max_tokens"))
        request = {"model": self.model, "messages": wire.to_messages(messages), **self._parameters, **options}
        return {**request, "tools": wire.to_tools(tools)} if tools else request

    async def _create(self, client: AsyncOpenAI, request: dict[str, Any]) -> Any:
        return await client.chat.completions.create(**request)

    def _response(self, answer: dict[str, Any]) -> ModelResponse:
        return wire.from_completion(answer)

    def _streamed(self) -> wire.StreamedCompletion:
        return wire.StreamedCompletion()
