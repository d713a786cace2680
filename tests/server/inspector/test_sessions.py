"""One-time codes, sessions and what ends them."""

from __future__ import annotations

import pytest

from locus.server import Token
from locus.server.auth import Grant, Guard
from locus.server.inspector.sessions import MOST_CODES, MOST_OF_A_TOKEN, Sessions
from locus.wire.problems import Problem
from tests.server.running import ACME, ACME_READER, READER, WRITER


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def sessions(*tokens: Token, by_code: bool = False) -> tuple[Sessions, Guard, Clock]:
    guard, clock = Guard(tokens or None), Clock()
    return Sessions(guard, by_code=by_code, seconds=1_000, code_seconds=60, clock=clock), guard, clock


def test_a_code_begins_one_session() -> None:
    found, _, _ = sessions(by_code=True)
    code = found.new_code()
    secret = found.redeem(code)
    assert secret is not None
    assert code not in secret
    assert found.grant([secret]) == Grant()
    assert found.redeem(code) is None
    assert found.redeem("") is None
    assert found.redeem("another") is None


def test_a_code_is_soon_too_old() -> None:
    found, _, clock = sessions(by_code=True)
    code = found.new_code()
    clock.now += 60
    assert found.redeem(code) is None


def test_without_a_session_nothing_is_granted() -> None:
    found, _, _ = sessions(by_code=True)
    assert found.needed
    assert found.grant([]) is None
    assert found.grant(["", "made up"]) is None
    assert found.grant([found.new_code()]) is None


def test_a_session_ends() -> None:
    found, _, clock = sessions(by_code=True)
    secret = found.redeem(found.new_code()) or ""
    clock.now += 999
    assert found.grant([secret]) is not None
    clock.now += 1
    assert found.grant([secret]) is None
    again = found.redeem(found.new_code()) or ""
    found.end([again])
    assert found.grant([again]) is None


def test_codes_and_sessions_are_bounded_in_number() -> None:
    found, _, _ = sessions(by_code=True)
    codes = [found.new_code() for _ in range(MOST_CODES + 1)]
    secrets = [found.redeem(code) for code in codes]
    assert [secret is None for secret in secrets] == [True, *[False] * MOST_CODES]
    more = found.redeem(found.new_code())
    assert found.grant([secrets[1] or ""]) is None
    assert found.grant([secrets[2] or ""]) is not None
    assert found.grant([more or ""]) is not None


def test_one_token_takes_no_place_of_another() -> None:
    found, _, _ = sessions(Token(WRITER), Token(ACME, prefix="acme/"))
    own, _ = found.log_in(WRITER)
    others = [found.log_in(ACME)[0] for _ in range(2 * MOST_OF_A_TOKEN)]
    assert found.grant([own]) == Grant()
    assert sum(found.grant([secret]) is not None for secret in others) == MOST_OF_A_TOKEN


def test_a_session_may_what_its_token_may_now() -> None:
    found, guard, _ = sessions(Token(WRITER), Token(ACME, prefix="acme/"))
    secret, grant = found.log_in(f" {ACME}\n")
    assert grant == Grant(True, "acme/")
    assert ACME not in secret
    guard.use([Token(WRITER), Token(ACME, "read", "acme/")])
    assert found.grant([secret]) == Grant(False, "acme/")
    guard.use([Token(WRITER)])
    assert found.grant([secret]) is None
    guard.use([Token(WRITER), Token(ACME, prefix="acme/")])
    assert found.grant([secret]) == Grant(True, "acme/")
    guard.use([Token(READER, "read")])
    found.log_in(READER)  # which is when sessions of tokens that are gone are let go
    guard.use([Token(ACME, prefix="acme/")])
    assert found.grant([secret]) is None


def test_a_token_that_is_not_known_begins_nothing() -> None:
    found, _, _ = sessions(Token(WRITER))
    for wrong in ("", ACME_READER, f"{WRITER} {WRITER}", WRITER[:-1]):
        with pytest.raises(Problem) as caught:
            found.log_in(wrong)
        assert caught.value.status == 401


def test_nothing_that_is_kept_is_the_secret_or_the_token() -> None:
    found, _, _ = sessions(Token(ACME))
    secret, _ = found.log_in(ACME)
    code = found.new_code()
    kept = repr(vars(found))
    assert secret not in kept
    assert code not in kept
    assert ACME not in kept


def test_where_the_api_needs_no_token_the_pages_need_no_session() -> None:
    found, _, _ = sessions()
    assert not found.needed
    assert found.grant([]) == Grant()
