"""Which model a name, the environment or the machine stands for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from locus.agent import Agent
from locus.core.messages import Message
from locus.errors import ConfigurationError, MissingDependencyError
from locus.extras import require
from locus.models import MockModel, ModelResponse, choose_model, get_model, list_models, register_model, registry
from locus.models.anthropic import AnthropicModel
from locus.models.oci import OCIModel
from locus.models.ollama import OllamaModel
from locus.models.openai import OpenAIModel
from tests.models.conftest import OCIWire
from tests.models.wires import KEY

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def _own_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def test_a_name_says_provider_and_model() -> None:
    model = get_model("openai:gpt-4.1", api_key=KEY, max_tokens=5)
    assert isinstance(model, OpenAIModel)
    assert repr(model) == "OpenAIModel(openai:gpt-4.1)"
    assert isinstance(get_model("anthropic:claude-x", api_key=KEY), AnthropicModel)
    ollama = get_model("ollama:llama3.2:1b")
    assert isinstance(ollama, OllamaModel)
    assert ollama.model == "llama3.2:1b"
    assert isinstance(get_model("mock", max_tokens=5), MockModel)


def test_the_environment_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCUS_MODEL_PROVIDER", "openai")
    assert choose_model().model == "gpt-4.1"
    monkeypatch.setenv("LOCUS_MODEL_ID", "gpt-5")
    choice = choose_model()
    assert (choice.provider, choice.model) == ("openai", "gpt-5")
    assert "LOCUS_MODEL_PROVIDER" in choice.reason
    # The id belongs to the provider of the environment, and what is asked for by name comes first.
    assert choose_model("openai:gpt-4o").model == "gpt-4o"
    assert choose_model("openai").model == "gpt-5"
    with pytest.raises(ConfigurationError, match="which model of ollama"):
        choose_model("ollama")


def test_where_nothing_says_which_model_the_error_lists_what_could_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r'which model.*LOCUS_MODEL_PROVIDER is not set.*model="mock"'):
        Agent()
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(
        ConfigurationError, match=r'Name one: model="openai:gpt-4.1" \(OPENAI_API_KEY is set\), '
    ) as caught:
        get_model(max_tokens=100)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("gpt-4", "did you mean 'openai:gpt-4'"),
        ("Claude-x", "did you mean 'anthropic:Claude-x'"),
        ("llama3.2:1b", "did you mean 'ollama:llama3.2:1b'"),
        ("meta.llama-3.3-70b-instruct", "did you mean 'oci:meta.llama-3.3-70b-instruct'"),
        ("opnai:gpt-4", "did you mean 'openai'"),
    ],
)
def test_a_model_without_its_provider_is_told_the_whole_name(given: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=meant):
        Agent(model=given)


def test_with_a_configuration_the_default_is_oci(oci: OCIWire) -> None:
    choice = choose_model()
    assert (choice.provider, choice.model) == ("oci", "openai.gpt-4.1")
    assert isinstance(get_model(max_tokens=100), OCIModel)


def test_an_unknown_provider_lists_what_there_is() -> None:
    with pytest.raises(ConfigurationError, match="anthropic, mock, oci, ollama, openai"):
        get_model("nonsense:x")
    for wrong in ("", 5):
        with pytest.raises(ConfigurationError, match="named by text"):
            get_model(wrong)  # type: ignore[arg-type]


@pytest.mark.usefixtures("_own_providers")
def test_a_provider_of_ones_own() -> None:
    class Echo:
        def __init__(self, model: str, **options: Any) -> None:
            self.model = model

        async def complete(self, messages: Sequence[Message], tools: Any = None, **kwargs: Any) -> ModelResponse:
            return ModelResponse(message=Message.assistant(messages[-1].text))

    register_model("echo", Echo)
    assert "echo" in list_models()
    model = get_model("echo:loud")
    assert isinstance(model, Echo)
    assert model.model == "loud"
    with pytest.raises(ConfigurationError, match="without a colon"):
        register_model("a:b", Echo)
    with pytest.raises(ConfigurationError, match="is not callable"):
        register_model("a", 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("openai:x", "openai", "openai"),
        ("anthropic:x", "anthropic", "anthropic"),
        ("ollama:x", "ollama", "ollama"),
        ("oci:x", "oci", "oci,openai"),
    ],
)
def test_a_missing_client_names_the_line_to_install_it(
    name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError) as caught:
        get_model(name)
    assert f'pip install "locus-state[{extra}]"' in str(caught.value)


def test_a_module_that_is_there_but_broken_is_another_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_driver.py").write_text("import no_such_module_of_its_own")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_of_its_own") as caught:
        require("broken_driver", "broken")
    assert not isinstance(caught.value, MissingDependencyError)
    with pytest.raises(MissingDependencyError):
        require("no_such_driver", "nosuch")


def test_print_config_says_which_model_and_why() -> None:
    environment = {**os.environ, "LOCUS_MODEL_PROVIDER": "mock"}
    told = subprocess.run(
        [sys.executable, str(EXAMPLES / "config.py")], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout == "Model: mock:mock (LOCUS_MODEL_PROVIDER is set)\n"
