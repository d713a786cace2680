from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from locus.models.provider import Provider
from tests.models.oci_keys import verified, write_config
from tests.models.server import ModelServer
from tests.models.wires import AnthropicWire, OllamaWire, OpenAIWire, Wire


class OCIWire(OpenAIWire):
    name = "oci"

    def __init__(self, config: Path) -> None:
        self.config = config

    def model(self, url: str, **options: Any) -> Provider:
        from locus.models.oci import OCIModel

        return OCIModel("openai.gpt-test", service_endpoint=url, **options)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key and no configuration of this machine takes part."""
    for name in (
        *("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN"),
        *("OLLAMA_API_KEY", "OLLAMA_HOST", "LOCUS_MODEL_PROVIDER", "LOCUS_MODEL_ID"),
        *("OCI_CONFIG_PROFILE", "OCI_REGION", "OCI_COMPARTMENT_ID", "OCI_GENAI_ENDPOINT"),
        *("OCI_RESOURCE_PRINCIPAL_VERSION", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OCI_CONFIG_FILE", str(tmp_path / "no-such-file"))


@pytest.fixture
def server() -> Iterator[ModelServer]:
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture
def oci(server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OCIWire:
    """OCI's wire is OpenAI's, and every request has to be signed."""
    config = write_config(tmp_path)
    monkeypatch.setenv("OCI_CONFIG_FILE", str(config))
    server.check = lambda request: None if verified(request) else 401
    return OCIWire(config)


@pytest.fixture(params=["openai", "anthropic", "ollama", "oci"])
def wire(request: pytest.FixtureRequest) -> Wire:
    if request.param == "oci":
        found: Wire = request.getfixturevalue("oci")
        return found
    wires: dict[str, type[Wire]] = {"openai": OpenAIWire, "anthropic": AnthropicWire, "ollama": OllamaWire}
    return wires[request.param]()
