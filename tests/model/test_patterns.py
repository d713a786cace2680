"""Which range of ids a pattern stands for: databases read that range, and nothing else."""

from __future__ import annotations

from itertools import product

from locus.memory.model.ids import Pattern

_ALPHABET = ("", "a", "b", "\0", "\U0010ffff")
_IDS = ["".join(letters) for letters in product(_ALPHABET, repeat=3)]
_TEXTS = ("*", "a*", "a", "ab", "ab*", "?", "a?", "*a", "a*b", "**", "a**", "", "b\U0010ffff*", "\U0010ffff*")


def test_every_match_is_in_the_range() -> None:
    ids = sorted({*_IDS} - {""})
    for text, within, after in product(_TEXTS, ("", "a", "ab", "b", "\U0010ffff"), ("", "a", "ab", "b", "\U0010ffff")):
        pattern = Pattern(text, within, after)
        matches = [name for name in ids if pattern.matches(name)]
        in_range = [
            name
            for name in ids
            if (name > after if pattern.from_after else name >= pattern.prefix)
            and (pattern.end is None or name < pattern.end)
        ]
        assert {*matches} <= {*in_range}, pattern
        if pattern.matches_range:
            assert matches == in_range, pattern
        if pattern.matches_none:
            assert matches == [], pattern


def test_what_needs_no_look_at_each_id() -> None:
    for text in ("*", "a*", "ab", "a**"):
        assert Pattern(text).matches_range
        assert Pattern(text, "a").matches_range
    for text in ("?", "a?", "*a", "a*b"):
        assert not Pattern(text).matches_range
    assert Pattern("b*", "a").matches_none
    assert Pattern("a", "ab").matches_none
    assert Pattern("*", "a", "b").matches_none
    assert Pattern("*", "a" * 256).matches_none
