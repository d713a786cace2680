"""A wallet as Autonomous Database hands it out: a client's certificate under a password, and a `tnsnames.ora`."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID


def write_wallet(folder: Path, password: str, alias: str, port: int, service: str) -> None:
    """`folder/wallet` is for clients; `server.pem` and `authority.pem` beside it are the server's."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("Locus test authority", authority_key, None)
    wallet = folder / "wallet"
    wallet.mkdir()
    for name, file, encryption in (
        ("127.0.0.1", folder / "server.pem", NoEncryption()),
        ("client", wallet / "ewallet.pem", BestAvailableEncryption(password.encode())),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        own = _certificate(name, key, (authority, authority_key))
        file.write_bytes(
            _key_pem(key, encryption) + own.public_bytes(Encoding.PEM) + authority.public_bytes(Encoding.PEM)
        )
        file.chmod(0o600)
    (folder / "authority.pem").write_bytes(authority.public_bytes(Encoding.PEM))
    address = f"(address=(protocol=tcps)(host=127.0.0.1)(port={port}))"
    data = f"(connect_data=(service_name={service}))(security=(ssl_server_dn_match=yes))"
    (wallet / "tnsnames.ora").write_text(f"{alias} = (description={address}{data})\n", encoding="ascii")


def server_context(folder: Path) -> ssl.SSLContext:
    """Mutual TLS: a client without a wallet is not let in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.load_verify_locations(folder / "authority.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _key_pem(key: ec.EllipticCurvePrivateKey, encryption: KeySerializationEncryption) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
) -> x509.Certificate:
    """Signed by the issuer, or by itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(issuer[1] if issuer else key, hashes.SHA256())
    )
