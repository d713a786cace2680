"""Trees of JSON values, however large they are."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from locus.server.inspector.trees import DEEPEST, LONGEST, MOST, TreeNode, folded, is_encoded, tree

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=30,
)


def _count(node: TreeNode) -> int:
    return 1 + sum(map(_count, node.children))


@given(VALUES)
def test_a_small_value_is_shown_whole(value: Any) -> None:
    node = tree(value, "it")
    assert node.name == "it"
    if isinstance(value, dict):
        assert [child.name for child in node.children] == list(value)
    elif isinstance(value, list):
        assert len(node.children) == len(value)
    assert not node.more


def test_a_large_value_is_cut_and_says_so() -> None:
    node = tree(list(range(10 * MOST)))
    assert _count(node) == MOST + 1
    assert node.more == f"{9 * MOST:,} more"
    text = tree("x" * (LONGEST + 5) + " ")
    assert (len(text.text), text.more) == (LONGEST, "6 more characters")


def test_a_deep_value_ends() -> None:
    value: Any = 1
    for _ in range(10 * DEEPEST):
        value = [value]
    assert _count(tree(value)) == DEEPEST + 1


def test_base64_is_named_by_its_size() -> None:
    text = base64.b64encode(bytes(range(256)) * 8).decode()
    assert is_encoded(text) == "base64, 2,049 bytes"
    assert is_encoded(f"data:image/png;base64,{text}") is not None
    assert is_encoded(text[:100]) is None
    assert is_encoded("plain words " * 200) is None
    assert tree({"image": text}).children[0].kind == "bytes"
    assert text not in folded({"image": [text]})[0]
