"""What a state remembers of where it was kept. It is carried along by every `with_*`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

Place = tuple[str, str, str]
"""(which store, thread id, namespace)"""


class Lineage:
    """The checkpoints that a state was last loaded from or saved as, by place.

    Immutable: a save puts a new one on the state, so that states derived earlier keep theirs. Two lineages
    are always equal, because where a state was kept is no part of what it is.
    """

    __slots__ = ("_known",)

    def __init__(self, known: Mapping[Place, Any] = MappingProxyType({})) -> None:
        self._known = known

    def at(self, place: Place) -> Any | None:
        """What the store left here on the last load or save at this place."""
        return self._known.get(place)

    def after(self, place: Place, trace: object) -> Lineage:
        """This lineage, with `trace` as what is known of `place`. The oldest places are forgotten."""
        known = {key: value for key, value in self._known.items() if key != place}
        known[place] = trace
        while len(known) > 4:
            del known[next(iter(known))]
        return Lineage(MappingProxyType(known))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lineage)

    def __hash__(self) -> int:
        return 0

    def __copy__(self) -> Lineage:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Lineage:
        return self

    def __reduce__(self) -> tuple[type[Lineage], tuple[()]]:
        # A state that travels to another process finds its place there anew.
        return Lineage, ()
