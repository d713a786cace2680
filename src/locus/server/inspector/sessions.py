"""The sessions of those who look at the pages, and the codes and tokens that begin them.

A session begins with a one-time code, which `locus inspect` puts into the address that it opens, or with a token that
somebody pastes on the page to log in. The cookie holds a random text, and never the token. The server keeps a digest of
that text, and the id of the token: each request asks anew what that token may do, so a session ends when its token
does.

Sessions live in the memory of one process. They are bounded in time, and in number for each token.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from locus.server.auth import Grant, Guard

SESSION_SECONDS: Final = 12 * 3600.0
CODE_SECONDS: Final = 600.0
MOST_OF_A_TOKEN: Final = 8
"""The most sessions of one token. A new session takes the place of the oldest."""
MOST_CODES: Final = 8


@dataclass(frozen=True, slots=True)
class _Session:
    token_id: str
    """The id of the token that began the session; empty if a code did."""
    until: float


class Sessions:
    """The sessions of an inspector. With `by_code`, a session is needed even if the server has no tokens."""

    def __init__(
        self,
        guard: Guard,
        *,
        by_code: bool = False,
        seconds: float = SESSION_SECONDS,
        code_seconds: float = CODE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._guard = guard
        self._by_code = by_code
        self.seconds = seconds
        self._code_seconds = code_seconds
        self._clock = clock
        self._sessions: dict[bytes, _Session] = {}
        self._codes: dict[bytes, float] = {}

    @property
    def needed(self) -> bool:
        """True if nobody sees a page without a session."""
        return self._by_code or self._guard.has_tokens

    @property
    def takes_tokens(self) -> bool:
        return self._guard.has_tokens

    def new_code(self) -> str:
        """A code that begins one session, if it is used soon."""
        code = secrets.token_urlsafe(32)
        while len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        self._codes[_digest(code)] = self._clock() + self._code_seconds
        return code

    def redeem(self, code: str) -> str | None:
        """The secret of a new session; None if the code is not known, too old, or was used."""
        until = self._codes.pop(_digest(code), None)
        if until is None or self._clock() >= until:
            return None
        return self._begun("")

    def log_in(self, token: str) -> tuple[str, Grant]:
        """The secret of a new session for a token, and the token's grant. Raises a problem for an unknown token."""
        grant = self._guard.admit(f"Bearer {token.strip()}")
        return self._begun(grant.token_id), grant

    def _begun(self, token_id: str) -> str:
        self._drop_old()
        same = [digest for digest, session in self._sessions.items() if session.token_id == token_id]
        for digest in same[: max(0, len(same) - MOST_OF_A_TOKEN + 1)]:
            del self._sessions[digest]
        secret = secrets.token_urlsafe(32)
        self._sessions[_digest(secret)] = _Session(token_id, self._clock() + self.seconds)
        return secret

    def _drop_old(self) -> None:
        now = self._clock()
        self._sessions = {
            digest: session
            for digest, session in self._sessions.items()
            if now < session.until and self._grant_of(session) is not None
        }

    def grant(self, given: Iterable[str]) -> Grant | None:
        """The grant of the session that one of these secrets names; None if there is none, or it has ended."""
        if not self.needed:
            return self._guard.grant_of("")
        for secret in given:
            session = self._sessions.get(_digest(secret))
            if session is not None and self._clock() < session.until:
                return self._grant_of(session)
        return None

    def _grant_of(self, session: _Session) -> Grant | None:
        if not session.token_id:  # of a code, which whoever started this server has
            return Grant()
        return self._guard.grant_of(session.token_id)

    def end(self, given: Iterable[str]) -> None:
        for secret in given:
            self._sessions.pop(_digest(secret), None)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(b"locus-inspector:" + secret.encode("utf-8", "surrogatepass")).digest()
