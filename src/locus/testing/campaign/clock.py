"""A clock that jumps: what Locus takes for the time in this process, and in no other."""

from __future__ import annotations

import sys
import time
from datetime import datetime, timedelta, tzinfo
from typing import Any

JUMPS = (0.0, -2.0, 2.0, -90.0, 90.0, -7_200.0, 7_200.0, -40 * 86_400.0, 40 * 86_400.0)
"""Seconds from the real time: what NTP corrects, what a wrong time zone does, and what a dead battery does."""


class _AnyDatetime(type(datetime)):  # type: ignore[misc] # `type(datetime)` is `type`
    """Of a stand-in: a real time counts as one of its instances."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


class JumpingClock:
    """Takes the place of `datetime.now` and `time.time` in the modules of Locus that are loaded when it is installed.

    Timers do not see it: they go by the monotonic clock, as on a machine whose clock is set.
    """

    def __init__(self) -> None:
        self.offset = 0.0
        self._real_time = time.time

    def install(self) -> None:
        clock = self

        class Jumping(datetime, metaclass=_AnyDatetime):
            """Makes real times only, so that no driver meets a class that it does not know."""

            def __new__(cls, *args: Any, **kwargs: Any) -> Any:
                return datetime(*args, **kwargs)  # noqa: DTZ001 (whatever the caller gives)

            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Any:
                return datetime.now(tz) + timedelta(seconds=clock.offset)

        for name, module in list(sys.modules.items()):
            if name.startswith("locus.") and module is not sys.modules[__name__]:
                for attribute, value in list(vars(module).items()):
                    if value is datetime:
                        setattr(module, attribute, Jumping)
        time.time = lambda: clock._real_time() + clock.offset
