"""Code in colours: pieces of it with the names of classes, which the style sheet knows. Bounded in time.

Pygments reads the code. It is asked for languages that people show to agents, and for those alone whose lexers need no
more than a moment for any text of `LONGEST` characters. Languages that look like JavaScript are read as JavaScript.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Literal, Name, Operator, Token

from locus.server.inspector.words import marked

LONGEST: Final = 4_000
"""The most characters of a piece of code in colours. The rest of it is as it is."""
LONGEST_LINE: Final = 1_000
"""Code with longer lines was not written by hand, and has no colours."""
SECONDS: Final = 0.5
"""The time after which the rest of the code of a page has no colours."""
_LANGUAGES: Final = {
    "bash": ("sh", "shell", "zsh", "console"),
    "css": (),
    "diff": ("patch",),
    "go": ("golang",),
    "html": (),
    "ini": ("toml",),
    "javascript": ("js", "jsx", "c", "c++", "cpp", "c#", "cs", "csharp", "java", "kotlin"),
    "json": ("jsonc",),
    "php": (),
    "python": ("py", "python3"),
    "rust": ("rs",),
    "sql": ("postgresql", "sqlite", "mysql"),
    "swift": (),
    "typescript": ("ts", "tsx"),
    "xml": ("svg",),
    "yaml": ("yml",),
}
_LEXERS: Final = {name: main for main, others in _LANGUAGES.items() for name in (main, *others)}
_CLASSES: Final = (
    (Comment, "comment"),
    (Keyword, "keyword"),
    (Operator.Word, "keyword"),
    (Name.Tag, "keyword"),
    (Literal.String, "string"),
    (Literal, "literal"),
    (Name.Function, "name"),
    (Name.Class, "name"),
    (Name.Decorator, "name"),
    (Name.Attribute, "name"),
    (Name.Builtin, "name"),
    (Generic.Deleted, "gone"),
    (Generic.Inserted, "come"),
)


class CodePiece(NamedTuple):
    """A piece of code. Without a class, it has the colour of all texts."""

    style: str
    text: str
    is_marked: bool = False


class Colouring:
    """Colours the code of one page, as far as there is time for it."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._left = seconds

    def pieces(self, code: str, language: str) -> list[CodePiece]:
        """Code in pieces. It is one piece if its language is not known."""
        beginning, lexer = code[:LONGEST], _LEXERS.get(language.lower())
        if lexer is None or self._left <= 0 or max(map(len, beginning.split("\n"))) > LONGEST_LINE:
            return [CodePiece("", code)]
        began = time.perf_counter()
        pieces: list[CodePiece] = []
        at = 0
        for start, kind, text in _lexer(lexer).get_tokens_unprocessed(beginning):
            # What a lexer leaves out or says twice would be another text.
            if start != at or not beginning.startswith(text, at) or time.perf_counter() - began > self._left:
                break
            at += len(text)
            style = _style(kind)
            if pieces and pieces[-1].style == style:
                pieces[-1] = CodePiece(style, pieces[-1].text + text)
            elif text:
                pieces.append(CodePiece(style, text))
        self._left -= time.perf_counter() - began
        return [*pieces, CodePiece("", code[at:])] if at < len(code) or not pieces else pieces


@lru_cache(maxsize=len(_LANGUAGES))
def _lexer(name: str) -> Lexer:
    return get_lexer_by_name(name)


def _style(kind: Any) -> str:
    return next((style for known, style in _CLASSES if kind in known), "") if kind is not Token else ""


def with_marks(pieces: Sequence[CodePiece], terms: Sequence[str]) -> Iterator[CodePiece]:
    """The pieces of code with the terms marked that somebody looks for, cut where a mark begins or ends."""
    marks = marked("".join(piece.text for piece in pieces), terms)
    left = [(piece.kind == "marked", piece.text) for piece in reversed(marks)]
    for style, text, _ in pieces:
        while text:
            is_marked, part = left.pop()
            if len(part) > len(text):
                left.append((is_marked, part[len(text) :]))
            yield CodePiece(style, text[: len(part)], is_marked)
            text = text[len(part) :]
