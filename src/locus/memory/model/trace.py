"""Traces: what is remembered of a stored checkpoint, so that the next save writes only the changes.

A `Trace` has, for each field of the payload, its text in the head, where its lists are, and what their items were:
the frozen objects themselves, which identity recognises, or digests of their texts.

A save makes some ten of these, so they are tuples: frozen dataclasses take three times as long to make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from locus.core.frozen import EMPTY
from locus.memory.model.alignment import part
from locus.memory.model.digests import DigestChain
from locus.memory.model.records import Base, Extent, Path


class ListTrace(NamedTuple):
    """A stored list as a trace remembers it: its extents, and its items or their digests.

    `items` are kept where they are frozen, so that identity tells what is unchanged; `digests` otherwise.
    """

    extents: tuple[Extent, ...]
    items: Sequence[object] | None = None
    digests: tuple[bytes, ...] | None = None
    chains: Mapping[str, DigestChain] = EMPTY
    """The digests of each branch, as of the newest run that the extents name."""
    omitted: int = 0
    """How many items precede `items` and `digests` in the stored list: those that a window left out."""

    @property
    def is_unread(self) -> bool:
        """Whether neither the items of the list nor their digests are known."""
        return self.items is None and self.digests is None


class FieldTrace(NamedTuple):
    """A field of a payload as a trace remembers it: its text in the head, and the parts cut out of it."""

    value: object
    """The field itself, if it can never change; else None."""
    text: str
    cuts: Mapping[Path, ListTrace | str] = EMPTY  # type: ignore[assignment]  # it has no keys
    left_out: tuple[object, ...] = ()
    """The first items of a list that is short, and so all in the head, where a window left them out."""


class Trace(NamedTuple):
    """Everything that is remembered of a stored checkpoint, for the next save to build on."""

    base: Base
    fields: Mapping[str, FieldTrace]
    passed: bool = False
    """Whether there were newer checkpoints when this one was read: then its branches have most likely grown since."""
    window: Base | None = None
    """The checkpoint that a window was loaded from: what it left out has not changed since."""

    def without_objects(self) -> Trace:
        """This trace with digests only, so that it keeps no state alive."""
        return Trace(
            self.base,
            {
                name: FieldTrace(
                    None,
                    trace.text,
                    {
                        path: ListTrace(cut.extents, None, cut.digests, cut.chains)
                        if isinstance(cut, ListTrace)
                        else cut
                        for path, cut in trace.cuts.items()
                    },
                )
                for name, trace in self.fields.items()
            },
            self.passed,
        )


def places_left_out(trace: Trace) -> dict[str, tuple[object, ...]]:
    """The stored places of the items that a window left out, by list; or the items themselves, if it is short."""
    places = {name: field_trace.left_out for name, field_trace in trace.fields.items() if field_trace.left_out}
    for name, field_trace in trace.fields.items():
        cut = field_trace.cuts.get((name,))
        if isinstance(cut, ListTrace) and cut.omitted:
            places[name] = tuple(part(cut.extents, 0, cut.omitted))
    return places
