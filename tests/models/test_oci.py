"""OCI Generative AI: signed requests, and where the configuration comes from."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from locus.core.messages import Message
from locus.errors import ConfigurationError
from locus.models.errors import ModelAuthenticationError
from locus.models.oci import OCIModel
from locus.oci_auth import is_configured
from tests.models.conftest import OCIWire
from tests.models.oci_keys import FINGERPRINT, TENANCY, USER, private_key, verified, write_config
from tests.models.server import ModelServer, Request

HELLO = [Message.user("Hello")]


async def test_the_request_is_signed_with_the_key_of_the_profile(oci: OCIWire, server: ModelServer) -> None:
    server.replies = [oci.answer("Hi"), oci.answer("Hi")]
    async with oci.model(server.url, max_tokens=10) as model:
        assert (await model.complete(HELLO)).message.text == "Hi"
        await model.complete(HELLO, temperature=0.5)
    for request in server.requests:
        signature = verified(request)
        assert signature is not None
        assert signature["keyId"] == f"{TENANCY}/{USER}/{FINGERPRINT}"
        assert request.path == "/20231130/actions/v1/chat/completions"
        assert request.headers["compartmentid"] == TENANCY
    assert server.requests[0].json["model"] == "openai.gpt-test"
    assert server.requests[0].json["max_completion_tokens"] == 10


async def test_the_check_of_the_signature_can_fail(oci: OCIWire, server: ModelServer) -> None:
    server.replies = [oci.answer("Hi")]
    async with oci.model(server.url) as model:
        await model.complete(HELLO)
    (good,) = server.requests
    forged = good.body.replace(b"Hello", b"Hullo")
    assert verified(good) is not None
    assert verified(Request(good.method, good.path, good.headers, forged, 0.0)) is None
    assert verified(Request(good.method, good.path + "x", good.headers, good.body, 0.0)) is None
    assert verified(Request(good.method, good.path, {**good.headers, "date": "today"}, good.body, 0.0)) is None


async def test_a_retry_is_signed_anew(oci: OCIWire, server: ModelServer) -> None:
    server.replies = [oci.refusal(503, "busy"), oci.answer("Hi")]
    async with oci.model(server.url) as model:
        await model.complete(HELLO)
    assert [verified(request) is not None for request in server.requests] == [True, True]


async def test_a_signature_that_is_refused(oci: OCIWire, server: ModelServer) -> None:
    server.check = lambda _request: 401
    async with oci.model(server.url) as model:
        with pytest.raises(ModelAuthenticationError, match="refused with 401") as caught:
            await model.complete(HELLO)
    pem = oci.config.with_name("key.pem").read_text()
    assert pem.splitlines()[1] not in f"{caught.value!r} {model!r} {vars(model)!r}"


async def test_a_session_token_signs_too(server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("the-token\n")
    config = write_config(tmp_path, security_token_file=str(token))
    monkeypatch.setenv("OCI_CONFIG_FILE", str(config))
    wire = OCIWire(config)
    server.replies = [wire.answer("Hi")]
    async with wire.model(server.url, compartment_id="ocid1.compartment.x") as model:
        await model.complete(HELLO)
    signature = verified(server.requests[0])
    assert signature is not None
    assert signature["keyId"] == "ST$the-token"
    assert server.requests[0].headers["compartmentid"] == "ocid1.compartment.x"


async def test_a_signer_of_ones_own(server: ModelServer) -> None:
    from cryptography.hazmat.primitives import serialization
    from oci.signer import Signer  # type: ignore[import-untyped]

    pem = private_key().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    signer = Signer(TENANCY, USER, FINGERPRINT, None, private_key_content=pem.decode())
    wire = OCIWire(Path())
    server.replies = [wire.answer("Hi")]
    async with wire.model(server.url, signer=signer) as model:
        await model.complete(HELLO)
    assert verified(server.requests[0]) is not None
    assert "compartmentid" not in server.requests[0].headers


def test_the_endpoint_is_that_of_the_region(oci: OCIWire, monkeypatch: pytest.MonkeyPatch) -> None:
    def endpoint(region: str | None = None) -> str:
        return str(OCIModel("meta.llama-3.3-70b-instruct", region=region)._base_url)

    host = "https://inference.generativeai.{}.oci.oraclecloud.com/20231130/actions/v1"
    assert endpoint() == host.format("eu-frankfurt-1")
    monkeypatch.setenv("OCI_REGION", "us-chicago-1")
    assert endpoint() == host.format("us-chicago-1")
    assert endpoint("uk-london-1") == host.format("uk-london-1")
    monkeypatch.setenv("OCI_GENAI_ENDPOINT", "https://example.org/")
    assert endpoint() == "https://example.org/20231130/actions/v1"


def test_what_is_configured_wrongly_is_said(oci: OCIWire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="instance_principal"):
        OCIModel("m", auth="password")
    with pytest.raises(ConfigurationError, match="NOSUCH"):
        OCIModel("m", profile="NOSUCH")
    with pytest.raises(ConfigurationError, match="security token"):
        OCIModel("m", auth="security_token")
    oci.config.with_name("key.pem").write_text("no key at all")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        OCIModel("m")
    with pytest.raises(ConfigurationError, match="OCI_REGION"):
        OCIModel("m", signer=lambda request: request)
    monkeypatch.setenv("OCI_CONFIG_FILE", str(tmp_path / "gone"))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        OCIModel("m")


def test_a_resource_principal_counts_as_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_configured()
    monkeypatch.setenv("OCI_RESOURCE_PRINCIPAL_VERSION", "2.2")
    assert is_configured()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
async def test_a_forked_child_signs_with_a_key_of_its_own(oci: OCIWire, server: ModelServer) -> None:
    """The inherited one may be in use by a thread that the child does not have: then it would wait for ever."""
    async with oci.model(server.url) as model:
        assert isinstance(model, OCIModel)
        mine = model._own_signer()
        child = os.fork()
        if not child:
            code = 1
            try:
                theirs = model._own_signer()
                request = SimpleNamespace(method="GET", url=server.url, path_url="/", headers={}, body=b"")
                theirs(request)
                code = 0 if theirs is not mine and model._own_signer() is theirs else 2
            finally:
                os._exit(code)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert model._own_signer() is mine


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_signer_that_was_given_stays(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def given(request: object) -> object:
        return request

    model = OCIModel("openai.gpt-test", service_endpoint=server.url, signer=given)
    monkeypatch.setattr(model, "_signer_of", -1)
    assert model._own_signer() is given
