"""The tree of errors is the one that is drawn."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from locus import errors
from locus.errors import CapabilityError, ConflictError, LocusError, SerializationError

CLASSES = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, LocusError) and kind.__module__ == errors.__name__
}
ALL = sorted(CLASSES.values(), key=lambda kind: kind.__name__)


def drawn() -> dict[str, tuple[str | None, str | None]]:
    """Of every name in the drawing: the name above it, and what else it is said to be."""
    found: dict[str, tuple[str | None, str | None]] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.fullmatch(r"( {4}[ │├└─]*)([A-Z]\w+Error)(.*)", line)
        if match is None:
            continue
        indent, name, text = len(match[1]), match[2], match[3]
        above = [(depth, parent) for depth, parent in above if depth < indent]
        also = re.search(r"\(also an? (\w+)\)", text)
        found[name] = (above[-1][1] if above else None, also[1] if also else None)
        above.append((indent, name))
    return found


def test_the_drawing_shows_every_class() -> None:
    assert len(ALL) > 9
    assert set(drawn()) == set(CLASSES)


@pytest.mark.parametrize("kind", ALL)
def test_a_class_hangs_where_it_is_drawn(kind: type[LocusError]) -> None:
    parent, also = drawn()[kind.__name__]
    bases = [base.__name__ for base in kind.__bases__]
    assert bases == [name for name in (parent or "Exception", also) if name]


@pytest.mark.parametrize("kind", ALL)
def test_a_class_says_what_it_means(kind: type[LocusError]) -> None:
    assert kind.__doc__
    assert "__doc__" in vars(kind)


@pytest.mark.parametrize("kind", ALL)
def test_errors_travel(kind: type[LocusError]) -> None:
    error = kind("what happened")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert str(again) == "what happened"
        assert again.args == error.args


def test_what_errors_know_travels_along() -> None:
    refused = SerializationError("no", "messages[3].metadata.x")
    conflict = ConflictError("no", expected="a", latest=None)
    assert pickle.loads(pickle.dumps(refused)).path == "messages[3].metadata.x"
    again = pickle.loads(pickle.dumps(conflict))
    assert (again.expected, again.latest) == ("a", None)
    assert (ConflictError("no").expected, SerializationError("no").path) == (None, "")


def test_a_missing_capability_is_a_method_that_is_not_implemented() -> None:
    with pytest.raises(NotImplementedError):
        raise CapabilityError("no")
