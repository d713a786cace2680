"""The immutable state of an agent. A checkpoint keeps one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, Literal, Self, TypeVar
from uuid import uuid4

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from locus.core.frozen import EMPTY, Frozen, FrozenMapping, Items, Remembering, as_items, freeze, trust
from locus.core.messages import Message, ToolCall, ToolResult
from locus.errors import ConfigurationError

T = TypeVar("T")

__all__ = ["AgentState", "ToolCall", "ToolExecution", "ToolResult"]


def _now() -> datetime:
    return datetime.now(UTC)


# Declare every time as `Instant`, or `Instant | None`: saves and loads find it by that. A plain `model_dump()` gives
# JSON values only, so that a dump can be saved as it is.
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


LISTS = ("messages", "tool_executions", "tool_history", "confidence_history", "errors")
"""The fields of a state that grow with a conversation, and that a window shortens."""


def _checked_counts(counts: dict[str, Any]) -> dict[str, Any]:
    for name, count in counts.items():
        if name not in LISTS or type(count) is not int or count < 1:
            raise ValueError("locus_omitted has, for a list of the state, how many items were left out")
    return counts


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
    # The prefix keeps it apart from fields of users: stored states may hold any other name.
    locus_omitted: Annotated[FrozenMapping, AfterValidator(_checked_counts)] = EMPTY

    @model_validator(mode="after")
    def _mirror_omitted(self) -> Self:
        if self.locus_omitted:
            self.__dict__.update(_placed(self, self.locus_omitted))
        return self

    @model_serializer(mode="wrap")
    def _leave_out_nothing_omitted(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        dumped: dict[str, Any] = dump(self)
        if not self.locus_omitted:
            dumped.pop("locus_omitted", None)
        return dumped

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        # The serializer only leaves out `locus_omitted`, so the schema is that of the model without a serializer.
        inner: Any = schema
        while inner["type"] != "model" and "schema" in inner:
            inner = inner["schema"]
        return handler({name: value for name, value in inner.items() if name != "serialization"})

    @property
    def omitted(self) -> Mapping[str, int]:
        """How many items of each list were left in the store, if only a window of it was loaded. Empty if none.

        The omitted items still belong to the state, and a save keeps them. If the user has stored a field with the name
        `omitted`, this property returns that field; `locus_omitted` is always about the window.
        """
        extra = self.__pydantic_extra__ or {}
        counts: Mapping[str, int] = extra.get("omitted", self.locus_omitted)
        return counts

    def without_omitted(self) -> Self:
        """A copy that consists of the visible items alone: a save drops those that a window left out."""
        return self._with(locus_omitted=EMPTY, **_placed(self, EMPTY)) if self.locus_omitted else self

    @property
    def total_tokens(self) -> int:
        return self.total_tokens_used

    def _with(self, **changes: Any) -> Self:
        # `model_copy` of `Frozen` would freeze the values again, and they are frozen already.
        return BaseModel.model_copy(self, update={"updated_at": _now(), **changes})

    def with_message(self, message: Message) -> Self:
        return self.with_messages((message,))

    def with_messages(self, messages: Iterable[Message]) -> Self:
        """Append messages."""
        return self._with(messages=self.messages + _checked(messages, Message))

    def with_messages_replaced(self, messages: Iterable[Message], *, omitted: Literal["keep"] | None = None) -> Self:
        """Replace all messages, with those of a trimmed, edited or summarised conversation.

        Slices and sums of `state.messages` know which messages are stored, so that a save writes only the others.

        In a window of a thread, the visible messages are replaced, and the omitted ones stay before them.
        Passing only the last ones of the window is refused, because that would leave a hole in the conversation;
        `omitted="keep"` says that the hole is meant. Call `without_omitted()` first to drop the omitted ones, too.
        """
        checked = _checked(messages, Message)
        count, left_out = len(checked), self.locus_omitted.get("messages", 0)
        if omitted not in (None, "keep"):
            raise ConfigurationError(f'omitted is "keep" or left out, got {omitted!r:.40}')
        visible = self.messages
        if left_out and omitted is None and count < len(visible) and checked == tuple(visible[len(visible) - count :]):
            raise ConfigurationError(
                f"this state is a window: {left_out} messages come before those that are visible, and dropping the "
                "first visible ones would leave a hole between. Call without_omitted() first to drop the earlier ones "
                'too, or pass omitted="keep" if the hole is meant'
            )
        items = messages if isinstance(messages, Items) else Items(checked)
        return self._with(messages=items.after(left_out))

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
        """This state as plain dicts and lists."""
        return {key: _thaw(value) for key, value in self.model_dump().items()}

    @classmethod
    def from_checkpoint(cls, data: Mapping[str, Any]) -> Self:
        """The state in a dict that `to_checkpoint` has made, also with another version of this class."""
        return cls.model_validate(dict(data))


def _placed(state: AgentState, omitted: Mapping[str, int]) -> dict[str, Items[Any]]:
    """The lists of a state, each marked with the number of items that a window left out before it."""
    lists = ((name, getattr(state, name)) for name in LISTS)
    return {name: items.after(omitted.get(name, 0)) for name, items in lists if isinstance(items, Items)}


def _checked(values: Iterable[T], kind: type[T]) -> tuple[T, ...]:
    """The values as a tuple; TypeError if one is of another type.

    `model_copy` does not validate, so a wrong type would only be noticed when the state is loaded.
    """
    checked = tuple(values)
    for value in checked:
        if not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}: {value!r:.80}")
    return checked


def _thaw(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _thaw(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_thaw(item) for item in value]
    return value.value if isinstance(value, Enum) else value
