"""What a caller may choose: what happens to an effect whose outcome is unknown, how long a lease is, and the like."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict

from locus.effects.effect import Effect
from locus.errors import ConfigurationError
from locus.hints import UnknownOptionError
from locus.memory.model.arguments import checked_seconds
from locus.memory.runtime.leases import LONGEST


@dataclass(frozen=True)
class Made:
    """The answer of a receiver that it has made an effect, and with which result."""

    result: Any = None


class NotMade:
    """The answer of a receiver that an effect was not made, and will not be: `NOT_MADE`."""

    def __repr__(self) -> str:
        return "NOT_MADE"


NOT_MADE: Final = NotMade()

Answer = Made | NotMade | None
"""What a receiver says. None: it does not know either."""

OnUnknown = Literal["raise", "retry", "ask"] | Callable[[Effect], Answer | Awaitable[Answer]]


class CleanFailure(Exception):
    """Raise it in a call to say that nothing has happened, and that the call may be repeated."""


class Terms(TypedDict, total=False):
    """The terms of an effect; each has a default.

    - `on_unknown`: what happens if nobody knows whether the effect was made. "raise" makes it at most once: it raises
      `UnknownEffectError`. "retry" makes it at least once: it makes the call again. "ask" waits until somebody has
      settled it by hand. A function, async or not, asks the receiver: it gets the `Effect`, and returns `Made(result)`,
      `NOT_MADE`, or None if that does not know either.
    - `lease_seconds`: whoever makes the call, and is silent for this long, is taken for dead. A call that lasts longer
      renews its lease, unless it blocks the event loop.
    - `wait_seconds`: how long to wait for somebody else who is making the call, or for a person. Then
      `EffectBusyError` or `UnknownEffectError` is raised. None: as long as it takes.
    - `ttl_seconds`: how long an effect that was made, or has failed, is remembered. None: for ever.
    - `clean_errors`: errors that the call raises before anything has happened, so that it may be repeated.
    - `pauses`: what the call raises to be called again later, and what is no failure.
    - `dump` and `load` make JSON of a result, and a result of that JSON.
    """

    on_unknown: OnUnknown
    lease_seconds: float
    wait_seconds: float | None
    ttl_seconds: float | None
    clean_errors: tuple[type[BaseException], ...]
    pauses: tuple[type[BaseException], ...]
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


DEFAULTS: Final = Terms(
    on_unknown="raise",
    lease_seconds=30.0,
    wait_seconds=None,
    ttl_seconds=None,
    clean_errors=(),
    pauses=(),
    dump=_same,
    load=_same,
)


def checked_terms(defaults: Terms, terms: Mapping[str, Any]) -> Terms:
    """The defaults with these terms, after a check of each."""
    for name in terms:
        if name not in DEFAULTS:
            raise UnknownOptionError("an effect", name, DEFAULTS)
    all_terms = Terms(**{**defaults, **terms})  # type: ignore[typeddict-item]
    if not terms:
        return all_terms
    if not callable(all_terms["on_unknown"]) and all_terms["on_unknown"] not in ("raise", "retry", "ask"):
        raise ConfigurationError(
            f'on_unknown is "raise", "retry", "ask" or a function that asks the receiver, got '
            f"{all_terms['on_unknown']!r:.60}"
        )
    checked_seconds(all_terms["lease_seconds"], "lease_seconds")
    if all_terms["lease_seconds"] > LONGEST:
        raise ConfigurationError(f"lease_seconds is at most {LONGEST:g}, got {all_terms['lease_seconds']!r}")
    for name in ("wait_seconds", "ttl_seconds"):
        seconds = terms.get(name)
        if seconds is not None and not (name == "wait_seconds" and seconds == 0):
            checked_seconds(seconds, name)
    for name in ("clean_errors", "pauses"):
        kinds = terms.get(name, ())
        if not isinstance(kinds, tuple) or not all(isinstance(kind, type) for kind in kinds):
            raise ConfigurationError(f"{name} is a tuple of classes of errors, got {kinds!r:.60}")
    return all_terms


def patience(terms: Terms) -> float:
    """How many seconds a caller waits for others."""
    seconds = terms["wait_seconds"]
    return math.inf if seconds is None else seconds
