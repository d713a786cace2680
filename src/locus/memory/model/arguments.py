"""Arguments other than ids, checked once above all engines. The error says what to do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from locus.errors import ConfigurationError

UNLIMITED = 1_000_000_000
A_CENTURY = 100 * 366 * 24 * 3600
CACHE_MB = 256.0
"""How many megabytes a handle may hold in memory, unless its user says otherwise."""
SEARCH_SECONDS = 30.0
"""How long a search may take, unless its caller says otherwise."""
MOST_MEGABYTES = 1 << 40

L = TypeVar("L", int, None)
S = TypeVar("S")
C = TypeVar("C")
P = ParamSpec("P")


def days_before(now: datetime, days: float) -> datetime:
    """The time so many days before `now`; the earliest time that can be written if there is none."""
    try:
        return now - timedelta(days=days)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def checked_limit(limit: int | None, otherwise: L) -> int | L:
    """Check a limit that a caller gave; `otherwise` if it is None."""
    if limit is None:
        return otherwise
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise ConfigurationError(f"limit must be a number from 0 on, or None, got {limit!r:.40}")
    return min(limit, UNLIMITED)


def checked_ancestors(ancestors: int | Literal["all"], checkpoint_id: str | None) -> int | None:
    """Check how many ancestors of a checkpoint a copy takes along; None stands for all."""
    if ancestors == "all":
        return None
    if not isinstance(ancestors, int) or isinstance(ancestors, bool) or ancestors < 0:
        raise ConfigurationError(f'ancestors must be "all" or a number from 0 on, got {ancestors!r:.40}')
    if checkpoint_id is None:
        raise ConfigurationError("ancestors are those of a checkpoint: give its checkpoint_id, or leave out ancestors")
    return min(ancestors, UNLIMITED)


def checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise ConfigurationError(f"metadata must be a dict, got {type(metadata).__name__}: {metadata!r:.80}")
    return dict(metadata or {})


def checked_seconds(value: float | None, what: str, *, least: float = 0.0) -> None:
    """Refuse a number of seconds that is not above `least`."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not least < value <= A_CENTURY:
        raise ConfigurationError(
            f"{what} must be a number of seconds above {least:g}, and no more than a century, got {value!r:.40}"
        )


def checked_megabytes(value: float, what: str) -> int:
    """Check a number of megabytes from 0 on, and return it in bytes."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MOST_MEGABYTES:
        raise ConfigurationError(f"{what} must be a number of megabytes from 0 on, got {value!r:.40}")
    return int(value * 1024 * 1024)


def taking(parameters: Callable[P, C]) -> Callable[[Callable[[S, C], None]], Callable[Concatenate[S, P], None]]:
    """Give a constructor these parameters, for type checkers and for `help`. It gets the value that they return."""

    def decorate(init: Callable[[S, C], None]) -> Callable[Concatenate[S, P], None]:
        def __init__(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(self, parameters(*args, **kwargs))

        own = inspect.signature(init)
        named = [next(iter(own.parameters.values())), *inspect.signature(parameters).parameters.values()]
        __init__.__signature__ = own.replace(parameters=named)  # type: ignore[attr-defined]
        return __init__

    return decorate


@contextmanager
def possible_path(path: object) -> Iterator[None]:
    """A context that looks at a path. If the system refuses it there, the path is a setting that cannot work."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{str(path)[:80]!r} cannot be used: {error.strerror}") from error


def check_vacuum(older_than_days: float | None, keep_last: int | None) -> None:
    if keep_last is not None and not (isinstance(keep_last, int) and keep_last >= 1):
        raise ConfigurationError(
            f"keep_last must be a number from 1 on, got {keep_last!r:.40}; to delete all, use delete()"
        )
    if older_than_days is None and keep_last is None:
        raise ConfigurationError("say what is old: older_than_days, keep_last, or both")
    if older_than_days is not None and not (isinstance(older_than_days, int | float) and older_than_days >= 0):
        raise ConfigurationError(f"older_than_days must be a number from 0 on, got {older_than_days!r:.40}")
