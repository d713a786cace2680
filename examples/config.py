"""Which model the examples talk to.

`LOCUS_MODEL_PROVIDER` (openai, anthropic, ollama, oci, mock) and `LOCUS_MODEL_ID` say it. Without them it is
OCI Generative AI where its configuration is found, else the mock, which needs no key and no network.
"""

from typing import Any

from locus.models import Model, choose_model
from locus.models import get_model as model_by_name


def get_model(**options: Any) -> Model:
    """The model that `print_config` names. Options, such as `max_tokens=100`, are the provider's own."""
    return model_by_name(**options)


def print_config() -> None:
    """Say which model is used, and why."""
    choice = choose_model()
    print(f"Model: {choice.provider}:{choice.model} ({choice.reason})")


if __name__ == "__main__":
    print_config()
