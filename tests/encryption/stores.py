"""Stores whose handles seal what they keep, here and in other processes."""

from __future__ import annotations

from locus.encryption.keyring import Keyring
from locus.memory.checkpointer import Checkpointer
from locus.memory.registry import sealed_checkpointer

KEYS = "2026-01 MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"


def keyring() -> Keyring:
    return Keyring.from_text(KEYS)


def in_seals(handle: Checkpointer) -> Checkpointer:
    return sealed_checkpointer(handle, keyring())
