"""What items of conversations say, whoever saved them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.memory.conversations import Call, Utterance, conversation_path, utterance_of
from locus.memory.titles import user_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "type", "text", "message", "parts", "tool_calls", "toolUse", "function", "x"]
                + ["author", "invocation_id"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"role": "user", "content": "hi"}, Utterance("user", "hi")),
        (
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "name": "f", "arguments": {"a": 1}}]},
            Utterance("assistant", "", (Call("f", {"a": 1}, "1"),)),
        ),
        (
            {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "list_notes"}]},
            Utterance("assistant", "", (Call("list_notes", {}, "1"),)),
        ),
        (
            {"role": "tool", "content": "ok", "tool_call_id": "1", "name": "f"},
            Utterance("tool", "ok", answers="1", name="f"),
        ),
        ({"$type": "HumanMessage", "content": "hi", "id": "x"}, Utterance("user", "hi")),
        (
            {"$type": "AIMessage", "content": "", "tool_calls": [{"name": "f", "args": {}, "id": "1"}]},
            Utterance("assistant", "", (Call("f", {}, "1"),)),
        ),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
            Utterance("assistant", "", (Call("f", {"a": 1}, "c"),)),
        ),
        ({"type": "function_call_output", "call_id": "c", "output": "ok"}, Utterance("tool", "ok", answers="c")),
        (
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}],
            },
            Utterance("assistant", "a\nb"),
        ),
        (
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "1", "name": "f", "input": {}}],
            },
            Utterance("assistant", "a", (Call("f", {}, "1"),)),
        ),
        ({"role": "user", "content": [{"type": "image", "data": "AAAA"}]}, Utterance("user", "[image: 3 B]")),
        (
            {"type": "message", "role": "user", "contents": [{"type": "text", "text": "hi"}], "message_id": "m"},
            Utterance("user", "hi"),
        ),
        (
            {
                "type": "message",
                "role": "assistant",
                "contents": [
                    {"type": "text", "text": "a"},
                    {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
                ],
            },
            Utterance("assistant", "a", (Call("f", {"a": 1}, "c"),)),
        ),
        (
            {
                "type": "message",
                "role": "tool",
                "contents": [{"type": "function_result", "call_id": "c", "result": "ok"}],
            },
            Utterance("tool", "ok", answers="c"),
        ),
        (
            {"type": "message", "role": "user", "contents": [{"type": "uri", "uri": "https://x/y.png"}]},
            Utterance("user", "[file: https://x/y.png]"),
        ),
        (
            {"message": {"role": "user", "content": [{"text": "hi"}]}, "message_id": 0, "redact_message": None},
            Utterance("user", "hi"),
        ),
        (
            {
                "message": {"role": "user", "content": [{"text": "secret"}]},
                "message_id": 0,
                "redact_message": {"role": "user", "content": [{"text": "redacted"}]},
            },
            Utterance("user", "redacted"),
        ),
        (
            {
                "message": {
                    "role": "assistant",
                    "content": [{"text": "a"}, {"toolUse": {"toolUseId": "1", "name": "f", "input": {"a": 1}}}],
                },
                "keys": [[1, 0], {}],
            },
            Utterance("assistant", "a", (Call("f", {"a": 1}, "1"),)),
        ),
        (
            {"role": "user", "content": [{"toolResult": {"toolUseId": "1", "content": [{"text": "ok"}, {"json": 5}]}}]},
            Utterance("user", 'ok\n{"json": 5}', answers="1"),
        ),
        (
            {"type": "user", "uuid": "u", "message": {"role": "user", "content": "hi"}},
            Utterance("user", "hi"),
        ),
        (
            {
                "type": "assistant",
                "uuid": "u",
                "message": {
                    "role": "assistant",
                    "type": "message",
                    "content": [
                        {"type": "text", "text": "a"},
                        {"type": "tool_use", "id": "1", "name": "f", "input": {}},
                    ],
                },
            },
            Utterance("assistant", "a", (Call("f", {}, "1"),)),
        ),
        (
            {
                "type": "user",
                "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "ok"}]},
            },
            Utterance("user", "ok", answers="1"),
        ),
        ({"type": "user", "isMeta": True, "message": {"role": "user", "content": "hi"}}, Utterance("system", "hi")),
        ({"type": "custom-title", "customTitle": "A trip", "sessionId": "s"}, Utterance("custom-title", "A trip")),
        ("only text", Utterance("", "only text")),
        (
            {"invocation_id": "i", "author": "user", "content": {"parts": [{"text": "hi"}], "role": "user"}},
            Utterance("user", "hi"),
        ),
        (
            {
                "invocation_id": "i",
                "author": "clerk",
                "content": {"parts": [{"text": "a"}, {"function_call": {"id": "1", "name": "f", "args": {"a": 1}}}]},
            },
            Utterance("assistant", "a", (Call("f", {"a": 1}, "1"),), name="clerk"),
        ),
        (
            {
                "invocation_id": "i",
                "author": "clerk",
                "content": {"parts": [{"function_response": {"id": "1", "name": "f", "response": {"result": "ok"}}}]},
            },
            Utterance("tool", "ok", answers="1", name="f"),
        ),
        (
            {"invocation_id": "i", "author": "clerk", "content": {"parts": [{"inline_data": {"data": "AAAA"}}]}},
            Utterance("assistant", "[file: 3 B]", name="clerk"),
        ),
        (
            {"invocation_id": "i", "author": "clerk", "error_message": "quota", "actions": {}},
            Utterance("assistant", "quota", name="clerk"),
        ),
        (
            {"invocation_id": 5, "author": None, "content": {"parts": [None, {"x": 1}]}},
            Utterance("assistant", '{"x": 1}'),
        ),
        (7, Utterance("", "7")),
        ({"x": 1}, Utterance("", '{"x": 1}')),
    ],
)
def test_items_of_the_frameworks(item: Any, said: Utterance) -> None:
    assert utterance_of(item) == said


@given(JSON)
def test_any_json_is_shown(item: Any) -> None:
    assert isinstance(utterance_of(item).text, str)


def test_where_a_conversation_is() -> None:
    assert conversation_path([("tool_history",), ("messages",)]) == ("messages",)
    assert conversation_path([("channel_values", "messages"), ("channel_values", "docs")]) == (
        "channel_values",
        "messages",
    )
    assert conversation_path([("items",)]) == ("items",)
    in_session = ("state", "in_memory", "messages")
    assert conversation_path([("state", "todo", "items"), in_session]) == in_session
    assert conversation_path([("deep", "history")]) == ("deep", "history")
    assert conversation_path([("said:b",), ("agents", "x"), ("said:a",)]) == ("said:a",)
    assert conversation_path([("docs",)]) is None


def test_a_title_is_what_a_user_said() -> None:
    assert (
        user_text({"role": "user", "content": " Where is\n my order? " + "x" * 500})
        == ("Where is my order? " + "x" * 500)[:200]
    )
    assert user_text({"role": "assistant", "content": "hello"}) is None
    assert user_text({"role": "user", "contents": [{"type": "text", "text": "Where is it?"}]}) == "Where is it?"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            {
                "kind": "request",
                "instructions": "Be kind.",
                "parts": [
                    {"part_kind": "system-prompt", "content": "Be brief."},
                    {"part_kind": "user-prompt", "content": ["What is", {"kind": "image-url", "url": "https://x"}]},
                ],
            },
            Utterance("user", "What is\n[image: https://x]"),
        ),
        (
            {
                "kind": "response",
                "parts": [
                    {"part_kind": "thinking", "content": "Hm."},
                    {"part_kind": "text", "content": "I look."},
                    {"part_kind": "tool-call", "tool_name": "f", "args": '{"a": 1}', "tool_call_id": "c"},
                ],
            },
            Utterance("assistant", "I look.", (Call("f", {"a": 1}, "c"),), thought="Hm."),
        ),
        (
            {
                "kind": "request",
                "parts": [{"part_kind": "tool-return", "tool_name": "f", "content": "ok", "tool_call_id": "c"}],
            },
            Utterance("tool", "ok", answers="c", name="f"),
        ),
        (
            {"kind": "request", "parts": [{"part_kind": "system-prompt", "content": "Be brief."}]},
            Utterance("system", "Be brief."),
        ),
        ({"kind": "request", "parts": [7, {"part_kind": ["x"]}, {"content": "?"}]}, Utterance("system", "?")),
    ],
)
def test_entries_of_pydantic_ai(message: Any, said: Utterance) -> None:
    entry = {"id": "e", "parent_id": None, "message": message}
    assert utterance_of(entry) == said
    assert user_text(entry) == (" ".join(said.text.split()) if said.role == "user" else None)
