"""Models by name: `"openai:gpt-4.1"`, `"ollama:llama3.2"`, `"mock"`.

A built-in provider is one line in `_BUILT_IN`; others are added with `register_model`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from locus.errors import ConfigurationError
from locus.hints import did_you_mean
from locus.models.base import Model
from locus.oci_auth import is_configured

PROVIDER_VARIABLE = "LOCUS_MODEL_PROVIDER"
ID_VARIABLE = "LOCUS_MODEL_ID"

Factory = Callable[..., Model]

_BUILT_IN = {
    "anthropic": "locus.models.anthropic:AnthropicModel",
    "mock": "locus.models.mock:MockModel",
    "oci": "locus.models.oci:OCIModel",
    "ollama": "locus.models.ollama:OllamaModel",
    "openai": "locus.models.openai:OpenAIModel",
}
_DEFAULT_IDS = {"mock": "mock", "oci": "openai.gpt-4.1", "openai": "gpt-4.1"}
_registered: dict[str, Factory] = {}


@dataclass(frozen=True)
class ModelChoice:
    """The provider and the model that a name stands for, and the reason for this choice."""

    provider: str
    model: str
    reason: str


def register_model(provider: str, factory: Factory) -> None:
    """Make `get_model("provider:model-id")` call `factory("model-id", **options)`."""
    if not isinstance(provider, str) or not provider or ":" in provider or provider != provider.strip():
        raise ConfigurationError(f"a provider's name is text without a colon, got {provider!r}")
    if not callable(factory):
        raise ConfigurationError(f"the factory for {provider!r} is not callable: {factory!r:.80}")
    _registered[provider] = factory


def list_models() -> list[str]:
    """The names of all providers, built-in and registered."""
    return sorted({*_BUILT_IN, *_registered})


def get_model(model_string: str | None = None, **options: Any) -> Model:
    """Make the model that `"provider:model-id"` stands for, with options of its provider.

    Without a name, `choose_model` chooses.
    """
    choice = choose_model(model_string)
    return _factory(choice.provider)(choice.model, **options)


def choose_model(model_string: str | None = None) -> ModelChoice:
    """Choose the model that `get_model` would make, without making it.

    The name decides, or else `LOCUS_MODEL_PROVIDER` and `LOCUS_MODEL_ID`, or else an OCI configuration on this machine,
    which means OCI Generative AI. If there is none of these, the error lists possible names.
    """
    if model_string is not None and (not isinstance(model_string, str) or not model_string):
        raise ConfigurationError(f"a model is named by text, got {model_string!r:.80}")
    provider, _, model = (model_string or "").partition(":")
    reason = f"asked for as {model_string!r}"
    if not provider:
        provider, reason = _default_provider()
    if provider not in {*_BUILT_IN, *_registered}:
        raise ConfigurationError(_unknown(provider, model_string))
    return ModelChoice(provider, model or _model_id(provider), reason)


def _default_provider() -> tuple[str, str]:
    named = os.environ.get(PROVIDER_VARIABLE)
    if named:
        return named, f"{PROVIDER_VARIABLE} is set"
    if is_configured():
        return "oci", "an OCI configuration was found"
    raise ConfigurationError(
        f"which model? {PROVIDER_VARIABLE} is not set, and no OCI configuration was found. "
        f"Name one: {_could_be_meant()}; or set {PROVIDER_VARIABLE}"
    )


_EXAMPLES = {
    "openai:gpt-4.1": "OPENAI_API_KEY",
    "anthropic:<model id>": "ANTHROPIC_API_KEY",
    "ollama:<model id>": "OLLAMA_HOST",
    "mock": "",
}
"""Examples of model names, each with an environment variable that a user of the provider has set."""


def _could_be_meant() -> str:
    """Examples of model names, for an error. Those whose provider has a key on this machine come first."""
    with_key = {name: variable for name, variable in _EXAMPLES.items() if os.environ.get(variable)}
    names = [
        *with_key,
        *(name for name in _EXAMPLES if name not in with_key),
        *(f"{name}:<model id>" for name in sorted(_registered)),
    ]
    return ", ".join(f'model="{n}"' + (f" ({with_key[n]} is set)" if n in with_key else "") for n in names)


_KNOWN_IDS = {
    "openai": ("gpt-", "chatgpt-", "o1", "o3", "o4"),
    "anthropic": ("claude",),
    "oci": ("openai.", "meta.", "cohere.", "xai.", "google."),
    "ollama": ("llama", "mistral", "qwen", "gemma", "deepseek", "phi"),
}
"""The beginnings of well-known model ids, by provider: the error for an id alone suggests the whole name."""


def _unknown(provider: str, model_string: str | None) -> str:
    """The text of the error for a provider that does not exist."""
    if model_string is not None:
        for known, starts in _KNOWN_IDS.items():
            if model_string.lower().startswith(starts):
                return f"{model_string!r:.80} names no provider; did you mean {f'{known}:{model_string}'!r:.100}?"
    return (
        f"there is no model provider {provider!r:.80}{did_you_mean(provider, list_models())}; "
        f"known are: {', '.join(list_models())}. Add your own with register_model()"
    )


def _model_id(provider: str) -> str:
    """The model of a provider that was named without one: that of the environment, or the provider's default.

    `LOCUS_MODEL_ID` is for the provider in `LOCUS_MODEL_PROVIDER`, or for OCI if that is not set.
    """
    named = os.environ.get(ID_VARIABLE)
    if named and provider == (os.environ.get(PROVIDER_VARIABLE) or "oci"):
        return named
    if provider in _DEFAULT_IDS and provider not in _registered:
        return _DEFAULT_IDS[provider]
    raise ConfigurationError(f"which model of {provider}? Write {provider}:<model id>, or set {ID_VARIABLE}")


def _factory(provider: str) -> Factory:
    if provider in _registered:
        return _registered[provider]
    module, _, attribute = _BUILT_IN[provider].partition(":")
    factory: Factory = getattr(import_module(module), attribute)
    return factory
