"""What a commit amounts to for whoever reads it, which its size does not tell. Pure functions.

A manifest is short, whatever it stands for: a list may name one run many times, many paths may name one large value,
and each list costs a reader something, however short it is. What the planner writes never repeats an item of a list,
and stays far below the limits here. What anybody else writes is priced before it is stored. What is stored already is
priced by `amount` before it is put together: an older version may have stored anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from locus.errors import SerializationError
from locus.memory.model.codec import path_text
from locus.memory.model.records import Cuts, Extent, Path, Run


@dataclass(frozen=True, slots=True)
class PriceLimits:
    """The most that a commit may amount to."""

    lists: int
    """Lists and large values that are cut out of the head."""
    extents: int
    """Pieces of all lists together."""
    manifest: int
    """Characters of the manifest."""
    characters: int
    """Characters of a state that shows something more than once."""
    values: int
    """JSON values of such a state."""


OF_CLIENTS: Final = PriceLimits(
    lists=5_000, extents=20_000, manifest=4_000_000, characters=64 * 1024**2, values=1_000_000
)
IN_PROCESS: Final = PriceLimits(
    lists=200_000, extents=2_000_000, manifest=100_000_000, characters=8 * 1024**3, values=1_000_000_000
)


class Amount(NamedTuple):
    """What something comes to when it is put together: at most so many characters of JSON, and values."""

    characters: int
    values: int


def amount(extents: Iterable[Extent], runs: Mapping[str, Sequence[Run]]) -> Amount:
    """What these runs come to, with everything that extents repeat. The runs are those that were read for them."""
    times = repeats(extents)
    characters = values = 0
    for branch, of_branch in runs.items():
        count = times.get(branch, 1)
        for run in of_branch:
            characters += count * len(run.items)
            values += count * most_values_of(run.items)
    return Amount(characters, values)


def most_values_of(text: str) -> int:
    """An upper bound for the values in a JSON text: each but the first follows a comma or a bracket."""
    return 1 + text.count(",") + text.count("[") + text.count("{")


def repeats(extents: Iterable[Extent]) -> dict[str, int]:
    """The branches of which extents show a position more than once, and how often at most."""
    found: dict[str, int] = {}
    branch_of = itemgetter(0)
    for branch, some in groupby(sorted(extents, key=branch_of), branch_of):
        of_branch = list(some)
        times = 1 if len(of_branch) == 1 else _deepest(of_branch)
        if times > 1:
            found[branch] = times
    return found


def _deepest(extents: Sequence[Extent]) -> int:
    """The most extents that show one position of their branch."""
    steps = [(extent.skip, 1) for extent in extents if extent.length]
    steps += [(extent.skip + extent.length, -1) for extent in extents if extent.length]
    depth = deepest = 0
    for _, step in sorted(steps):
        depth += step
        deepest = max(deepest, depth)
    return deepest


def check_cuts(cuts: Cuts, manifest: str, limits: PriceLimits, base: Cuts | None = None) -> None:
    """Refuse a manifest with more lists or more pieces of lists than the limits allow, and its base has."""
    most = max(limits.lists, len(base or ()))
    if len(cuts) > most:
        raise SerializationError(
            f"the state has {len(cuts):,} lists and large values that are stored apart, and {most:,} are the most: "
            "keep many small lists as one list of objects, or in several threads"
        )
    pieces, of_base = _pieces(cuts), _pieces(base or {})
    if pieces > max(limits.extents, of_base):
        raise SerializationError(
            f"the lists of the state are in {pieces:,} pieces, and {max(limits.extents, of_base):,} are the most: "
            "save the state without a base, as a whole"
        )
    if len(manifest) > limits.manifest:
        raise SerializationError(
            f"the names that lead to the lists of the state have {len(manifest):,} characters, and "
            f"{limits.manifest:,} are the most: give them shorter names, or put them into several threads"
        )


def _pieces(cuts: Cuts) -> int:
    return sum(1 if isinstance(cut, str) else len(cut) for cut in cuts.values())


def check_amount(found: Amount, limits: PriceLimits) -> None:
    """Refuse what becomes too large by repeating."""
    if found.characters > limits.characters or found.values > limits.values:
        raise SerializationError(
            f"the state names the same items again and again, and has about {found.characters:,} characters and "
            f"{found.values:,} values when it is read, where {limits.characters:,} and {limits.values:,} are the most: "
            "store a text once, and refer to it by a name"
        )


LEAST_ITEMS: Final = 64
LEAST_CHARACTERS: Final = 16_384
"""The runs of one commit have this many items or characters on average. Those of the planner have four times as many,
but for the last of a branch."""


def check_runs(runs: Collection[Run]) -> None:
    """Refuse the runs of a branch if they are many for the few items in them: every reader pays for each run."""
    for branch, some in groupby(sorted(runs, key=itemgetter(0)), itemgetter(0)):
        of_branch = list(some)
        items, characters = sum(run.length for run in of_branch), sum(len(run.items) for run in of_branch)
        if len(of_branch) > 2 + items // LEAST_ITEMS + characters // LEAST_CHARACTERS:
            raise SerializationError(
                f"{len(of_branch):,} runs of branch {branch!r:.80} have only {items:,} items: "
                "put the items that one save adds to a list into one run, up to 256 of them or 65,536 characters"
            )


def check_places(head: Any, cuts: Cuts, values: Mapping[str, Any]) -> Iterator[Path]:
    """Refuse a path that does not lead to an empty place of the head, or of a large value that was cut out before it.

    `values` are large values by their names. Yields the paths that lead into a value that is not among them.
    """
    for path in cuts:
        node = head
        for depth, step in enumerate(path):
            name = cuts.get(path[:depth]) if depth else None
            if name is not None:
                node = values.get(name, _UNKNOWN) if isinstance(name, str) else None
            if node is not _UNKNOWN:
                node = inside(node, step, path)
        if node is _UNKNOWN:
            yield path
        else:
            check_empty(node, path)


def inside(value: Any, step: str, path: Path) -> Any:
    """The value under the next step of a path in the manifest."""
    if not isinstance(value, dict) or step not in value:
        raise SerializationError(f"no place in the head is where a path in the manifest leads: {path_text(path)[:80]}")
    return value[step]


def check_empty(value: Any, path: Path) -> None:
    if value not in ([], None):
        raise SerializationError(f"[] or null must stand for what is cut out of the head at {path_text(path)[:80]}")


_UNKNOWN: Final = object()
"""Stands for the content of a large value that is not known."""
