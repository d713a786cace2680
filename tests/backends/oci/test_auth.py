"""Who signs: a key, a session's token, a resource, an instance; and what is said if they may not."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from oci._vendor.httpsig_cffi.sign import HeaderSigner  # type: ignore[import-untyped]

from locus.errors import BackendUnavailableError, ConfigurationError
from locus.memory.backends.oci_bucket.client import OCIObjectStore, signing
from tests.backends.oci.conftest import OpenStore, failing
from tests.servers.oci.keys import TENANCY, private_pem, public_pem, write_config
from tests.servers.oci.server import OCIServer

pytestmark = pytest.mark.oci


@pytest.fixture(scope="module")
def other_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def new_token() -> str:
    """A token in the form that Oracle's have; the stand-in knows it by its text."""
    claims = {"exp": int(time.time()) + 3_600, "res_tenant": TENANCY}
    parts: tuple[dict[str, Any], ...] = ({"alg": "RS256"}, claims, {})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


async def test_a_key_that_the_service_does_not_know(
    open_store: OpenStore, tmp_path: Path, other_key: rsa.RSAPrivateKey
) -> None:
    store = open_store(config_file=write_config(tmp_path, key=other_key))
    for call in (store.get("a"), store.list(""), store.put("a", b"", if_absent=True), store.delete(["a", "b"])):
        async with failing(store, BackendUnavailableError, match=r"401 NotAuthenticated.*fingerprint.*clock") as caught:
            await call
        told = f"{caught.value} {caught.value!r} {caught.value.__cause__} {store!r} {vars(store)!r}"
        assert private_pem(other_key).splitlines()[1] not in told


async def test_a_session_token(
    open_store: OpenStore, oci_server: OCIServer, tmp_path: Path, other_key: rsa.RSAPrivateKey
) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    config = write_config(tmp_path, key=other_key, security_token_file=str(file))
    oci_server.accept_keys(**{"ST$first": public_pem(other_key)})
    store = open_store(config_file=config, auth_type="security_token")
    assert await store.put("a", b"1", if_absent=True)
    many = ["a", *(f"nothing {number}" for number in range(12))]
    assert (await store.get_many(many))["a"] == b"1"
    oci_server.withdraw_key("ST$first")
    async with failing(store, BackendUnavailableError, match="security token has not ended"):
        await store.get("a")
    file.write_text("second\n")
    oci_server.accept_keys(**{"ST$second": public_pem(other_key)})
    assert await store.get("a") == b"1", "a token that was renewed in the file is read again"
    assert (await store.get_many(many))["a"] == b"1", "and every thread takes it up"


async def test_a_resource_principal(
    open_store: OpenStore, oci_server: OCIServer, monkeypatch: pytest.MonkeyPatch, other_key: rsa.RSAPrivateKey
) -> None:
    token = new_token()
    monkeypatch.setenv("OCI_RESOURCE_PRINCIPAL_VERSION", "2.2")
    monkeypatch.setenv("OCI_RESOURCE_PRINCIPAL_RPST", token)
    monkeypatch.setenv("OCI_RESOURCE_PRINCIPAL_PRIVATE_PEM", private_pem(other_key))
    monkeypatch.setenv("OCI_RESOURCE_PRINCIPAL_REGION", "eu-frankfurt-1")
    store = open_store(auth_type="resource_principal", config_file=None)
    async with failing(store, BackendUnavailableError, match="401 NotAuthenticated"):
        await store.get("a")
    oci_server.accept_keys(**{f"ST${token}": public_pem(other_key)})
    assert await store.put("a", b"1", if_absent=True)
    assert await store.get("a") == b"1"


async def test_a_resource_principal_that_is_not_there(open_store: OpenStore) -> None:
    store = open_store(auth_type="resource_principal", config_file=None)
    async with failing(store, BackendUnavailableError, match=r"no resource principal.*inside OCI") as caught:
        await store.get("a")
    assert caught.value.__cause__ is not None


async def test_a_fork_would_wait_for_a_signature(store: OCIObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    under_the_lock = []
    sign = HeaderSigner.sign

    def watched(*args: Any, **options: Any) -> Any:
        under_the_lock.append(signing.locked())
        return sign(*args, **options)

    monkeypatch.setattr(HeaderSigner, "sign", watched)
    assert await store.put("a", b"1", if_absent=True)
    assert await store.get("a") == b"1"
    assert await store.list("")
    await store.delete(["a"])
    assert under_the_lock == [True] * 4
    assert not signing.locked()


async def test_what_is_configured_wrongly_is_said_at_once(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="NOSUCH"):
        open_store(profile_name="NOSUCH")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        open_store(config_file=tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="no usable security token"):
        open_store(auth_type="security_token")
    config = write_config(tmp_path)
    (tmp_path / "key.pem").write_text("no key at all")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        open_store(config_file=config)
    config = write_config(tmp_path, region="")
    with pytest.raises(ConfigurationError, match="region"):
        open_store(config_file=config, service_endpoint=None)
    monkeypatch.setenv("OCI_CONFIG_FILE", str(write_config(tmp_path)))
    assert open_store(config_file=None).identity
