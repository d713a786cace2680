"""llmfy's real `FlowEngine` on checkpointers of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from llmfy import END, START, FlowEngine, Send
from llmfy.exception.llmfy_exception import CheckpointDeserializationException, NodeExecutionException
from pydantic import BaseModel

from locus.integrations.llmfy import InMemoryCheckpointer, LlmfyCheckpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.stores import TestStore


def joined(old: list[Any] | None, new: list[Any]) -> list[Any]:
    return (old or []) + new


class Shopping(TypedDict, total=False):
    topic: str
    log: Annotated[list[Any], joined]


class Order(BaseModel):
    item: str
    count: int


@dataclass
class Note:
    text: str


def noting(name: str, *, fails: list[bool] | None = None) -> Any:
    """A node that writes its name into the log; while `fails` says so, it crashes instead."""

    async def node(state: Shopping) -> dict[str, Any]:
        if fails and fails.pop():
            raise RuntimeError(f"{name} has crashed")
        return {"log": [name]}

    return node


def built(flow: FlowEngine) -> FlowEngine:
    flow.build()  # type: ignore[no-untyped-call]
    return flow


def line(checkpointer: Any, *, fails: list[bool] | None = None, **options: Any) -> FlowEngine:
    """plan -> buy -> eat"""
    flow = FlowEngine(Shopping, checkpointer=checkpointer, **options)
    for name in ("plan", "buy", "eat"):
        flow.add_node(name, noting(name, fails=fails if name == "buy" else None))
    for edge in ((START, "plan"), ("plan", "buy"), ("buy", "eat"), ("eat", END)):
        flow.add_edge(*edge)
    return built(flow)


async def test_a_flow_saves_after_every_node_and_can_be_asked(handle: Checkpointer) -> None:
    kept = LlmfyCheckpointer(handle)
    flow = line(kept)
    final = await flow.invoke({"topic": "soup"}, session_id="alice")
    assert final == {"topic": "soup", "log": ["plan", "buy", "eat"]}
    assert await flow.get_state("alice") == final
    found = await flow.list_checkpoints("alice")
    assert [(one.metadata.node, one.metadata.prev_node, one.state["log"]) for one in found] == [
        ("eat", "buy", ["plan", "buy", "eat"]),
        ("buy", "plan", ["plan", "buy"]),
        ("plan", START, ["plan"]),
    ]
    assert len({one.metadata.run_id for one in found}) == 1
    middle = await flow.get_checkpoint("alice", found[1].metadata.checkpoint_id)
    assert middle == found[1]
    await flow.reset_session("alice")
    assert await flow.get_state("alice") is None


async def test_a_flow_goes_on_where_a_crash_has_left_it(store: TestStore) -> None:
    async with store.open() as handle:
        with pytest.raises(NodeExecutionException):
            await line(LlmfyCheckpointer(handle), fails=[True]).invoke({"topic": "soup"}, session_id="alice")
    async with store.open() as handle:
        kept = LlmfyCheckpointer(handle)
        final = await line(kept).invoke(session_id="alice")
        assert final == {"topic": "soup", "log": ["plan", "buy", "eat"]}
        runs = [about.run_id for about in await kept.history("alice")]
        assert len(runs) == 3
        assert runs[0] == runs[1] != runs[2]


async def test_a_fan_out_saves_every_branch(handle: Checkpointer) -> None:
    kept = LlmfyCheckpointer(handle)
    flow = FlowEngine(Shopping, checkpointer=kept)
    branches = ("bread", "milk", "eggs")
    for name in ("plan", *branches, "eat"):
        flow.add_node(name, noting(name))
    flow.add_edge(START, "plan")
    flow.add_edge("plan", list(branches))
    for name in branches:
        flow.add_edge(name, "eat")
    flow.add_edge("eat", END)
    built(flow)
    final = await flow.invoke(session_id="alice")
    assert sorted(final["log"]) == ["bread", "eat", "eggs", "milk", "plan"]
    nodes = [about.node for about in await kept.history("alice")]
    assert sorted(nodes) == sorted(final["log"])
    assert (nodes[0], nodes[-1]) == ("eat", "plan")
    assert await flow.get_state("alice") == final


async def test_a_fan_out_of_any_width_is_one_checkpoint(handle: Checkpointer) -> None:
    async def each(state: dict[str, Any]) -> dict[str, Any]:
        return {"log": [state["item"]]}

    kept = LlmfyCheckpointer(handle)
    flow = FlowEngine(Shopping, checkpointer=kept)
    flow.add_node("plan", noting("plan"))
    flow.add_node("each", each)
    flow.add_node("eat", noting("eat"))
    flow.add_edge(START, "plan")
    flow.add_conditional_edges("plan", lambda _state: [Send("each", {"item": n}) for n in range(5)], ["each"])
    flow.add_edge("each", "eat")
    flow.add_edge("eat", END)
    built(flow)
    events = [event async for event in flow.stream(session_id="alice")]
    assert events
    assert await flow.get_state("alice") == {"log": ["plan", 0, 1, 2, 3, 4, "eat"]}
    about = await kept.history("alice")
    assert [one.node for one in about] == ["eat", "each", "plan"]
    assert about[1].dispatch_id is not None
    assert about[1].attempt is None


async def test_objects_of_registered_types_come_back_and_others_are_refused(handle: Checkpointer) -> None:
    objects = [Order(item="egg", count=6), Note("soft"), {"nested": [Note("hard")]}]
    flow = line(LlmfyCheckpointer(handle), types=[Order, Note])
    final = await flow.invoke({"log": objects}, session_id="alice")
    again = await line(LlmfyCheckpointer(handle), types=[Order, Note]).get_state("alice")
    assert again == final
    assert again["log"][:3] == objects
    with pytest.raises(CheckpointDeserializationException, match="Order"):
        await line(LlmfyCheckpointer(handle)).invoke({"log": objects}, session_id="bob")


async def test_sessions_of_many_turns_store_each_item_once(handle: Checkpointer) -> None:
    kept = LlmfyCheckpointer(handle)
    flow = line(kept)
    for number in range(5):
        await flow.invoke({"log": [{"question": number, "text": "x" * 200}]}, session_id="alice")
    final = await flow.get_state("alice")
    assert final is not None
    assert len(final["log"]) == 20
    stored = await handle.store.read("alice", None, "llmfy")
    assert stored is not None
    # One branch, which every save has continued: nothing was written a second time.
    ((_branch, runs),) = stored.runs.items()
    assert sum(run.length for run in runs) == 20


async def test_our_checkpointer_in_memory_keeps_live_objects() -> None:
    kept = InMemoryCheckpointer()
    marker = object()
    flow = line(kept)
    final = await flow.invoke({"log": [marker]}, session_id="alice")
    assert final["log"][1:] == ["plan", "buy", "eat"]
    assert kept.get_stats()["checkpoints_per_session"] == {"alice": 3}
    found = await flow.list_checkpoints("alice")
    assert [one.metadata.node for one in found] == ["eat", "buy", "plan"]
    with pytest.raises(NodeExecutionException):
        await line(kept, fails=[True]).invoke(session_id="bob")
    assert (await line(kept).invoke(session_id="bob"))["log"] == ["plan", "buy", "eat"]
