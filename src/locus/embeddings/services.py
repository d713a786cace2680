"""Embeddings from services, through the client library of each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from locus.embeddings import Embeddings
from locus.errors import ConfigurationError
from locus.extras import require
from locus.oci_auth import make_signer

_OCI_AT_ONCE = 96


def openai(model: str) -> Embeddings:
    """Embeddings of OpenAI, and of servers like it: the client reads OPENAI_API_KEY and OPENAI_BASE_URL."""
    library = require("openai", "openai")

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        async with library.AsyncOpenAI() as client:
            answer = await client.embeddings.create(model=model, input=list(texts), encoding_format="float")
        return [entry.embedding for entry in sorted(answer.data, key=lambda entry: entry.index)]

    return embed


def ollama(model: str) -> Embeddings:
    """Embeddings of an Ollama server: the client reads OLLAMA_HOST."""
    library = require("ollama", "ollama")

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        answer = await library.AsyncClient().embed(model=model, input=list(texts))
        return [list(vector) for vector in answer.embeddings]

    return embed


def oci(model: str) -> Embeddings:
    """Embeddings of OCI Generative AI. The settings are those of its models, from the environment and the profile."""
    library = require("oci", "oci")
    require("oci.generative_ai_inference", "oci")

    @lru_cache(maxsize=1)
    def client() -> tuple[Any, str]:
        signer, config = make_signer(None, None, extra="oci")
        compartment = (
            os.environ.get("OCI_COMPARTMENT_ID") or config.get("tenancy") or getattr(signer, "tenancy_id", None)
        )
        region = os.environ.get("OCI_REGION") or config.get("region") or getattr(signer, "region", None)
        endpoint = os.environ.get("OCI_GENAI_ENDPOINT")
        if not (endpoint or region) or not compartment:
            raise ConfigurationError("which OCI region and compartment? Set OCI_REGION and OCI_COMPARTMENT_ID")
        where = {"service_endpoint": endpoint} if endpoint else {}
        made = library.generative_ai_inference.GenerativeAiInferenceClient(
            {"region": region} if region else {}, signer=signer, **where
        )
        return made, str(compartment)

    def call(texts: list[str]) -> list[list[float]]:
        service, compartment = client()
        models = library.generative_ai_inference.models
        details = models.EmbedTextDetails(
            inputs=texts,
            compartment_id=compartment,
            serving_mode=models.OnDemandServingMode(model_id=model),
            truncate="END",
        )
        return [list(vector) for vector in service.embed_text(details).data.embeddings]

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        vectors: list[list[float]] = []
        for start in range(0, len(texts), _OCI_AT_ONCE):
            vectors += await asyncio.to_thread(call, list(texts[start : start + _OCI_AT_ONCE]))
        return vectors

    return embed
