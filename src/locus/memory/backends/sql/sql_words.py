"""Words and metadata as the indexes of the SQL engines have them, where a database's own idea of them would differ."""

from __future__ import annotations

from collections.abc import Sequence

from locus.memory.model.codec import canonical
from locus.memory.model.ids import digest, words
from locus.memory.model.matching import searchable

LONGEST_PLAIN = 38
LARGE_TEXT = 4_000_000


def spelt(word: str) -> str:
    """A word so that no parser splits it or leaves it out: ASCII letters and digits, 3 to 40, and no stopword."""
    return f"xx{word}" if word.isascii() and len(word) <= LONGEST_PLAIN else f"xu{digest(word)}"


def indexed(text: str) -> str:
    """The words of a JSON text, spelt. Of a very long one each word once, which costs it only some rank."""
    found: Sequence[str] = words(searchable(text))
    if len(text) > LARGE_TEXT:
        found = list(dict.fromkeys(found))
    return " ".join(map(spelt, found))


def metadata_key(key: str, value: str) -> str:
    """For a key and a value (canonical JSON). A key may hold anything, so it is written as JSON, too."""
    return digest(f"{canonical(key)}:{value}")
