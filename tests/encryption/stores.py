"""Stores whose handles seal what they keep, here and in other processes."""

from __future__ import annotations

from locus.encryption.keyring import Keyring
from locus.memory.checkpointer import Checkpointer
from locus.memory.registry import sealed_checkpointer
from locus.testing.stores import TestStore

KEYS = "2026-01 MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"


def keyring() -> Keyring:
    return Keyring.from_text(KEYS)


def in_seals(handle: Checkpointer) -> Checkpointer:
    return sealed_checkpointer(handle, keyring())


class SealedStore(TestStore):
    """Any store, with keys. It cannot be damaged in the ways of its kind, nor stall: that is tested without keys."""

    def __init__(self, inner: TestStore) -> None:
        self._inner = inner

    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return in_seals(self._inner.open(ttl_seconds=ttl_seconds))

    async def corrupt(self, thread_id: str) -> None:
        await self._inner.corrupt(thread_id)
