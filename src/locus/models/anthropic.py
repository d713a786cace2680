"""Models of Anthropic, through its Messages API. Needs the extra `anthropic`.

`max_retries` is how often a request is sent again after 408, 409, 429, 5xx and connection errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from locus.core.messages import Message
from locus.models import anthropic_wire
from locus.models.base import ModelResponse, ToolSpec
from locus.models.stainless import StainlessModel

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic


class AnthropicModel(StainlessModel):
    """A model of Anthropic.

    Options that are not named here (`temperature`, `thinking`, …) go into every request. Without `api_key`, the key
    comes from `ANTHROPIC_API_KEY`.
    """

    provider = extra = library = "anthropic"
    client = "AsyncAnthropic"
    variable = "ANTHROPIC_API_KEY"
    wire = anthropic_wire

    def _limit(self, max_tokens: int | None) -> dict[str, Any]:
        """Anthropic answers no request without a limit."""
        return {"max_tokens": 4096 if max_tokens is None else max_tokens}

    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        system = anthropic_wire.to_system(messages)
        return ({"system": system} if system else {}) | super()._request(messages, tools, given)

    async def _create(self, client: AsyncAnthropic, request: dict[str, Any]) -> Any:
        return await client.messages.create(**request)

    def _response(self, answer: dict[str, Any]) -> ModelResponse:
        return anthropic_wire.from_message(answer)

    def _streamed(self) -> anthropic_wire.StreamedMessage:
        return anthropic_wire.StreamedMessage()
