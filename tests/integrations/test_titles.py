"""Titles of threads that frameworks have saved: each in its own shape."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agents.items import TResponseInputItem
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from locus.core.messages import ContentBlock, Message
from locus.core.state import AgentState
from locus.integrations.claude_agent_sdk import LocusSessionStore
from locus.integrations.langgraph import LocusSaver
from locus.integrations.llmfy import LlmfyCheckpointer
from locus.integrations.llmfy.in_memory import Checkpoint, CheckpointMetadata
from locus.integrations.openai_agents import LocusSession
from locus.memory.backends import sqlite_checkpointer
from locus.memory.titles import user_text


def _answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"Answer to {len(state['messages'])} messages")]}


async def test_every_framework_has_titles(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        blocks = (ContentBlock.of_text("What is"), ContentBlock.of_text("this?"))
        state = AgentState().with_message(Message.user(blocks)).with_message(Message.assistant("A cat."))
        await store.save(state, "agent")

        inner = StateGraph(MessagesState).add_node("answer", _answer).add_edge(START, "answer").add_edge("answer", END)
        outer = StateGraph(MessagesState).add_node("inner", inner.compile(checkpointer=True)).add_edge(START, "inner")
        graph = outer.compile(checkpointer=LocusSaver(store))
        config: Any = {"configurable": {"thread_id": "graph"}}
        for text in ("How are you?", "And now?"):
            await graph.ainvoke({"messages": [SystemMessage("Be kind."), HumanMessage(text)]}, config)

        items: list[TResponseInputItem] = [
            {"role": "user", "content": [{"type": "input_text", "text": "Where is my parcel?"}]},
            {"role": "user", "content": "And when?"},
        ]
        await LocusSession("session", store).add_items(items)

        entries: list[Any] = [
            {"type": "custom-title", "customTitle": "A title", "sessionId": "s"},
            {"type": "user", "isMeta": True, "message": {"role": "user", "content": "A caveat."}},
            {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "Mend the tests."}]}},
        ]
        await LocusSessionStore(store).append({"project_key": "p", "session_id": "s"}, entries)

        about = CheckpointMetadata(
            "c1", "flow", "run", datetime.now(UTC), "node", "__start__", 0, ["messages"], 1, None
        )
        said = [{"role": "system", "content": "x"}, {"role": "user", "content": "Tell me a story."}]
        await LlmfyCheckpointer(store).save(Checkpoint(metadata=about, state={"messages": said}))

        page = await store.recent_threads(titles=True)
        assert {one.thread_id: one.title for one in page.threads} == {
            "agent": "What is this?",
            "graph": "How are you?",
            "session": "Where is my parcel?",
            "p/s": "Mend the tests.",
            "flow": "Tell me a story.",
        }


def test_what_is_no_message_of_a_user_is_no_title() -> None:
    message: Any
    for message in (
        None,
        5,
        "user",
        [],
        {},
        {"role": "assistant", "content": "x"},
        {"role": ["user"], "content": "x"},
        {"role": "user"},
        {"role": "user", "content": " \n"},
        {"role": "user", "content": {"text": 5}},
        {"role": "user", "content": [None, 5, {"type": "image"}]},
        {"type": "HumanMessage", "content": []},
    ):
        assert user_text(message) is None
    assert user_text({"role": "user", "content": "x" * 10_000_000}) == "x" * 200
    assert user_text({"role": "user", "content": ["a\nb", {"text": " c "}] * 3}) == "a b c a b c a b c"
    assert user_text({"role": "user", "content": ["word"] * 1_000_000}) is not None
