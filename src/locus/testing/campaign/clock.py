"""A clock that jumps. It replaces the time that Locus sees in this process, and in no other."""

from __future__ import annotations

import sys
import time
from datetime import datetime, timedelta, tzinfo
from typing import Any

JUMPS = (0.0, -2.0, 2.0, -90.0, 90.0, -7_200.0, 7_200.0, -40 * 86_400.0, 40 * 86_400.0)
"""Offsets from the real time, in seconds: as corrected by NTP, by a wrong time zone, or by a dead battery."""


class _AnyDatetime(type(datetime)):  # type: ignore[misc] # `type(datetime)` is `type`
    """The metaclass of a stand-in for `datetime`, which makes real times count as its instances."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


class JumpingClock:
    """Replaces `datetime.now` and `time.time` in the modules of Locus that are loaded when it is installed.

    Timers are not affected: they use the monotonic clock, as on a machine whose clock is being set.
    """

    def __init__(self) -> None:
        self.offset = 0.0
        self._real_time = time.time

    def install(self) -> None:
        clock = self

        class Jumping(datetime, metaclass=_AnyDatetime):
            """A stand-in for `datetime` that makes instances of the real class, since drivers know no other."""

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
