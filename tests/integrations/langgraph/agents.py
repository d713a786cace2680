"""A deep agent whose model follows a script: no network, no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepagents import create_deep_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from tests.integrations.langgraph.graphs import Graph, Saver


def call(name: str, number: int, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call {number}"}])


SCRIPT = (
    call("write_todos", 1, todos=[{"content": "write it down", "status": "in_progress"}]),
    call("write_file", 2, file_path="/note.md", content="the station is in the north"),
    AIMessage("It is written down."),
    call("read_file", 3, file_path="/note.md"),
    call("write_todos", 4, todos=[{"content": "write it down", "status": "completed"}]),
    AIMessage("It is in the north."),
)


class ScriptedModel(BaseChatModel):
    """Says the next line of its script: as many lines on as it has spoken in the conversation."""

    script: tuple[AIMessage, ...] = SCRIPT

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_args: Any, **_options: Any) -> ChatResult:
        spoken = sum(isinstance(message, AIMessage) for message in messages)
        return ChatResult(generations=[ChatGeneration(message=self.script[spoken].model_copy())])


def deep_agent(saver: Saver) -> Graph:
    """Asks before it writes a file."""
    return create_deep_agent(
        model=ScriptedModel(),
        middleware=[TodoListMiddleware()],
        interrupt_on={"write_file": True},
        checkpointer=saver,
    )
