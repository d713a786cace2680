"""The output of commands: columns that fit, colours, a pager, and progress.

Standard output is data. On a terminal it is cut to the width, coloured (unless `NO_COLOR` is set) and shown by a pager
if it is longer than the screen; into a pipe it goes as it is. Progress and errors go to standard error.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self, TextIO

from locus.looking.formatting import cut, fitting, visible, width

_STYLES: Final = {
    "id": "33",  # yellow, as git shows a commit
    "latest": "1;36",
    "user": "1;32",
    "assistant": "1;34",
    "tool": "35",
    "system": "2",
    "added": "32",
    "removed": "31",
    "warning": "33",
    "error": "1;31",
    "faint": "2",
    "mark": "1;7",
    "strong": "1",
}
_PAGER: Final = "less -FRX"


@dataclass(frozen=True, slots=True)
class Styled:
    """A text with a style, such as `added` or `id`, which decides its colour."""

    text: str
    style: str = ""


Cell = str | Styled


@dataclass
class Terminal:
    """The output of a command. Lines are gathered and written by `flush`, through a pager if they fill the screen."""

    out: TextIO
    err: TextIO
    json: bool = False
    columns: int = 80
    rows: int = 24
    interactive: bool = False
    colours: bool = False
    _lines: list[str] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)

    @classmethod
    def of_process(cls, *, json: bool = False) -> Self:
        """The terminal of this process, or the pipe that stands in its place."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # an encoding that lacks a letter is no reason to stop
                stream.reconfigure(errors="backslashreplace")
        interactive = sys.stdout.isatty()
        size = shutil.get_terminal_size((80, 24))
        dumb = os.environ.get("TERM") in {"dumb", None} or bool(os.environ.get("NO_COLOR"))
        return cls(
            sys.stdout,
            sys.stderr,
            json,
            max(size.columns, 20),
            max(size.lines, 5),
            interactive,
            interactive and not dumb and not json,
        )

    def styled(self, cell: Cell) -> str:
        if isinstance(cell, str):
            return cell
        code = _STYLES.get(cell.style)
        return f"\x1b[{code}m{cell.text}\x1b[0m" if self.colours and code and cell.text else cell.text

    def line(self, *cells: Cell) -> None:
        """Add a line. On a terminal it is cut where the screen ends."""
        self._lines.append(self._fitted(cells))

    def command(self, words: Sequence[str]) -> None:
        """Add a command to copy. It is never cut: a part of it would do something else."""
        self._lines.append(self.styled(Styled(visible(shlex.join(words)), "faint")))

    def text(self, text: str, style: str = "", indent: str = "", mark: re.Pattern[str] | None = None) -> None:
        """Add lines of stored text, made visible, and folded to the width of a terminal; `mark` stands out in it."""
        for line in text.split("\n"):
            shown = visible(line)
            for piece in self._folded(shown, self.columns - len(indent)) if self.interactive else [shown]:
                self._lines.append(indent + "".join(map(self.styled, _marked(piece, style, mark))))

    def table(self, rows: Sequence[Sequence[Cell]]) -> None:
        """Add rows in aligned columns. On a terminal, the widest columns are cut until a row fits."""
        if not rows:
            return
        count = max(map(len, rows))
        widths = [max((width(text_of(row[at])) for row in rows if at < len(row)), default=0) for at in range(count)]
        if self.interactive:
            widths = _fitting(widths, self.columns)
        for row in rows:
            cells: list[str] = []
            for at, cell in enumerate(row):
                plain = cut(text_of(cell), widths[at]) if self.interactive else text_of(cell)
                style = cell.style if isinstance(cell, Styled) else ""
                gap = "" if at == len(row) - 1 else " " * max(0, widths[at] - width(plain)) + "  "
                cells.append(self.styled(Styled(plain, style)) + gap)
            self._lines.append("".join(cells).rstrip())

    def document(self, value: Any) -> None:
        """Add a JSON document."""
        self._lines.append(self._json(value, indent=2))

    def record(self, value: Any) -> None:
        """Add a line of JSON."""
        self._lines.append(self._json(value))

    def _json(self, value: Any, indent: int | None = None) -> str:
        text = json.dumps(value, ensure_ascii=False, indent=indent, default=_as_json)
        # Characters that could turn a line around, start a sequence, or be taken for the end of a line are escaped.
        # Into a pipe, too: what is behind it may be a terminal, and a program reads the same value.
        return _SHAPELESS.sub(lambda character: json.dumps(character[0])[1:-1], text)

    def flush(self) -> None:
        """Write the gathered lines, and then the notes."""
        lines, self._lines = self._lines, []
        self._write(lines)
        notes, self._notes = self._notes, []
        for note in notes:
            self.err.write(f"{note}\n")

    def _write(self, lines: list[str]) -> None:
        if not lines:
            return
        text = "\n".join(lines) + "\n"
        if self.interactive and len(lines) > self.rows - 1 and not self.json and self._paged(text):
            return
        self.out.write(text)
        self.out.flush()

    def note(self, text: str) -> None:
        """Add a remark, which is written to standard error, after the data."""
        self._notes.append(visible(text))

    def _paged(self, text: str) -> bool:
        command = os.environ.get("LOCUS_PAGER") or os.environ.get("PAGER") or _PAGER
        if command == "cat" or not sys.stdin.isatty():
            return False
        try:
            words = shlex.split(command)
        except ValueError:
            return False
        if not words or shutil.which(words[0]) is None:
            return False
        # As git does it: `less` shows colours, and ends by itself where everything fits on the screen.
        environment = {"LESS": "FRX", "LV": "-c", **os.environ}
        # Ctrl-C is for the pager while it runs.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            subprocess.run(words, input=text.encode(errors="backslashreplace"), check=False, env=environment)
        except OSError:
            return False
        finally:
            signal.signal(signal.SIGINT, before)
        return True

    def _fitted(self, cells: Sequence[Cell]) -> str:
        if not self.interactive:
            return "".join(map(text_of, cells))
        left, shown = self.columns, []
        for cell in cells:
            plain = cut(text_of(cell), left)
            left -= width(plain)
            shown.append(self.styled(Styled(plain, cell.style)) if isinstance(cell, Styled) else plain)
        return "".join(shown)

    @staticmethod
    def _folded(text: str, columns: int) -> list[str]:
        columns = max(columns, 10)
        if width(text) <= columns:
            return [text]
        pieces, piece, used = [], "", 0
        for word in text.split(" "):
            needed = width(word)
            if piece and used + 1 + needed > columns:
                pieces.append(piece)
                piece, used = "", 0
            while needed > columns:
                room = columns - used - bool(piece)
                at = fitting(word, room)
                if at:
                    piece += (" " if piece else "") + word[:at]
                pieces.append(piece)
                word, piece, used = word[at:], "", 0
                needed = width(word)
            piece += (" " if piece else "") + word
            used = width(piece)
        return [*pieces, piece] if piece else pieces


