"""A cached property without a lock."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    made_once = cached_property
else:

    def made_once(make: Callable[[Any], Any]) -> property:
        """Make a property whose value is computed once for each object.

        Before Python 3.12, `functools.cached_property` has one lock for all objects of a class. If the process forks
        while a thread holds it, the child waits for ever. Here, two threads may both compute a value at the same time,
        and the first one counts.
        """
        name = f"_{make.__name__}_once"

        def value(self: Any) -> Any:
            made = self.__dict__
            return made[name] if name in made else made.setdefault(name, make(self))

        return property(value, doc=make.__doc__)
