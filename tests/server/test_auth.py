"""Tokens as they are written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from locus.errors import ConfigurationError
from locus.server.auth import Grant, Guard, Token, parse_tokens, read_tokens
from locus.wire.problems import Problem

GOOD = "0123456789abcdef"


@pytest.mark.parametrize(
    "token", ["", "short", "with space in the middle", "ümlaut-ümlaut-ümlaut", "line\nbreak-line-break"]
)
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(ConfigurationError, match="at least 16"):
        Token(token)


@pytest.mark.parametrize("prefix", ["acme", "acme-", "acme_", "acme.", "a"])
def test_a_prefix_ends_with_a_delimiter(prefix: str) -> None:
    """Else it would reach the neighbour whose name goes on."""
    with pytest.raises(ConfigurationError, match="must end with / or :"):
        Token(GOOD, prefix=prefix)


@pytest.mark.parametrize("prefix", ["acme/", "acme:", "a/b/", "*/", "acme?/"])
def test_a_prefix_is_the_beginning_of_an_id_character_by_character(prefix: str) -> None:
    grant = Token(GOOD, prefix=prefix).grant
    assert grant.allows(f"{prefix}1")
    assert grant.allows(prefix)
    for other in ("acme", "acme-corp/1", "ACME/1", "xacme/1", "", "x/1"):
        assert not grant.allows(other)


def test_a_token_shows_itself_nowhere() -> None:
    token = Token(GOOD, "read", "acme/")
    assert GOOD not in repr(token)
    assert GOOD not in repr(vars(token))


def test_lines_of_tokens(tmp_path: Path) -> None:
    text = (
        f"\n# a comment\n{GOOD}1\n  {GOOD}2 read\n{GOOD}3 write acme/\r\n\t{GOOD}4\tread a:\n# {GOOD}5; {GOOD}6 write\n"
    )
    grants = [token.grant for token in parse_tokens(text)]
    assert grants == [Grant(True, ""), Grant(False, ""), Grant(True, "acme/"), Grant(False, "a:")]
    (tmp_path / "tokens").write_text(text)
    assert [token.digest for token in read_tokens(tmp_path / "tokens")] == [t.digest for t in parse_tokens(text)]
    with pytest.raises(ConfigurationError):
        read_tokens(tmp_path / "none")


@pytest.mark.parametrize("between", [";", " ; ", "; ", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\0"])
def test_a_line_has_one_token_and_nothing_separates_two(between: str) -> None:
    for line in (
        f"{GOOD}{between}{GOOD}2",
        f"{GOOD} read{between}{GOOD}2 write",
        f"{GOOD} read acme/{between}{GOOD}2",
    ):
        with pytest.raises(ConfigurationError, match="one token a line") as caught:
            parse_tokens(f"# a comment\n{line}\n")
        assert GOOD not in str(caught.value)


@pytest.mark.parametrize("line", [f"{GOOD} admin", f"{GOOD} read acme/ more", f"{GOOD} write acme"])
def test_a_line_that_is_no_token_is_refused_without_being_shown(line: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_tokens(line)
    assert GOOD not in str(caught.value)


def test_a_guard_without_tokens_lets_everybody_in_and_one_with_none_makes_no_sense() -> None:
    assert Guard(None).admit(None) == Grant()
    with pytest.raises(ConfigurationError):
        Guard([])


def test_a_guard_knows_its_tokens() -> None:
    guard = Guard([Token(GOOD), Token(f"{GOOD}2", "read", "acme/")])
    assert guard.admit(f"Bearer {GOOD}") == Grant(True, "")
    assert guard.admit(f"bearer  {GOOD}2 ") == Grant(False, "acme/")
    for wrong in (
        None,
        "",
        GOOD,
        f"Basic {GOOD}",
        "Bearer",
        f"Bearer {GOOD}3",
        f"Bearer {GOOD} {GOOD}",
        "Bearer \udcff",
    ):
        with pytest.raises(Problem) as caught:
            guard.admit(wrong)
        assert caught.value.status == 401
