"""Bearer tokens. Each grants read or write access to one tenant's threads.

A tenant is a prefix of thread ids. It is compared character by character and ends with `/` or `:`, so that the tenant
`acme/` never sees the threads of `acme-corp/`. The thread id alone decides whether access is granted, so a refusal does
not reveal whether the thread exists. Only digests of tokens are kept.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from locus.errors import ConfigurationError
from locus.memory.model.arguments import possible_path
from locus.memory.model.ids import check_text
from locus.server.quotas import OwnQuota, Quota
from locus.wire.problems import FORBIDDEN, UNAUTHENTICATED, Problem

Access = Literal["read", "write"]

LEAST_CHARACTERS = 16
DELIMITERS = ("/", ":")
GRANT_KEY = "locus.grant"
"""The key in the ASGI scope of a request for its `Grant`."""

GRANT_NOW_KEY = "locus.grant_now"
"""The key in the ASGI scope of a request for a page, for a function: the grant of its session now; None if it ended."""

THREADS_KEY = "locus.threads"
"""The key in the ASGI scope of a request for the list of thread ids that the request names."""

TOKEN_FILE = "the token file"
_TOKEN = re.compile(r"[\x21-\x7e]+")
_SEPARATORS = re.compile(r"[;\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
"""Some editors and formats end a line or an item with one of these. In a line of tokens none of them stands."""
_MOST_CHARACTERS = 4 * 1024 * 1024
"""The most characters of a token file, enough for some ten thousand tokens."""

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="locus"'}


class Token:
    """A bearer token and what it allows. `write` includes `read`; without a prefix it allows all threads.

    `quota` is how much it may save in a day, if that differs from the quota of the server.
    """

    def __init__(
        self, token: str, access: Access = "write", prefix: str = "", *, quota: Quota | OwnQuota | None = None
    ) -> None:
        if not isinstance(token, str) or not _TOKEN.fullmatch(token) or len(token) < LEAST_CHARACTERS:
            raise ConfigurationError(
                f"a token has at least {LEAST_CHARACTERS} characters, without spaces. Make one with: locus token"
            )
        if access not in ("read", "write"):
            raise ConfigurationError(f"a token allows read or write, not {access!r:.40}")
        if prefix and not prefix.endswith(DELIMITERS):
            # The text leaves out the prefix, which is the id of a tenant, because it may reach a log.
            raise ConfigurationError(
                "the prefix of a token must end with / or :, or it would also allow threads of others whose "
                "names begin like it, as acme would those of acme-corp"
            )
        check_text(prefix, "prefix")
        self.digest = _digest(token)
        own = OwnQuota(quota.saves, quota.bytes) if isinstance(quota, Quota) else quota
        self.grant = Grant(access == "write", prefix, self.id, own or OwnQuota())

    @property
    def id(self) -> str:
        """A name for the token in logs. It does not reveal the token, and is equal in every process."""
        return hashlib.sha256(b"locus-token-id:" + self.digest).hexdigest()[:12]

    def __repr__(self) -> str:
        return f"Token({'write' if self.grant.writes else 'read'}, prefix={self.grant.prefix!r})"


class Unreachable(Problem):
    """The answer to a request for a thread that its token does not allow."""


@dataclass(frozen=True)
class Grant:
    """The rights of a request's sender."""

    writes: bool = True
    prefix: str = ""
    token_id: str = field(default="", compare=False)
    """The id of the token; empty if the server needs none."""
    quota: OwnQuota = field(default=OwnQuota(), compare=False)

    @property
    def everywhere(self) -> bool:
        return not self.prefix

    def allows(self, thread_id: str) -> bool:
        return thread_id.startswith(self.prefix)

    def check(self, thread_id: str, *, writing: bool) -> str:
        if not self.allows(thread_id):
            raise Unreachable(403, FORBIDDEN, "this token does not reach that thread, whether it is there or not")
        if writing:
            self.check_writing()
        return thread_id

    def check_writing(self) -> None:
        if not self.writes:
            raise Problem(403, FORBIDDEN, "this token may read, and not write")

    def check_everywhere(self) -> None:
        if not self.everywhere:
            raise Problem(403, FORBIDDEN, "this token is limited to some threads, and this is about all of them")


