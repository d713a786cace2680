"""Lets a process kill itself at a chosen line of the code that saves."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import locus.memory
import locus.memory.backends
import locus.memory.runtime
import locus.wire
from locus.memory.engine import Engine

Position = tuple[str, int, int]
"""A file, a line, and how often the process has reached that line."""


class Choice(NamedTuple):
    """The rules by which `chosen` chooses lines to kill at. It takes the lines that any of them chooses."""

    evenly: int | None
    """Choose this many lines, spread evenly over all that are passed. None chooses every line when first reached."""
    every: int = 1
    """Choose every n-th line of the engine's own code, when first reached: 1 for each line, 2 for every second."""
    last: int = 10
    """Choose this many lines at the very end, when only the answer is outstanding."""


class LineTrace:
    """While `active`, records every line of `locus.memory` and of the engine's folders that any OS thread reaches.

    It kills the process with SIGKILL just before the target, if there is one. It only sees threads that were started,
    and frames that were entered, after `install`.
    """

    def __init__(self, engine: type, target: Position | None = None) -> None:
        self.active = False
        self.positions: list[Position] = []
        self.engine_folders = engine_folders(engine)
        self._target = tuple(target) if target else None
        self._counts: dict[tuple[str, int], int] = {}
        self._watched: dict[CodeType, bool] = {}
        self._folders = tuple(folder + os.sep for folder in (*self.engine_folders, *locus.memory.__path__))

    def install(self) -> None:
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def _enter(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        code = frame.f_code
        watched = self._watched.get(code)
        if watched is None:
            watched = self._watched[code] = code.co_filename.startswith(self._folders)
        return self._step if watched else None

    def _step(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line" and self.active:
            place = (frame.f_code.co_filename, frame.f_lineno)
            count = self._counts[place] = self._counts.get(place, 0) + 1
            position = (*place, count)
            if position == self._target:
                os.kill(os.getpid(), signal.SIGKILL)
            self.positions.append(position)
        return self._step


def engine_folders(engine: type) -> list[str]:
    """The folders with the code of an engine: its own, those of all backends, the runtime and the wire.

    The model is left out, because all engines share it.
    """
    files = {sys.modules[kind.__module__].__file__ or "" for kind in engine.__mro__ if issubclass(kind, Engine)}
    folders = {str(Path(file).parent) for file in files} - set(locus.memory.__path__)
    return sorted({*folders, *locus.memory.backends.__path__, *locus.memory.runtime.__path__, *locus.wire.__path__})


def chosen(positions: list[Position], engine_folders: list[str], choice: Choice) -> list[Position]:
    if choice.evenly is None:
        return [position for position in positions if position[2] == 1]
    step = max(1, len(positions) // choice.evenly)
    spread = set(range(step // 2, len(positions), step))
    in_engine = [at for at, (file, _, times) in enumerate(positions) if times == 1 and _inside(file, engine_folders)]
    spread.update(in_engine[:: choice.every])
    spread.update(range(max(0, len(positions) - choice.last), len(positions)))
    return [position for index, position in enumerate(positions) if index in spread]


def _inside(file: str, folders: list[str]) -> bool:
    return file.startswith(tuple(folder + os.sep for folder in folders))
