"""The messages of a conversation, from the system, the user, the assistant and the tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any
from uuid import uuid4

from pydantic import AfterValidator, Field, model_validator

from locus.core.frozen import EMPTY, Frozen, FrozenMapping, FrozenValue, Items, as_items, trust
from locus.core.media import media_label


class Role(StrEnum):
    """Who a message is from."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@trust()
class ContentBlock(Frozen):
    """One part of a message: text; an image, audio or a file, by URL or as base64; or what only the provider knows.

    Fields of kinds that this class does not name are kept as they are. `str` of a block is what people are shown.
    """

    type: str
    text: str | None = None
    url: str | None = None
    data: str | None = None
    media_type: str | None = None

    @classmethod
    def of_text(cls, text: str) -> ContentBlock:
        return cls(type="text", text=text)

    @classmethod
    def image_url(cls, url: str, media_type: str | None = None) -> ContentBlock:
        return cls(type="image", url=url, media_type=media_type)

    @classmethod
    def image_base64(cls, data: str, media_type: str = "image/png") -> ContentBlock:
        return cls(type="image", data=data, media_type=media_type)

    @classmethod
    def audio_base64(cls, data: str, media_type: str = "audio/wav") -> ContentBlock:
        return cls(type="audio", data=data, media_type=media_type)

    @classmethod
    def file_base64(cls, data: str, media_type: str = "application/pdf", name: str | None = None) -> ContentBlock:
        return cls.model_validate(_file(name) | {"data": data, "media_type": media_type})

    @classmethod
    def file_url(cls, url: str, media_type: str = "application/pdf", name: str | None = None) -> ContentBlock:
        return cls.model_validate(_file(name) | {"url": url, "media_type": media_type})

    def __str__(self) -> str:
        if self.text is not None:
            return self.text
        return media_label(self.model_dump(exclude_none=True)) or f"[{self.type}]"


def _file(name: str | None) -> dict[str, Any]:
    return {"type": "file"} if name is None else {"type": "file", "name": name}


Content = str | Annotated[tuple[ContentBlock, ...], AfterValidator(as_items)] | None


@trust()
class ToolCall(Frozen):
    """A tool call that the assistant asks for."""

    id: str = Field(default_factory=lambda: f"call_{uuid4().hex[:12]}")
    name: str
    arguments: FrozenMapping = EMPTY

    @model_validator(mode="before")
    @classmethod
    def _accept_args(cls, data: Any) -> Any:
        """Take `args` for `arguments`, because some providers call them that."""
        if isinstance(data, dict) and "args" in data and "arguments" not in data:
            return {**{k: v for k, v in data.items() if k != "args"}, "arguments": data["args"]}
        return data


@trust()
class ToolResult(Frozen):
    """The outcome of a tool call: `content`, or `error` if the tool failed."""

    tool_call_id: str
    name: str
    content: str = ""
    error: str | None = None
    duration_ms: float | None = None
    structured_content: FrozenValue = None

    @property
    def success(self) -> bool:
        return self.error is None


@trust("content", "tool_calls")
class Message(Frozen):
    """One message of a conversation. Immutable; `model_copy(update=…)` makes a changed one."""

    role: Role
    content: Content = None
    tool_calls: Annotated[tuple[ToolCall, ...], AfterValidator(as_items)] = Items()
    tool_call_id: str | None = None
    name: str | None = None
    metadata: FrozenMapping = EMPTY

    @classmethod
    def system(cls, content: str | Sequence[ContentBlock]) -> Message:
        return cls._of(Role.SYSTEM, content)

    @classmethod
    def user(cls, content: str | Sequence[ContentBlock]) -> Message:
        return cls._of(Role.USER, content)

    @classmethod
    def human(cls, content: str | Sequence[ContentBlock]) -> Message:
        """Another name of `user`."""
        return cls.user(content)

    @classmethod
    def assistant(
        cls,
        content: str | Sequence[ContentBlock] | None = None,
        tool_calls: Iterable[ToolCall] | None = None,
    ) -> Message:
        return cls._of(Role.ASSISTANT, content, tool_calls=tuple(tool_calls or ()))

    @classmethod
    def tool(cls, result: ToolResult) -> Message:
        """The message that answers the call `result.tool_call_id`."""
        content = result.content if result.error is None else result.content or f"Error: {result.error}"
        facts = {
            "error": result.error,
            "duration_ms": result.duration_ms,
            "structured_content": result.structured_content,
        }
        return cls._of(
            Role.TOOL,
            content,
            tool_call_id=result.tool_call_id,
            name=result.name,
            metadata={key: value for key, value in facts.items() if value is not None},
        )

    @classmethod
    def _of(cls, role: Role, content: str | Sequence[ContentBlock] | None, **fields: Any) -> Message:
        return cls(
            role=role,
            content=content if content is None or isinstance(content, str) else tuple(content),
            **fields,
        )

    @property
    def text(self) -> str:
        """All text of the message, whichever form its content has."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(block.text for block in self.content or () if block.text)
