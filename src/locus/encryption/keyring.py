"""Keyrings: named keys that wrap the data keys of a store, from a file, the environment or a key management service."""

from __future__ import annotations

import base64
import binascii
import inspect
import os
import re
import secrets
import stat
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from locus.errors import ConfigurationError, EncryptionKeyError
from locus.extras import require

EXTRA: Final = "encryption"
VARIABLE: Final = "LOCUS_KEYS"
KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Wrap = Callable[[bytes, str], bytes | Awaitable[bytes]]


class WrappedKey(NamedTuple):
    """A data key that only the named key of a keyring, or a key management service, can open."""

    key_id: str
    wrapped: bytes


def new_key() -> str:
    """Make the text of a random key, as it stands in a file of keys."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


class Keyring:
    """Keys that wrap the data keys of a store. The first key wraps new ones; all of them open what they have wrapped.

    `keys` maps the id of a key to its 32 bytes, or to their base64 text. A key management service takes their place
    with `wrap` and `unwrap`, which get a key and the name of its subject and return bytes, or an awaitable of them;
    `service` is its id.

    `subject` tells to which subject a thread belongs, whose data key it shares: without it, each thread is one. What is
    in `clear_metadata` stays readable for whoever reads the database.
    """

    def __init__(
        self,
        keys: Mapping[str, bytes | str] | None = None,
        *,
        wrap: Wrap | None = None,
        unwrap: Wrap | None = None,
        service: str = "kms",
        subject: Callable[[str], str] | None = None,
        clear_metadata: Collection[str] = (),
    ) -> None:
        if (wrap is None) != (unwrap is None):
            raise ConfigurationError("pass wrap and unwrap together: what one wraps the other has to open")
        if not keys and wrap is None:
            raise ConfigurationError("a keyring needs a key: Keyring({'2026-01': new_key()}), or wrap= and unwrap=")
        if isinstance(clear_metadata, str):
            raise ConfigurationError("clear_metadata is a collection of keys, such as ('tenant',)")
        self._aead: Any = require("cryptography.hazmat.primitives.ciphers.aead", EXTRA).AESGCM
        self._keys = {_checked_id(key_id): _checked_key(key_id, key) for key_id, key in (keys or {}).items()}
        self._wrap, self._unwrap, self._service = wrap, unwrap, _checked_id(service)
        if wrap is not None and self._service in self._keys:
            raise ConfigurationError(f"the keyring has a key named {service!r}: give the service another id")
        self._subject = subject
        self.clear_metadata = frozenset(clear_metadata)

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> Keyring:
        """Read a file with a line `id key` for each key. Nobody but its owner may read the file."""
        file = Path(path).expanduser()
        try:
            mode = file.stat().st_mode
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the file of keys {str(file)!r:.200} cannot be read: {error}") from None
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            raise ConfigurationError(f"others may read the file of keys {str(file)!r:.200}: run chmod 600 on it")
        return cls.from_text(text, **options)

    @classmethod
    def from_text(cls, text: str, **options: Any) -> Keyring:
        """Read lines `id key`. Empty lines, and those that begin with `#`, are no keys."""
        keys: dict[str, bytes | str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or words[0] in keys:
                raise ConfigurationError(f"line {number} of the keys has to be an id of its own and a key")
            keys[words[0]] = words[1]
        return cls(keys, **options)

    @classmethod
    def from_environment(cls, **options: Any) -> Keyring | None:
        """Read the file that the variable `LOCUS_KEYS` names; None if it is not set."""
        path = os.environ.get(VARIABLE)
        return cls.from_file(path, **options) if path else None

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self.key_ids)})"

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of the keys, the one that wraps new data keys first."""
        return ((self._service,) if self._wrap else ()) + tuple(self._keys)

    def subject_of(self, thread_id: str) -> str:
        """The subject whose data key seals a thread."""
        if self._subject is None:
            return thread_id
        subject = self._subject(thread_id)
        if not isinstance(subject, str) or not subject:
            raise ConfigurationError("the function subject= of a keyring has to return the name of a subject")
        return subject

    async def wrap(self, data_key: bytes, subject: str) -> WrappedKey:
        """Wrap a data key with the newest key."""
        if self._wrap is not None:
            return WrappedKey(self._service, await _answer(self._wrap(data_key, subject)))
        key_id, key = next(iter(self._keys.items()))
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return WrappedKey(key_id, nonce + self._aead(key).encrypt(nonce, data_key, subject.encode()))

    async def unwrap(self, wrapped: WrappedKey, subject: str) -> bytes:
        """Open a data key; raises `EncryptionKeyError` if this keyring cannot."""
        if self._unwrap is not None and wrapped.key_id == self._service:
            return await _answer(self._unwrap(wrapped.wrapped, subject))
        key = self._keys.get(wrapped.key_id)
        if key is None:
            raise EncryptionKeyError(
                f"this needs the key {wrapped.key_id!r:.80}, which the keyring does not have; it has: "
                f"{', '.join(self.key_ids)}"
            )
        nonce, sealed = wrapped.wrapped[:_NONCE_BYTES], wrapped.wrapped[_NONCE_BYTES:]
        try:
            opened: bytes = self._aead(key).decrypt(nonce, sealed, subject.encode())
        except Exception as error:  # noqa: BLE001 - InvalidTag, or a ValueError for a nonce that is cut off
            raise EncryptionKeyError(
                f"the key {wrapped.key_id!r:.80} of the keyring does not open what a key of that name has wrapped "
                f"({type(error).__name__}): it is another key, or the wrapped data key is damaged"
            ) from None
        return opened


async def _answer(given: bytes | Awaitable[bytes]) -> bytes:
    return await given if inspect.isawaitable(given) else given


def _checked_id(key_id: object) -> str:
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        raise ConfigurationError(
            f"the id of a key is 1 to 64 letters, digits, dots, hyphens and underscores, got {key_id!r:.80}"
        )
    return key_id


def _checked_key(key_id: str, key: object) -> bytes:
    """The bytes of a key. What is wrong with it is told without showing it."""
    if isinstance(key, str):
        try:
            key = base64.b64decode(key, validate=True)
        except (binascii.Error, ValueError):
            raise ConfigurationError(f"the key {key_id!r:.80} is no base64: `locus keys new` makes one") from None
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise ConfigurationError(f"the key {key_id!r:.80} needs {KEY_BYTES} bytes, or their base64")
    return key