_SHAPELESS: Final = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def text_of(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


def _marked(text: str, style: str, mark: re.Pattern[str] | None) -> list[Cell]:
    """A text in pieces, of which those that are marked words have a style of their own."""
    if mark is None:
        return [Styled(text, style)]
    pieces: list[Cell] = []
    at = 0
    for found in mark.finditer(text):
        pieces += [Styled(text[at : found.start()], style), Styled(found[0], "mark")]
        at = found.end()
    return [*pieces, Styled(text[at:], style)]


def _fitting(widths: list[int], columns: int) -> list[int]:
    """Widths of columns that fit on the screen: the widest give way first, down to eight columns each."""
    widths = list(widths)
    while sum(widths) + 2 * (len(widths) - 1) > columns:
        widest = max(range(len(widths)), key=lambda at: (widths[at], at))
        if widths[widest] <= 8:
            break
        widths[widest] -= 1
    return widths


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON")


class ProgressLine:
    """A line on standard error that says what was done, if that takes more than a moment and a terminal shows it."""

    PAUSE: Final = 0.1

    def __init__(self, stream: TextIO, what: str = "", *, after: float = 1.0) -> None:
        self._stream, self._what = stream, what
        self._watched = stream.isatty()
        self._next = time.monotonic() + after
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def show(self, done: int) -> None:
        self.put(f"{done:,} {self._what}")

    def put(self, text: str) -> None:
        """Show a text, unless another one was shown just now."""
        now = time.monotonic()
        if self._watched and now >= self._next:
            self._next, self._shown = now + self.PAUSE, True
            self._stream.write(f"\r{text}\x1b[K")
            self._stream.flush()


def columns_of(pairs: Iterable[tuple[str, Cell]]) -> list[list[Cell]]:
    """The rows of a table with a name and a value each."""
    return [[Styled(name, "faint"), cell] for name, cell in pairs]
