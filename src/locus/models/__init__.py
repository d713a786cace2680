"""Language models. A provider's client library is imported, and needed, only when that provider is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locus.extras import lazy_names
from locus.models.base import Model, ModelChunk, ModelResponse, StreamingModel, ToolSpec
from locus.models.errors import ModelAuthenticationError, ModelError, ModelRequestError, ModelUnavailableError
from locus.models.registry import choose_model, get_model, list_models, register_model

if TYPE_CHECKING:
    from locus.models.anthropic import AnthropicModel
    from locus.models.mock import MockModel
    from locus.models.oci import OCIModel
    from locus.models.ollama import OllamaModel
    from locus.models.openai import OpenAIModel

__all__ = [
    "AnthropicModel",
    "MockModel",
    "Model",
    "ModelAuthenticationError",
    "ModelChunk",
    "ModelError",
    "ModelRequestError",
    "ModelResponse",
    "ModelUnavailableError",
    "OCIModel",
    "OllamaModel",
    "OpenAIModel",
    "StreamingModel",
    "ToolSpec",
    "choose_model",
    "get_model",
    "list_models",
    "register_model",
]


__getattr__ = lazy_names(
    __name__,
    {
        "anthropic": ("AnthropicModel",),
        "mock": ("MockModel",),
        "oci": ("OCIModel",),
        "ollama": ("OllamaModel",),
        "openai": ("OpenAIModel",),
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
