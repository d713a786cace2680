"""Data that backends have stumbled over: ids that look like syntax, and values that JSON types change."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from locus.core.messages import ContentBlock, Message, ToolCall, ToolResult
from locus.core.state import AgentState, ToolExecution

SOAK: Final = os.environ.get("LOCUS_SOAK") == "1"


def budget(examples: int, steps: int = 30) -> settings:
    """Settings of hypothesis for a property: few repeatable examples, or with `LOCUS_SOAK=1` many random ones."""
    return settings(
        max_examples=examples * 20 if SOAK else examples,
        stateful_step_count=steps * 2 if SOAK else steps,
        derandomize=not SOAK,
        database=None,
        deadline=None,
        # The store is fresh per test and examples use threads of their own; the laws are run by many classes.
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
        ],
    )


HOSTILE_IDS: Final = (
    # quotes and SQL
    "'", '"', "a'; DROP TABLE checkpoints; --", "' OR '1'='1",
    # wildcards and escapes
    "%", "_", "a%b", "a_b", "axb", "*", "?", "a*", "[a]", "[!a]", "\\", "\\%",
    # separators
    ":", "a:b", "a:b:c", "/", "tenant/a", "tenant_a", "tenant\\a",
    # paths
    "..", "../../etc/passwd", ".", "a.",
    # white space and control characters
    "a", "a ", " a", "\t", "a\nb", "a\r\nb", "\0", "a\0", "a\0b", "\x7f\x1b[31m",
    # letters that some collations take for others
    "😀", "👩‍👩‍👧", "josé", "jose\u0301", "jose", "Alice", "alice", "ALICE", "ß", "ss", "ﬁ", "İ", "\u202eabc",
    "\ufeffabc", "\uffff",
    # an id that another one begins with
    "acme", "acme-corp",
    # paths and queries of JSON and of search engines
    "{a}", "{}a", "$.a", '$."a"', "@tag:{x}", '{"$gt": ""}', '{"match_all": {}}',
    # words that mean something to somebody
    "latest", "_checkpoints", "__proto__", "null", "None", "0", "00", "1e3", "true", "CON", "con.json", "%2e%2e%2f",
    "default", "#", "~", "-rf",
    # the longest
    "x" * 255, "x" * 254 + "y", "😀" * 255,
)  # fmt: skip
"""Valid ids that have to be kept apart exactly as given."""

LOOK_ALIKE_IDS: Final = (
    "'", "%", "_", "a_b", "axb", "*", "\\", ":", "a:b", "/", "tenant/a", "tenant_a", "..", "a", "a ", "\0", "a\0", "😀",
    "josé", "jose\u0301", "Alice", "alice", "ß", "ss", "{a}", "$.a", "latest", "default", "x" * 255, "x" * 254 + "y",
)  # fmt: skip
"""The hostile ids that stores have taken for each other or for syntax, for laws that would take minutes with all."""

BAD_IDS: Final[tuple[Any, ...]] = (
    "", "x" * 256, "a\ud800", "\udfff", 0, 7, True, 1.5, b"bytes", ["a"], ("a",), {"$gt": ""},
)  # fmt: skip
"""Values that are no ids."""

HOSTILE_QUERIES: Final = (
    "", " ", "\0", "*", '"', "'", '"unbalanced', "(", ") OR (", "NEAR(", "AND", "NOT", "-", "^", "col:", "{a b}:",
    "%", "_", "\\", "!!!", "🦊", "'; DROP TABLE checkpoints; --", "@field:[0 1]", '{"match_all":{}}', "x" * 5_000,
)  # fmt: skip
"""Queries that are syntax to some database, and have to be only text."""

EXACT_VALUES: Final[tuple[Any, ...]] = (
    # constants
    None, True, False,
    # integers
    0, 1, -1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**40, 10**400 + 1,
    # floats
    0.0, -0.0, 1.0, 1e15, 1e16, 1e22, 1.5e300, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, 1 / 3,
    123456789.123456789,
    # texts
    "", " ", "\0", "a\0b", "\\u0000", "\u2028\u2029", "\ufffe\uffff", "😀 e\u0301 é \u202e", "1", "true", "null",
    # lists and dicts that are nearly empty, or nearly equal
    [], {}, [[]], [{}], {"a": []}, [[[[1]]], []], [None], [1, 1.0, True, "1"], [0, 0.0, -0.0, False, None, ""],
    # tags of Locus's own encoding
    {"": ""}, {"$locus:float": "1e+22"}, {"$locus:dict": []}, {"$locus:str": '"\\u0000"'},
    {"$locus:int": "12", "b": 1},
    # keys that mean something to somebody
    {"__proto__": {"x": 1}, "a.b": {"c.d": 1}, "a": {"b": {"c": {"d": 2}}}},
    {'"': 1, "'": 2, "\\": 3, "\0": 4, "$": 5, "[0]": 6, "😀": 7, "*": 8}, {"0": "zero", "1": [1, {"2": []}]},
    {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "true"}},
    {"py/object": "os.system", "__class__": "subprocess.Popen", "__reduce__": ["eval", ["1"]]},
    # sizes at which a value is stored in another way
    "x" * 1_023, "x" * 1_024, "é" * 5_000, {"big": "y" * 3_000, "small": 1},
    {"text": "z" * 2_000, "list": [{"n": index, "t": "w" * 50} for index in range(40)]},
    [{"n": index, "text": "v" * 40} for index in range(100)], list(range(300)),
    [[index, [index]] for index in range(50)],
)  # fmt: skip
"""JSON values that have come back changed from one database or another."""

HOSTILE_KEYS: Final = (
    "", "$locus:float", "$locus:dict", "__proto__", "a.b", "a", '"', "'", "') OR 1=1 --", "$.x", "[0]", "*", "%",
    "\0", "a\0", "😀", "key with spaces ", "null", "x" * 300,
)  # fmt: skip
"""Keys of metadata and payloads that look like a path, a tag or a query."""

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", "\0", "😀", "e\u0301", "x" * 1_100, "$locus:str"]
)
_numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([2**70, -0.0, 1e22])
scalars: Final = st.none() | st.booleans() | _numbers | _texts
keys: Final = st.sampled_from(["a", "b", "c", *HOSTILE_KEYS]) | _texts


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4)


json_values: Final = st.recursive(scalars, _nested, max_leaves=12)
"""Any value that JSON can hold."""

payloads: Final = st.dictionaries(keys, json_values, max_size=4)
"""Any plain payload."""

histories: Final = st.lists(payloads, min_size=2, max_size=5)
"""Payloads that follow one another in a thread, and mostly share their keys."""


def at(second: int) -> datetime:
    """A fixed moment, `second` seconds into a day."""
    return datetime(2024, 5, 17, 8, second // 60, second % 60, 123456, tzinfo=UTC)


def message(number: int, size: int = 30) -> Message:
    """A message that differs from the messages of other numbers."""
    make: Callable[[str], Message] = Message.user if number % 2 == 0 else Message.assistant
    return make(f"message {number} {'lorem ipsum '[: size % 13] * (size // 12 + 1)}")


def conversation(count: int, start: int = 0) -> list[Message]:
    return [message(number) for number in range(start, start + count)]


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda items, fresh: items + fresh[:1],
    "append more": lambda items, fresh: items + fresh,
    "trim": lambda items, fresh: items[2:] + fresh[:1],
    "halve": lambda items, fresh: items[len(items) // 2 :],
    "edit last": lambda items, fresh: items[:-1] + fresh[:2],
    "edit middle": lambda items, fresh: items[: len(items) // 2] + fresh[:1] + items[len(items) // 2 + 1 :],
    "drop last": lambda items, fresh: items[:-1],
    "shuffle": lambda items, fresh: items[len(items) // 2 :] + items[: len(items) // 2],
    "replace": lambda items, fresh: fresh,
    "keep": lambda items, fresh: items,
}
"""Changes of a list, given items that were never used. Slices remember where they came from."""


def rich_state() -> AgentState:
    """A state with everything that a state can have, and fields that it does not know."""
    call = ToolCall(id="call-1", name="search", arguments={"q": "ö", "deep": [1, {"x": None}], "f": -0.0})
    result = ToolResult(
        tool_call_id="call-1", name="search", content="3 hits", structured_content={"rows": [[1, 2.0], []]}
    )
    blocks = [
        ContentBlock.of_text("look: \0 😀"),
        ContentBlock.image_url("https://example.org/a.png", "image/png"),
        ContentBlock.image_base64("aGk="),
        ContentBlock(type="thinking", signature="abc", steps=[{"n": 1}, []]),  # type: ignore[call-arg]
    ]
    state = AgentState(
        agent_id="agent ü",
        run_id="run",
        max_iterations=7,
        started_at=at(0),
        updated_at=at(1),
        future_field={"kept": [1, {"as": "is"}]},  # type: ignore[call-arg]
        future_list=[[], {}, "x", 1.0],
    )
    execution = ToolExecution(
        tool_name="search", tool_call_id="call-1", arguments={"q": [1]}, result="3 hits", duration_ms=1e-7
    )
    return (
        state.with_messages([Message.system("be brief"), Message.user(blocks), Message.user("")])
        .with_message(Message.assistant(None, [call]))
        .with_message(Message.tool(result))
        .with_message(Message.model_validate({"role": "user", "content": "hi", "custom": {"a": [1, None]}}))
        .with_tool_execution(execution)
        .with_confidence(0.1)
        .with_confidence(1 / 3)
        .with_error("first")
        .with_token_usage(12, 34)
        .with_metadata({"": 1, "a.b": [True, 1, 1.0], "big": "m" * 1_500, "$locus:int": "5", "nested": {"l": [[]]}})
    )
