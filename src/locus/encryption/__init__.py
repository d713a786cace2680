"""Encryption of what a store keeps: the keys that open it.

Pass a `Keyring` as `get_checkpointer(url, keys=keyring)`, or set `LOCUS_KEYS`. The extra `encryption` installs what it
needs.
"""

from __future__ import annotations

from locus.encryption.keyring import Keyring, WrappedKey, new_key

__all__ = ["Keyring", "WrappedKey", "new_key"]
