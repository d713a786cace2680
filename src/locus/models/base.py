"""The protocols that a language model implements for an agent, and the records that it returns.

Any object with `async complete(messages, tools=None, **kwargs) -> ModelResponse` is a model; one that has
`stream` as well is a `StreamingModel`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from locus.core.frozen import EMPTY, Frozen, FrozenMapping
from locus.core.messages import Message

STOP = "stop"
TOOL_CALLS = "tool_calls"
LENGTH = "length"
CONTENT_FILTER = "content_filter"


class ModelResponse(Frozen):
    """The answer of a model.

    `usage` has `prompt_tokens`, `completion_tokens` and `total_tokens` if the provider counts them. `stop_reason` is
    "stop", "tool_calls", "length" or "content_filter", or the provider's own word if it means none of these.
    """

    message: Message
    usage: FrozenMapping = EMPTY
    stop_reason: str = STOP


def tokens_of(response: ModelResponse) -> dict[str, int]:
    """The token counts in a response's `usage`. Entries that are no numbers are left out."""
    return {key: int(value) for key, value in (response.usage or {}).items() if isinstance(value, int | float)}


class ModelChunk(Frozen):
    """A piece of an answer: some text, or, as the last piece, the whole response."""

    text: str = ""
    response: ModelResponse | None = None


class ToolSpec(Protocol):
    """The description of a tool for a model. `locus.tools.Tool` has these attributes."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...


@runtime_checkable
class Model(Protocol):
    """A language model."""

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> ModelResponse:
        """Answer the conversation. Further arguments go to the provider as they are."""
        ...


@runtime_checkable
class StreamingModel(Model, Protocol):
    """A language model that can send its answer while it is being written."""

    def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> AsyncIterator[ModelChunk]:
        """Answer the conversation with chunks of text, and at last a chunk with the whole response."""
        ...


def usage_of(prompt: int | None, completion: int | None) -> dict[str, int]:
    """Token counts as the dict that `ModelResponse.usage` holds."""
    if prompt is None and completion is None:
        return {}
    sent, received = prompt or 0, completion or 0
    return {"prompt_tokens": sent, "completion_tokens": received, "total_tokens": sent + received}


def clean(text: str) -> str:
    """The text without lone surrogates, which no state can keep; a pair that was sent in halves is joined."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
