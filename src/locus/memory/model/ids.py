"""Ids, patterns over them, and the words of a search. An id is data: every character counts, none is syntax."""

from __future__ import annotations

import fnmatch
import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from unicodedata import combining, normalize

from locus.errors import ConfigurationError, InvalidIdError

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
            f"{what} has {len(value)} characters; at most {MAX_ID_LENGTH} are allowed: "
            f"use a shorter one, or a digest of it (it starts with {value[:40]!r})"
        )
    check_text(value, what)
    return str(value)


def check_ids(thread_id: str, checkpoint_id: str | None, namespace: str) -> None:
    """Refuse ids that are not valid. None is allowed as a checkpoint (the latest) and as a namespace (all)."""
    check_id(thread_id)
    check_id(namespace, "namespace", empty=True)
    if checkpoint_id is not None:
        check_id(checkpoint_id, "checkpoint_id")


def check_text(value: str, what: str) -> None:
    """Refuse lone surrogates, which no encoding can represent."""
    try:
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError as error:
        raise InvalidIdError(f"{what} holds a lone surrogate at position {error.start}: {value!r:.80}") from error


_KEY_SPACE = re.compile(r"[a-z]{1,16}")


def check_key_space(name: object) -> str:
    """Return the name of a key space, which is a part of the names of tables, folders and paths."""
    if not isinstance(name, str) or not _KEY_SPACE.fullmatch(name):
        raise InvalidIdError(f"the name of a key space is 1 to 16 small letters, got {name!r:.80}")
    return name


def new_id() -> str:
    """A short random name that will not be made again: for checkpoints and revisions."""
    return secrets.token_hex(10)


