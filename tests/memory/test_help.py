"""What `help` and editors say of the public methods: a line each, and where there is more."""

from __future__ import annotations

import inspect
import re

import pytest

from locus.memory.checkpointer import BaseCheckpointer, Checkpointer
from locus.memory.saver import CheckpointSaver
from locus.memory.storage import StorageBackend
from locus.memory.sync import SyncBackend, SyncCheckpointer, SyncCheckpointSaver

CONTRACT = {kind.__name__: kind for kind in (BaseCheckpointer, Checkpointer, StorageBackend, CheckpointSaver)}
BLOCKING = ((SyncCheckpointer, Checkpointer), (SyncBackend, StorageBackend), (SyncCheckpointSaver, CheckpointSaver))
FACES = (*CONTRACT.values(), *(blocking for blocking, _ in BLOCKING))
_SEE = re.compile(r"\s+See `([\w.]+)`")


def _public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


def _help(kind: type, name: str) -> str:
    return inspect.getdoc(inspect.getattr_static(kind, name)) or ""


def _summary(text: str) -> str:
    return _SEE.split(text)[0].split("\n\n")[0]


@pytest.mark.parametrize("kind", FACES, ids=lambda kind: kind.__name__)
def test_every_method_says_what_it_does(kind: type) -> None:
    """`help` does not look beyond the class that defines a method: a mixin has to say it itself."""
    assert [name for name in _public(kind) if not _help(kind, name)] == []


@pytest.mark.parametrize(("blocking", "face"), BLOCKING, ids=lambda kind: kind.__name__)
def test_a_blocking_method_says_the_same(blocking: type, face: type) -> None:
    for name in set(_public(blocking)) - {"backend"}:
        said, there = _help(blocking, name), _help(face, name)
        assert _summary(said) == _summary(there), name
        assert said == there or _SEE.search(said), f"{name}: there is more to read, and it does not say where"


@pytest.mark.parametrize("kind", FACES, ids=lambda kind: kind.__name__)
def test_what_is_referred_to_says_more(kind: type) -> None:
    for name in _public(kind):
        for place in _SEE.findall(_help(kind, name)):
            owner, dot, method = place.partition(".")
            if dot:
                assert len(_help(CONTRACT[owner], method)) > len(_help(kind, name)), (name, place)
