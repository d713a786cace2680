"""Models of OpenAI, and of servers with the same chat completions API (`base_url=…`). Needs the extra `openai`.

`max_retries` is how often a request is sent again after 408, 409, 429, 5xx and connection errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from locus.models import openai_wire
from locus.models.base import ModelResponse
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
    library = "openai"
    client = "AsyncOpenAI"
    variable = "OPENAI_API_KEY"
    wire = openai_wire
    _streaming: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}

    def _limit(self, max_tokens: int | None) -> dict[str, Any]:
        """The parameter that limits tokens. OpenAI's newer models refuse `max_tokens`; many servers know no other."""
        if max_tokens is None:
            return {}
        return {"max_completion_tokens" if self._base_url is None else "max_tokens": max_tokens}

    async def _create(self, client: AsyncOpenAI, request: dict[str, Any]) -> Any:
        return await client.chat.completions.create(**request)

    def _response(self, answer: dict[str, Any]) -> ModelResponse:
        return openai_wire.from_completion(answer)

    def _streamed(self) -> openai_wire.StreamedCompletion:
        return openai_wire.StreamedCompletion()
