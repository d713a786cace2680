"""Messages come back equal, whichever of their fields are missing, empty, or set to their defaults."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint

from locus.integrations.langgraph import LocusSaver
from tests.integrations.every_field import FEW, objects

MESSAGES = st.one_of(
    [objects(kind) for kind in (AIMessage, HumanMessage, SystemMessage, ToolMessage)]
    + [objects(RemoveMessage, id=st.sampled_from(["", "a"]))]
)


@FEW
@given(st.lists(MESSAGES, max_size=3), st.booleans())
def test_messages_come_back_equal(messages: list[AnyMessage], in_a_list: bool) -> None:
    values: dict[str, Any] = {"messages": messages if in_a_list else {str(n): one for n, one in enumerate(messages)}}
    with LocusSaver("memory") as saver:
        checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": {"messages": 1}}
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        saved = saver.put(config, checkpoint, {}, {"messages": 1})  # type: ignore[arg-type]
        found = saver.get_tuple(saved)
    assert found is not None
    assert found.checkpoint["channel_values"] == values
    assert [type(one) for one in found.checkpoint["channel_values"]["messages"]] == [
        type(one) for one in values["messages"]
    ]