class Guard:
    """Finds the grant for the token of a request. If the server has no tokens, every request may do everything."""

    def __init__(self, tokens: Iterable[Token] | None) -> None:
        self._tokens = None if tokens is None else _at_least_one(tokens)
        self._unrestricted = Grant()

    def use(self, tokens: Iterable[Token]) -> None:
        """Accept these tokens from now on, and no others."""
        self._tokens = _at_least_one(tokens)

    @property
    def has_tokens(self) -> bool:
        return self._tokens is not None

    def grant_of(self, token_id: str) -> Grant | None:
        """The grant of the token with an id; None if that token is no longer accepted."""
        if self._tokens is None:
            return self._unrestricted
        grants = (token.grant for token in reversed(self._tokens))  # the last of equal ones counts, as in `admit`
        return next((grant for grant in grants if grant.token_id == token_id), None)

    def admit(self, authorization: str | None) -> Grant:
        if self._tokens is None:
            return self._unrestricted
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Problem(401, UNAUTHENTICATED, "send a bearer token: Authorization: Bearer …", headers=_CHALLENGE)
        given, grant = _digest(token.strip()), None
        for known in self._tokens:  # all of them, so that the time does not reveal which one matched
            if hmac.compare_digest(known.digest, given):
                grant = known.grant
        if grant is None:
            raise Problem(401, UNAUTHENTICATED, "this token is not known", headers=_CHALLENGE)
        return grant


def _at_least_one(tokens: Iterable[Token]) -> list[Token]:
    accepted = [*tokens]
    if not accepted:
        raise ConfigurationError(
            "auth is an empty list, so no request would be accepted. Give a token, or None for no check"
        )
    return accepted


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def parse_tokens(text: str, place: str = "") -> list[Token]:
    """Parse tokens, one per line: `TOKEN [read|write [PREFIX]]`. A line that begins with `#` is a comment.

    A line may end with a quota of its own: `saves=1000`, `megabytes=50`, or `unlimited` instead of a number. An error
    names the line and `place`, and quotes nothing of the line.
    """
    parsed: list[Token] = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            parsed.extend(_parse_token(line))
        except ConfigurationError as error:
            raise TokenLineError(str(error), number, place) from error
    return parsed


class TokenLineError(ConfigurationError):
    """A line of tokens that cannot be used."""

    def __init__(self, text: str, line: int, place: str = "") -> None:
        super().__init__(f"{text} (line {line} of {place or 'the tokens'})" if place or line > 1 else text)
        self.line = line


def _parse_token(text: str) -> Iterator[Token]:
    words = text.split()
    if not words or words[0].startswith("#"):
        return
    if _SEPARATORS.search(text.strip(" \t\r")):
        # Read as a separator, it would make two tokens of one, or of a tenant's name a token for everything.
        raise ConfigurationError("one token a line: a semicolon or a control character separates nothing")
    token, *more = words
    quota = OwnQuota.parse(more)
    words = [token, *more]
    if len(words) > 3:
        raise ConfigurationError(
            "a line of tokens is: TOKEN [read|write [PREFIX]] [saves=NUMBER|unlimited] [megabytes=NUMBER|unlimited]"
        )
    yield Token(token, _access(words), words[2] if len(words) > 2 else "", quota=quota)


def _access(words: Sequence[str]) -> Access:
    access = words[1] if len(words) > 1 else "write"
    if access == "read":
        return "read"
    if access == "write":
        return "write"
    raise ConfigurationError("the second word of a line of tokens is read or write")


def read_tokens(path: str | Path) -> list[Token]:
    """Parse the tokens in a file."""
    return parse_tokens(read_token_file(path), TOKEN_FILE)


def read_token_file(path: str | Path) -> str:
    """Read a token file. Errors do not quote the path, because they reach logs, and it may be a token by mistake."""
    try:
        with possible_path(TOKEN_FILE), Path(path).open(encoding="utf-8") as file:
            text = file.read(_MOST_CHARACTERS + 1)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{TOKEN_FILE} is no text in UTF-8") from error
    if len(text) > _MOST_CHARACTERS:
        raise ConfigurationError(f"{TOKEN_FILE} has more than {_MOST_CHARACTERS:,} characters")
    return text
