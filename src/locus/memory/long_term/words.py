"""The words of items and questions as ranking counts them: shortened to what their forms have in common.

The rules are the same on every machine, and need no dictionary and no knowledge of the language of a text:

- Letters are compared without case and without accents or vowel signs.
- Endings of English and German words are taken off, and of Arabic words the article and some endings.
- Chinese, Japanese, Thai and similar writing has no spaces between words, so pairs of neighbouring characters stand
  for words.
- Numbers and ids stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from unicodedata import combining, normalize

from locus.memory.long_term.filters import value_at
from locus.memory.long_term.items import Item
from locus.memory.model.ids import words

WHOLE = "$"
"""The path of a whole value."""

_FREQUENT = """
    a about after all also am an and any are as at be because been before being but by can could did do does for from
    had has have he her him his how i if in into is it its just me my no nor not of on or our out over should so some
    such than that the their them then there these they this those to too under up us user very was we were what when
    where which while who whom whose why will with would you your
    aber als am an auch auf aus bei bin bis das dass dem den der des die ein eine einem einen einer eines er es für hat
    ich ihr im in ist mit nach nicht noch oder sich sie sind so um und uns von vor war was wenn wer wie wir wird wo zu
    zum zur
    al con cual de del el en es esta este la las le les lo los mi no o para pero por que qué se sin su sus un una y
    à au aux avec ce ces dans des du elle est et il je les mais ne où ou par pas pour que qui sa ses son sur un une
    """
_SAYING_NOTHING = frozenset(_FREQUENT.split())
"""The most frequent words of English, German, Spanish and French, which a question consists of and seldom asks for."""
_LONGEST = 64
"""A word is cut after so many characters, so that no text of a caller becomes a term of any length."""
# Thai, Lao, Myanmar, Khmer; kana; Han.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]+)"
)
_ENDINGS = ("ingly", "edly", "ings", "ing", "ern", "ed", "en", "er", "em", "es", "ly", "e", "s", "n")
_SIGNS = re.compile("[\u0591-\u05bd\u0640\u064b-\u065f\u0670]+")
"""The vowel signs of Hebrew and Arabic, which would part words, and the line that stretches Arabic ones."""
_ARABIC = re.compile("[\u0621-\u064a]+")
_ARABIC_FORMS = str.maketrans("أإآىة", "ااايه")
_ARABIC_STARTS = ("وال", "بال", "كال", "فال", "لل", "ال")
_ARABIC_ENDINGS = ("ها", "ان", "ات", "ون", "ين", "يه", "ه", "ي")
_FEWEST = 3
"""The fewest characters of a word that an ending is taken from, afterwards."""


def terms_of(text: str) -> list[str]:
    """The words of a text, as ranking counts them, in their order."""
    found: list[str] = []
    for word in words(text if text.isascii() else _SIGNS.sub("", text)):
        if word.isascii():
            found.append(_stem(word[:_LONGEST]))
        else:
            found += _terms_of_word(word)
    return found


def question_terms(text: str) -> list[str]:
    """The different words of a question. Those that say nothing are left out, unless there are no others."""
    said = [word for word in words(text) if word not in _SAYING_NOTHING]
    return list(dict.fromkeys(terms_of(" ".join(said) if said else text)))


def terms_in(item: Item) -> list[str]:
    """The words of what a search looks at in an item."""
    return [term for part in searched_parts(item) for text in _said(part) for term in terms_of(text)]


def searched_parts(item: Item) -> list[Any]:
    """The parts of a value that a search looks at: those under its `index`, or the whole."""
    if item.index is False:
        return []
    if item.index is None:
        return [item.value]
    return [item.value if path == WHOLE else value_at(item.value, path) for path in item.index]


def said_in(part: Any) -> str:
    """What a part of a value says: its texts and numbers."""
    return "\n".join(_said(part))


def _said(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _said(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _said(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _terms_of_word(word: str) -> Iterator[str]:
    for run in _UNSPACED.split(word):
        if _UNSPACED.match(run):
            yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))
        elif run:
            yield _stem(_folded(run[:_LONGEST]))


def _folded(word: str) -> str:
    """A word without accents and vowel signs, in the simplest forms of its letters."""
    plain = "".join(char for char in normalize("NFKD", word.casefold()) if not combining(char))
    return plain.translate(_ARABIC_FORMS)


@lru_cache(maxsize=16_384)
def _stem(word: str) -> str:
    if not word.isalpha():
        return word
    if _ARABIC.fullmatch(word):
        return _without_ending(_without_start(word), _ARABIC_ENDINGS)
    if word.endswith("ies") and len(word) > _FEWEST + 1:
        word = word[:-3] + "y"
    if word.endswith("ss"):
        return word
    stem = _without_ending(word, _ENDINGS)
    if stem != word and stem[-1:] == stem[-2:-1] and stem[-1:] not in "aeiouls":
        stem = stem[:-1]  # running, stopped
    return stem[:-1] + "i" if len(stem) > _FEWEST and stem[-1] == "y" and stem[-2] not in "aeiou" else stem


def _without_start(word: str) -> str:
    for start in _ARABIC_STARTS:
        if word.startswith(start) and len(word) >= len(start) + _FEWEST - 1:
            return word[len(start) :]
    return word


def _without_ending(word: str, endings: tuple[str, ...]) -> str:
    for ending in endings:
        if word.endswith(ending) and len(word) >= len(ending) + _FEWEST:
            return word[: -len(ending)]
    return word
