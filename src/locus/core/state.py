"""The immutable state of an agent: what a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, Self, TypeVar
from uuid import uuid4

from pydantic import AfterValidator, BaseModel, Field, PlainSerializer

from locus.core.frozen import EMPTY, Frozen, FrozenMapping, Items, Remembering, as_items, freeze, trust
from locus.core.messages import Message, ToolCall, ToolResult

T = TypeVar("T")

__all__ = ["AgentState", "ToolCall", "ToolExecution", "ToolResult"]


def _now() -> datetime:
    return datetime.now(UTC)


# Plain `model_dump()` gives JSON values only, so that a dump can be saved as it is.
Instant = Annotated[datetime, PlainSerializer(lambda at: at.isoformat(), return_type=str)]


@trust()
class ToolExecution(Frozen):
    """One tool call that was carried out, with its outcome."""

    tool_name: str
    tool_call_id: str
    arguments: FrozenMapping = EMPTY
    result: str | None = None
    error: str | None = None
    duration_ms: float | None = None
    timestamp: Instant = Field(default_factory=_now)

    @property
    def success(self) -> bool:
        return self.error is None


class AgentState(Remembering):
    """Everything an agent needs to go on: immutable, changed by `with_*`, which return a new state.

    A state remembers the checkpoint it was loaded from or saved as; states derived from it inherit that,
    and the next save names it as the parent. That memory is no part of a state's equality.
    """

    agent_id: str | None = None
    run_id: str = Field(default_factory=lambda: uuid4().hex)
    iteration: int = 0
    max_iterations: int = 20
    confidence: float = 0.0
    confidence_threshold: float = 0.85
    total_tokens_used: int = 0
    prompt_tokens_used: int = 0
    completion_tokens_used: int = 0
    started_at: Instant = Field(default_factory=_now)
    updated_at: Instant = Field(default_factory=_now)
    metadata: FrozenMapping = EMPTY
    messages: Annotated[tuple[Message, ...], AfterValidator(as_items)] = Items()
    tool_executions: Annotated[tuple[ToolExecution, ...], AfterValidator(as_items)] = Items()
    tool_history: Annotated[tuple[str, ...], AfterValidator(as_items)] = Items()
    confidence_history: Annotated[tuple[float, ...], AfterValidator(as_items)] = Items()
    errors: Annotated[tuple[str, ...], AfterValidator(as_items)] = Items()

    @property
    def total_tokens(self) -> int:
        return self.total_tokens_used

    def _with(self, **changes: Any) -> Self:
        # The values are frozen already.
        return BaseModel.model_copy(self, update={"updated_at": _now(), **changes})

    def with_message(self, message: Message) -> Self:
        return self.with_messages((message,))

    def with_messages(self, messages: Iterable[Message]) -> Self:
        """Append messages."""
        return self._with(messages=self.messages + _checked(messages, Message))

    def with_messages_replaced(self, messages: Iterable[Message]) -> Self:
        """Put these messages in place of all there are: a trimmed, edited or summarised conversation.

        Slices and sums of `state.messages` keep what they know of their origin, and are saved at once.
        """
        checked = _checked(messages, Message)
        return self._with(messages=messages if isinstance(messages, Items) else Items(checked))

    def with_iteration(self, iteration: int) -> Self:
        return self._with(iteration=iteration)

    def next_iteration(self) -> Self:
        return self._with(iteration=self.iteration + 1)

    def with_tool_execution(self, execution: ToolExecution) -> Self:
        """Append an execution, and the tool's name to `tool_history`."""
        return self._with(
            tool_executions=self.tool_executions + _checked((execution,), ToolExecution),
            tool_history=self.tool_history + (execution.tool_name,),
        )

    def with_confidence(self, confidence: float) -> Self:
        """Set the confidence, kept between 0 and 1, and append it to `confidence_history`."""
        bounded = min(1.0, max(0.0, float(confidence)))
        return self._with(confidence=bounded, confidence_history=self.confidence_history + (bounded,))

    def with_error(self, error: str) -> Self:
        return self._with(errors=self.errors + (str(error),))

    def with_metadata(self, key: str | Mapping[str, Any], value: Any = None) -> Self:
        """Set one metadata key, or all keys of a mapping."""
        changes = dict(key) if isinstance(key, Mapping) else {key: value}
        return self._with(metadata=freeze({**self.metadata, **changes}))

    def with_token_usage(self, prompt_tokens: int, completion_tokens: int) -> Self:
        """Add the tokens of one model call."""
        return self._with(
            prompt_tokens_used=self.prompt_tokens_used + prompt_tokens,
            completion_tokens_used=self.completion_tokens_used + completion_tokens,
            total_tokens_used=self.total_tokens_used + prompt_tokens + completion_tokens,
        )

    def to_checkpoint(self) -> dict[str, Any]:
        """The state as plain dicts and lists."""
        return {key: _thaw(value) for key, value in self.model_dump().items()}

    @classmethod
    def from_checkpoint(cls, data: Mapping[str, Any]) -> Self:
        """The state that `to_checkpoint` described, also one written by another version of this class."""
        return cls.model_validate(dict(data))


def _checked(values: Iterable[T], kind: type[T]) -> tuple[T, ...]:
    """model_copy does not validate, and a wrong type would only be noticed when the state is loaded."""
    found = tuple(values)
    for value in found:
        if not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}: {value!r:.80}")
    return found


def _thaw(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _thaw(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_thaw(item) for item in value]
    return value.value if isinstance(value, Enum) else value
