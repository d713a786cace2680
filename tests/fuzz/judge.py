"""What a single case may do: raise an error of Locus, and take time and memory that its length accounts for.

There is no clock. Time is counted in calls of Python functions, and memory in what a target says it has made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from locus.errors import LocusError

FREE_CALLS = 200_000
CALLS_PER_BYTE = 2_000
"""How many functions may be called for each byte of a case. Most take less than ten."""
FREE_SIZE = 1_000_000
SIZE_PER_BYTE = 2_000
"""How much may be made of each byte: a nested list is large in memory, and short as a text."""


class Target(Protocol):
    """Reads a case. It returns how much it has made of it: characters, items, bytes."""

    def __call__(self, data: bytes, /) -> int: ...


class Fault(AssertionError):
    """A case that shows a fault of Locus."""


class UnexpectedError(Fault):
    """Something other than an error of Locus came out."""


class TooMuchWork(Fault):
    """More was called than the length of the case accounts for."""


class TooMuchMade(Fault):
    """More was made than the length of the case accounts for."""


def judged(target: Target, data: bytes, *, counting: bool = True) -> None:
    """Run a case. `counting` makes it slower: where thousands follow each other, a hang is noticed by the clock."""
    try:
        made = _counted(target, data) if counting else target(data)
    except LocusError:
        return
    except Fault:
        raise
    except Exception as error:
        raise UnexpectedError(f"{type(error).__name__} came out: {error!s:.300}") from error
    most = FREE_SIZE + SIZE_PER_BYTE * len(data)
    if made > most:
        raise TooMuchMade(f"{len(data)} bytes became {made:,}; {most:,} are too many")


def _counted(target: Target, data: bytes) -> int:
    most = FREE_CALLS + CALLS_PER_BYTE * len(data)
    calls = 0
    too_much = f"{len(data)} bytes led to more than {most:,} calls"

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1
            if calls == most:
                sys.setprofile(None)
                raise TooMuchWork(too_much)

    before: Callable[..., Any] | None = sys.getprofile()
    sys.setprofile(count)
    try:
        made = target(data)
    finally:
        sys.setprofile(before)
        if calls >= most:  # whatever became of the error: the target may have caught it
            raise TooMuchWork(too_much)
    return made


def expects(condition: object, what: str) -> None:
    """Something that must hold after a case was read."""
    if not condition:
        raise Fault(what)
