"""Ids, patterns over them, and the words of a search. An id is data: every character counts, none is syntax."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from functools import cached_property
from unicodedata import normalize

from locus.errors import InvalidIdError

MAX_ID_LENGTH = 255


def check_id(value: object, what: str = "thread_id", *, empty: bool = False) -> str:
    """Return a valid id, or raise `InvalidIdError` that says what is wrong with it."""
    if type(value) is str and 0 < len(value) <= MAX_ID_LENGTH and value.isascii():
        return value
    if not isinstance(value, str):
        raise InvalidIdError(f"{what} must be a str, got {type(value).__name__}: {value!r:.80}")
    if not value and not empty:
        raise InvalidIdError(f"{what} is empty: give any text of 1 to {MAX_ID_LENGTH} characters")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidIdError(
            f"{what} has {len(value)} characters, and at most {MAX_ID_LENGTH} are kept: "
            f"use a shorter one, or a digest of it (it starts with {value[:40]!r})"
        )
    check_text(value, what)
    return str(value)


def check_ids(thread_id: str, checkpoint_id: str | None, namespace: str | None) -> None:
    """Refuse ids that are not valid; `None` means not given."""
    check_id(thread_id)
    if namespace is not None:
        check_id(namespace, "namespace", empty=True)
    if checkpoint_id is not None:
        check_id(checkpoint_id, "checkpoint_id")


def check_text(value: str, what: str) -> None:
    """Refuse lone surrogates, which no encoding has."""
    try:
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError as error:
        raise InvalidIdError(f"{what} holds a lone surrogate at position {error.start}: {value!r:.80}") from error


def new_id() -> str:
    """A short random name that will not be made again: for checkpoints and revisions."""
    return secrets.token_hex(10)


def digest(text: str) -> str:
    """A name for a text: the same for the same text, and for no other."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def shown_thread(thread_id: str) -> str:
    """How a report of damage names a thread: it may end up in a log, where an id may not be read."""
    return f"thread #{digest(thread_id)[:12]}"


@dataclass(frozen=True)
class Pattern:
    """A pattern over ids: `*` stands for any text, `?` for one character, everything else for itself."""

    text: str = "*"

    @property
    def matches_all(self) -> bool:
        return self.text == "*"

    @cached_property
    def prefix(self) -> str:
        """What every match starts with: lets a database look at a range instead of everything."""
        return re.split(r"[*?]", self.text, maxsplit=1)[0]

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in self.text)
        return re.compile("".join(parts), re.DOTALL)

    def matches(self, value: str) -> bool:
        return self.matches_all or self._regex.fullmatch(value) is not None


def check_pattern(value: object) -> Pattern:
    if not isinstance(value, str):
        raise InvalidIdError(f"pattern must be a str, got {type(value).__name__}: {value!r:.80}")
    check_text(value, "pattern")
    return Pattern(value)


def words(text: str) -> list[str]:
    """The words of a text as search sees them: runs of letters and digits, in lower case."""
    return [word.lower() for word in re.findall(r"[^\W_]+", normalize("NFC", text))]
