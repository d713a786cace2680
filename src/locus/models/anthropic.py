"""Models of Anthropic, through its Messages API. Needs the extra `anthropic`.

`max_retries` is how often a request is sent again after 408, 409, 429, 5xx and connection errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from locus.core.messages import Message
from locus.models import anthropic_wire as wire
from locus.models.base import ModelResponse, ToolSpec
from locus.models.provider import required_secret
from locus.models.stainless import StainlessModel

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic


class AnthropicModel(StainlessModel):
    """A model of Anthropic.

    Options that are not named here (`temperature`, `thinking`, …) go into every request. Without `api_key`, the key
    comes from `ANTHROPIC_API_KEY`.
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
        super().__init__(model, "anthropic", "anthropic", api_key, max_retries)
        self._connection: dict[str, Any] = {"base_url": base_url, "max_retries": 0, "timeout": timeout}
        self._parameters = {"max_tokens": max_tokens, **parameters}

    def _key(self, given: str | SecretStr | None) -> SecretStr:
        return required_secret(given, "ANTHROPIC_API_KEY")

    def _client(self) -> AsyncAnthropic:
        client: AsyncAnthropic = self._library.AsyncAnthropic(
            api_key=self._api_key.get_secret_value(), **self._connection
        )
        return client

    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        request = {"model": self.model, "messages": wire.to_messages(messages), **self._parameters, **given}
        if system := wire.to_system(messages):
            request.setdefault("system", system)
        return {**request, "tools": wire.to_tools(tools)} if tools else request

    async def _create(self, client: AsyncAnthropic, request: dict[str, Any]) -> Any:
        return await client.messages.create(**request)

    def _response(self, answer: dict[str, Any]) -> ModelResponse:
        return wire.from_message(answer)

    def _streamed(self) -> wire.StreamedMessage:
        return wire.StreamedMessage()
