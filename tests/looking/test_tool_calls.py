"""Tool calls, roles and changes of messages read the same in the terminal and in the browser."""

from __future__ import annotations

import json
from typing import Any

from locus.looking.tool_calls import (
    KNOWN_ROLES,
    ChangedSide,
    call_text,
    changed_sides,
    results_beside,
    role_of,
    speaker_of,
    style_of,
)
from locus.memory.conversations import Call, Utterance, utterance_of
from locus.memory.model.changes import ItemChange

CALL = {"id": "1", "function": {"name": "find", "arguments": '{"n": 1}'}}
OTHER_CALL = {"id": "2", "function": {"name": "find", "arguments": '{"n": 2}'}}


def test_a_call_is_an_arrow_its_name_and_its_arguments() -> None:
    call = Call("find", {"n": "ö"})
    assert call_text(call) == '→ find({"n": "ö"})'
    assert call_text(call, lambda value: json.dumps(value, indent=1)) == '→ find({\n "n": "\\u00f6"\n})'


def test_what_has_no_role_is_an_item_and_roles_of_others_have_one_style() -> None:
    assert (role_of(Utterance("", "hi")), role_of(Utterance("user", "hi"))) == ("item", "user")
    assert speaker_of(Utterance("tool", "5", name="find")) == "tool find"
    assert [style_of(role) for role in ("user", "narrator", "")] == ["user", "other", "other"]
    assert {"user", "assistant", "tool"} < KNOWN_ROLES


def said(*items: dict[str, Any]) -> list[Utterance]:
    return [utterance_of(item) for item in items]


def test_a_result_stands_beside_the_call_that_it_answers() -> None:
    calls = {"role": "assistant", "content": "I look.", "tool_calls": [CALL, OTHER_CALL]}
    second, first = ({"role": "tool", "tool_call_id": number, "content": number} for number in ("2", "1"))
    assert results_beside(said(calls, second, first)) == {(0, 0): 2, (0, 1): 1}


def test_a_result_belongs_to_one_earlier_call() -> None:
    call = {"role": "assistant", "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "1", "content": "5"}
    assert results_beside(said(result, call)) == {}
    assert results_beside(said(call, call, result)) == {(0, 0): 2}
    assert results_beside(said(call, {**result, "tool_calls": [OTHER_CALL]})) == {}
    assert results_beside(said({"role": "assistant", "tool_calls": [{"function": {"name": "find"}}]}, result)) == {}


def test_a_changed_message_shows_its_words_and_its_calls() -> None:
    before = {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}
    after = {**before, "tool_calls": [CALL, OTHER_CALL]}
    assert changed_sides(ItemChange("changed", 3, 3, before, after)) == (
        ChangedSide("assistant", 'I look.\n→ find({"n": 1})'),
        ChangedSide("assistant", 'I look.\n→ find({"n": 1})\n→ find({"n": 2})'),
    )
    assert changed_sides(ItemChange("added", None, 3, None, before))[0] is None
    assert changed_sides(ItemChange("removed", 3, None, before))[1] is None


def test_where_the_words_are_the_same_the_whole_item_is_shown() -> None:
    before, after = {"role": "user", "content": "hi", "seen": False}, {"role": "user", "content": "hi", "seen": True}
    sides = changed_sides(ItemChange("changed", 0, 0, before, after))
    assert [json.loads(side.text) for side in sides if side is not None] == [before, after]
    unknown = changed_sides(ItemChange("added", None, 0, None, {"x": 1}))[1]
    assert unknown == ChangedSide("", '{"x": 1}')
