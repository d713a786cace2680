"""The model protocol: what an agent needs of a language model.

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
    """What a model answered.

    `usage` has `prompt_tokens`, `completion_tokens` and `total_tokens` where the provider counts them.
    `stop_reason` is one of "stop", "tool_calls", "length" and "content_filter", or what the provider says
    where it means none of these.
    """

    message: Message
    usage: FrozenMapping = EMPTY
    stop_reason: str = STOP


def tokens_of(response: ModelResponse) -> dict[str, int]:
    """The tokens of a response, as numbers: what a provider says beyond that does not count."""
    return {key: int(value) for key, value in (response.usage or {}).items() if isinstance(value, int | float)}


class ModelChunk(Frozen):
    """A piece of an answer: some text, or, as the last piece, the whole response."""

    text: str = ""
    response: ModelResponse | None = None


class ToolSpec(Protocol):
    """What a model is told of a tool; a `locus.tools.Tool` is one."""

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
    """A language model that can answer bit by bit."""

    def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> AsyncIterator[ModelChunk]:
        """The text as it comes, and at the end one chunk with the whole response."""
        ...


def usage_of(prompt: int | None, completion: int | None) -> dict[str, int]:
    """The token counts in the form that `ModelResponse.usage` has."""
    if prompt is None and completion is None:
        return {}
    sent, received = prompt or 0, completion or 0
    return {"prompt_tokens": sent, "completion_tokens": received, "total_tokens": sent + received}


def clean(text: str) -> str:
    """The text without lone surrogates, which no state can keep; a pair that was sent in halves is joined."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
