"""A value that is made when it is first asked for, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    made_once = cached_property
else:

    def made_once(make: Callable[[Any], Any]) -> property:
        """A property whose value is made once for each object.

        Before Python 3.12, `functools.cached_property` has one lock for all objects of a class; a process that forks
        while another thread holds it leaves the child waiting for ever. Here, of two threads that come at the same
        time both make a value, and the first counts.
        """
        name = f"_{make.__name__}_once"

        def value(self: Any) -> Any:
            made = self.__dict__
            return made[name] if name in made else made.setdefault(name, make(self))

        return property(value, doc=make.__doc__)
