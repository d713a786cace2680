"""The log-on: the password goes over as the key to a secret, never as itself (O5LOGON with a 12c verifier)."""

from __future__ import annotations

import hashlib
import secrets

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

VERIFIER_12C = 0x4815
ROUNDS = 16
"""Few: tests open many connections, and guard nothing."""


class Challenge:
    """What the server sends first, and how it tells whether the answer knows the password."""

    def __init__(self, password: str | None) -> None:
        # An unknown user gets a challenge like any other, and fails it.
        self._password = (password if password is not None else secrets.token_hex()).encode()
        self._known = password is not None
        self._salt = secrets.token_bytes(16)
        self._key_salt = secrets.token_bytes(16)
        self._own_half = secrets.token_bytes(32)
        self._combined = b""

    def pairs(self) -> list[tuple[str, str, int]]:
        return [
            ("AUTH_SESSKEY", _hex(_encrypt(self._hash(), self._own_half)), 0),
            ("AUTH_VFR_DATA", _hex(self._salt), VERIFIER_12C),
            ("AUTH_PBKDF2_CSK_SALT", _hex(self._key_salt), 0),
            ("AUTH_PBKDF2_VGEN_COUNT", str(ROUNDS), 0),
            ("AUTH_PBKDF2_SDER_COUNT", str(ROUNDS), 0),
        ]

    def is_met(self, answer: dict[str, str]) -> bool:
        their_half = _decrypt(self._hash(), bytes.fromhex(answer.get("AUTH_SESSKEY", "")))
        if len(their_half) != 32 or not self._known:
            return False
        both = (their_half + self._own_half).hex().upper().encode()
        self._combined = hashlib.pbkdf2_hmac("sha512", both, self._key_salt, ROUNDS, 32)
        told = _decrypt(self._combined, bytes.fromhex(answer.get("AUTH_PASSWORD", "")))
        padding = told[-1] if told else 0
        return told[16 : len(told) - padding] == self._password

    def proof(self) -> str:
        """That the server knows the password, too."""
        text = secrets.token_bytes(16) + b"SERVER_TO_CLIENT"
        return _hex(_encrypt(self._combined, text + bytes([16] * 16)))

    def _hash(self) -> bytes:
        salt = self._salt + b"AUTH_PBKDF2_SPEEDY_KEY"
        key = hashlib.pbkdf2_hmac("sha512", self._password, salt, ROUNDS, 64)
        return hashlib.sha512(key + self._salt).digest()[:32]


def _hex(data: bytes) -> str:
    return data.hex().upper()


def _cipher(key: bytes) -> Cipher[modes.CBC]:
    return Cipher(algorithms.AES(key), modes.CBC(bytes(16)))


def _encrypt(key: bytes, data: bytes) -> bytes:
    encryptor = _cipher(key).encryptor()
    return encryptor.update(data) + encryptor.finalize()


def _decrypt(key: bytes, data: bytes) -> bytes:
    if len(data) % 16:
        return b""
    decryptor = _cipher(key).decryptor()
    return decryptor.update(data) + decryptor.finalize()
