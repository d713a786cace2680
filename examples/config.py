"""Which model the examples talk to.

`LOCUS_MODEL_PROVIDER` (openai, anthropic, ollama, oci, mock) and `LOCUS_MODEL_ID` say it. Without them it is
OCI Generative AI where its configuration is found, else the mock, which needs no key and no network. (An `Agent`
takes the mock only if it is told to; so do the examples, here.)
"""

import os
from dataclasses import replace
from typing import Any

from locus.models import Model, choose_model
from locus.models import get_model as model_by_name
from locus.models.registry import ModelChoice
from locus.oci_auth import is_configured


def chosen_model() -> ModelChoice:
    """Which model the examples take, and why."""
    if os.environ.get("LOCUS_MODEL_PROVIDER") or is_configured():
        return choose_model()
    return replace(choose_model("mock"), reason="LOCUS_MODEL_PROVIDER is not set, and no OCI configuration was found")


def get_model(**options: Any) -> Model:
    """The model that `print_config` names. Options, such as `max_tokens=100`, are the provider's own."""
    choice = chosen_model()
    return model_by_name(f"{choice.provider}:{choice.model}", **options)


def print_config() -> None:
    """Say which model is used, and why."""
    choice = chosen_model()
    print(f"Model: {choice.provider}:{choice.model} ({choice.reason})")


if __name__ == "__main__":
    print_config()