def digest(text: str) -> str:
    """A short name for a text: equal for equal texts, and different for different ones."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def shown_thread(thread_id: str) -> str:
    """How a report of damage names a thread: by a digest, because logs must not show its id."""
    return f"thread #{digest(thread_id)[:12]}"


def prefix_end(prefix: str) -> str | None:
    """The first text, in the order of code points, that follows all texts with this prefix; None if there is none."""
    while prefix:
        last = ord(prefix[-1])
        prefix = prefix[:-1]
        if last < _LAST_CODE_POINT:
            # Between the last character before the surrogates and the first one behind them there is nothing.
            return prefix + chr(_AFTER_SURROGATES if last + 1 == _FIRST_SURROGATE else last + 1)
    return None


_FIRST_SURROGATE, _AFTER_SURROGATES, _LAST_CODE_POINT = 0xD800, 0xE000, 0x10FFFF

MAX_PATTERN_LENGTH = 512
MAX_STARS = 32
"""How many `*` a pattern may have. Several in a row count as one."""


@dataclass(frozen=True)
class Pattern:
    """A pattern over ids: `*` stands for any text, `?` for one character, everything else for itself.

    Only ids match that start with `within`, and come after `after` in the order of code points. Nothing is syntax in
    these two.
    """

    text: str = "*"
    within: str = ""
    after: str = ""

    @property
    def matches_all(self) -> bool:
        return self.text == "*" and not self.within and not self.after

    @cached_property
    def _literal(self) -> str:
        """The beginning of the pattern, up to its first `*` or `?`."""
        return re.split(r"[*?]", self.text, maxsplit=1)[0]

    @cached_property
    def prefix(self) -> str:
        """The text that every match begins with, so that a database can look at a range instead of everything."""
        return self._literal if self._literal.startswith(self.within) else self.within

    @cached_property
    def end(self) -> str | None:
        """The first text behind all matches, in the order of code points; None if there is none."""
        # Nothing comes between a text and the same text with the lowest of all characters behind it.
        return self.text + "\0" if self._literal == self.text else prefix_end(self.prefix)

    @property
    def from_after(self) -> bool:
        """Whether a list of matches begins behind `after`. If not, it begins with `prefix`."""
        return bool(self.after) and self.after >= self.prefix

    @cached_property
    def matches_range(self) -> bool:
        """Whether every id between the beginning of the range and `end` matches, so that none must be checked."""
        return self.text.rstrip("*") == self._literal and not self.matches_none

    @cached_property
    def matches_none(self) -> bool:
        """Whether no id can match: `prefix` and the pattern exclude each other, or `after` is behind both."""
        if len(self.prefix) > MAX_ID_LENGTH:
            return True
        if not self._literal.startswith(self.within) and not self.within.startswith(self._literal):
            return True
        if self._literal == self.text and not self.text.startswith(self.within):
            return True
        return self.end is not None and self.after >= self.end

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        # Its expressions never go back over what a star has taken, so no pattern takes long. It knows brackets, too.
        return re.compile(fnmatch.translate(self.text.replace("[", "[[]")))

    def matches(self, value: str) -> bool:
        if not value.startswith(self.within) or (self.after and value <= self.after):
            return False
        return self.text == "*" or self._regex.fullmatch(value) is not None


def check_pattern(value: object, *, within: object = "", after: object = None) -> Pattern:
    if not isinstance(value, str):
        raise InvalidIdError(f"pattern must be a str, got {type(value).__name__}: {value!r:.80}")
    if len(value) > MAX_PATTERN_LENGTH:
        raise InvalidIdError(
            f"a pattern has at most {MAX_PATTERN_LENGTH} characters, got {len(value)}: use a shorter one"
        )
    stars = len(re.findall(r"\*+", value))
    if stars > MAX_STARS:
        raise InvalidIdError(f"a pattern has at most {MAX_STARS} stars, got {stars}: use fewer")
    check_text(value, "pattern")
    return Pattern(value, check_prefix(within), check_after(after))


def check_prefix(value: object, what: str = "prefix") -> str:
    """Check a prefix of ids: any text. No id begins with a prefix that is longer than an id may be."""
    if not isinstance(value, str):
        raise InvalidIdError(f"{what} must be a str, got {type(value).__name__}: {value!r:.80}")
    check_text(value[: MAX_ID_LENGTH + 1], what)
    return value[: MAX_ID_LENGTH + 1]


def check_after(value: object) -> str:
    """Check the id behind which a list begins: any text; None stands for the beginning."""
    if value is None:
        return ""
    # No id is longer than this, so the same ids come behind the rest as behind the whole.
    return check_prefix(value, "after")[:MAX_ID_LENGTH]


_WORD = re.compile(r"[^\W_]+")
_SEPARATED = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}
_LOWER_WORD = re.compile(r"(?:[^\W_]|(?<=i)\u0307)+")
"""What `words` makes. Only one letter becomes two characters in lower case: İ, an i with a dot above."""

MAX_QUERY_LENGTH = 10_000
MAX_TERMS = 100

_AT_ONCE = 512
_BEFORE_ASCII = re.compile(r".+(?=[\x00-\x7f])", re.DOTALL)


def words(text: str) -> list[str]:
    """The words of a text as search sees them: runs of letters and digits, in lower case."""
    if text.isascii():
        return text.translate(_SEPARATED).split()  # a fifth of the time
    return [word.lower() for word in _WORD.findall(_composed(text))]


def _composed(text: str) -> str:
    """The text in Unicode's normal form C.

    Normalizing sorts combining marks, which takes a time that grows by the square of how many stand in a row. No
    ASCII character is ever joined to what stands before it, so that is where pieces end; long texts without any are
    cut where no mark is.
    """
    pieces, at = [], 0
    while at < len(text):
        end = at + _AT_ONCE
        if end < len(text):
            found = _BEFORE_ASCII.match(text, at, end)
            if found is not None:
                end = found.end()
            else:
                end = next((cut for cut in range(end, end - 32, -1) if not combining(text[cut])), end)
        pieces.append(normalize("NFC", text[at:end]))
        at = end
    return "".join(pieces)


def query_terms(query: str) -> list[str]:
    """The different words of a query. A query with too many is refused."""
    if len(query) > MAX_QUERY_LENGTH:
        raise ConfigurationError(
            f"a search query has at most {MAX_QUERY_LENGTH:,} characters, got {len(query):,}: search for fewer words"
        )
    return checked_terms(words(query))


def checked_terms(terms: Iterable[str]) -> list[str]:
    """Check that terms are different words, as `words` makes them. Engines search for nothing else."""
    different = list(dict.fromkeys(terms))
    if len(different) > MAX_TERMS:
        raise ConfigurationError(
            f"a search has at most {MAX_TERMS} different words, got {len(different):,}: search for fewer"
        )
    for term in different:
        if len(term) > MAX_QUERY_LENGTH or not _LOWER_WORD.fullmatch(term) or term != term.lower():
            raise ConfigurationError("a term of a search is one word in lower case: only letters and digits")
    return different
