"""Data keys: what seals the texts of one subject, and gives names that only it can read."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import zlib
from typing import Any, Final

from locus.encryption.keyring import EXTRA
from locus.extras import require

MARK: Final = "~s1:"
"""The beginning of each sealed text, with the number of its form."""
SECRET_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 6
_TAG: Final = 8
_PLAIN, _DEFLATED = b"\0", b"\1"
_DEFLATES_FROM: Final = 2_048
"""The number of bytes from which on a text is deflated. Databases cannot compress what is sealed."""
_MOST_NAMES: Final = 4_096


class NotSealedError(Exception):
    """A text does not have the form of a sealed one: somebody has stored it in clear."""


class NotOpenedError(Exception):
    """A sealed text was not sealed with this key, at this place, or was changed since."""


class DataKey:
    """Seals texts with AES-256-GCM, each bound to its place, and short names with AES-SIV, always alike."""

    def __init__(self, secret: bytes) -> None:
        aead = require("cryptography.hazmat.primitives.ciphers.aead", EXTRA)
        self._texts: Any = aead.AESGCM(_derived(secret, "texts", 32))
        self._names: Any = aead.AESSIV(_derived(secret, "names", 64))
        # One block of AES is a permutation of its values: what has 16 bytes needs no more, and looks random.
        ciphers = require("cryptography.hazmat.primitives.ciphers", EXTRA)
        self._block: Any = ciphers.Cipher(ciphers.algorithms.AES(_derived(secret, "block", 32)), ciphers.modes.ECB())
        self._index = _derived(secret, "index", 32)
        self.tag = base64.b64encode(_derived(secret, "tag", _TAG_BYTES)).decode()
        self._named: dict[str, str] = {}
        self._unnamed: dict[str, str] = {}

    def seal(self, text: str, place: bytes) -> str:
        """Seal a text at a place."""
        data = text.encode()
        if len(data) < _DEFLATES_FROM:
            data = _PLAIN + data
        else:
            data = _DEFLATED + zlib.compress(data, 1)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._texts.encrypt(nonce, data, place)
        return f"{MARK}{self.tag}{binascii.b2a_base64(sealed, newline=False).decode()}"

    def open(self, sealed: str, place: bytes) -> str:
        """Open what was sealed at a place."""
        if tag_of(sealed) != self.tag:
            raise NotOpenedError
        try:
            packed = binascii.a2b_base64(sealed[len(MARK) + _TAG :], strict_mode=True)
            data: bytes = self._texts.decrypt(packed[:_NONCE_BYTES], packed[_NONCE_BYTES:], place)
        except Exception:  # noqa: BLE001 - InvalidTag, or whatever is wrong with its form
            raise NotOpenedError from None
        return (data[1:] if data[:1] == _PLAIN else zlib.decompress(data[1:])).decode()

    def name(self, text: str) -> str:
        """The sealed form of a name. Equal names have equal ones."""
        found = self._named.get(text)
        if found is None:
            found = base64.urlsafe_b64encode(self._names.encrypt(text.encode(), None)).decode().rstrip("=")
            self._keep(text, found)
        return found

    def unname(self, name: str) -> str:
        """The name that has a sealed form."""
        found = self._unnamed.get(name)
        if found is None:
            try:
                packed = base64.b64decode(name + "=" * (-len(name) % 4), altchars=b"-_", validate=True)
                found = self._names.decrypt(packed, None).decode()
            except Exception:  # noqa: BLE001 - InvalidTag, or whatever is wrong with its form
                raise NotOpenedError from None
            self._keep(found, name)
        return found

    def number(self, digest: str) -> str:
        """The sealed form of a digest of 32 digits, which is one of 32 digits."""
        encryptor = self._block.encryptor()
        sealed: bytes = encryptor.update(bytes.fromhex(digest)) + encryptor.finalize()
        return sealed.hex()

    def unnumber(self, number: str) -> str:
        """The digest that has a sealed form."""
        decryptor = self._block.decryptor()
        opened: bytes = decryptor.update(bytes.fromhex(number)) + decryptor.finalize()
        return opened.hex()

    def mark(self, text: str) -> str:
        """A short mark of a text that tells nothing but whether another text is the same."""
        return base64.urlsafe_b64encode(hmac.digest(self._index, text.encode(), "sha256")[:15]).decode()

    def _keep(self, text: str, name: str) -> None:
        if len(self._named) >= _MOST_NAMES:
            self._named.clear()
            self._unnamed.clear()
        self._named[text], self._unnamed[name] = name, text


def new_secret() -> bytes:
    """Random bytes to make a `DataKey` of."""
    return secrets.token_bytes(SECRET_BYTES)


def tag_of(sealed: object) -> str:
    """The tag of the key that has sealed a text."""
    if not isinstance(sealed, str) or not sealed.startswith(MARK):
        raise NotSealedError
    return sealed[len(MARK) : len(MARK) + _TAG]


def _derived(secret: bytes, purpose: str, size: int) -> bytes:
    return hmac.digest(secret, f"locus {purpose}".encode(), "sha512")[:size]
