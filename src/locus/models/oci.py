"""OCI Generative AI through its OpenAI-compatible endpoint. Needs the extras `oci` and `openai`.

The OCI SDK signs every attempt of a request. `auth` chooses the signer: "api_key" or "security_token" (both from a
profile of the configuration file), "instance_principal" or "resource_principal".
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.models.openai import OpenAIModel
from locus.oci_auth import Signer, make_signer

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_ENDPOINT = "https://inference.generativeai.{region}.oci.oraclecloud.com"
_PATH = "/20231130/actions/v1"


class OCIModel(OpenAIModel):
    """A model of OCI Generative AI, such as `openai.gpt-4.1` or `meta.llama-3.3-70b-instruct`.

    Settings that are not given come from the environment (`OCI_CONFIG_FILE`, `OCI_CONFIG_PROFILE`, `OCI_REGION`,
    `OCI_COMPARTMENT_ID`, `OCI_GENAI_ENDPOINT`), then from the profile. The profile's compartment is its tenancy.

    A forked process makes a signer of its own. It cannot replace one that you pass as `signer`: fork before you make
    it.
    """

    provider = "oci"
    extra = "oci,openai"

    def __init__(
        self,
        model: str,
        *,
        auth: str | None = None,
        profile: str | None = None,
        region: str | None = None,
        compartment_id: str | None = None,
        service_endpoint: str | None = None,
        signer: Signer | None = None,
        **options: Any,
    ) -> None:
        config: dict[str, Any] = {}
        self._make_signer: Callable[[], tuple[Signer, dict[str, Any]]] | None = None
        if signer is None:
            self._make_signer = partial(make_signer, auth, profile, extra=self.extra)
            signer, config = self._make_signer()
        self._signer = signer
        self._signer_of = os.getpid()
        tenancy = config.get("tenancy") or getattr(signer, "tenancy_id", None)
        self._compartment = compartment_id or os.environ.get("OCI_COMPARTMENT_ID") or tenancy
        endpoint = service_endpoint or os.environ.get("OCI_GENAI_ENDPOINT") or _endpoint(region, config, signer)
        super().__init__(model, base_url=endpoint.rstrip("/") + _PATH, **options)

    def _key(self, given: str | SecretStr | None) -> SecretStr:
        # The client refuses to work without a key; the signature replaces it in the request.
        return SecretStr("unused: requests are signed")

    def _limit(self, max_tokens: int | None) -> dict[str, Any]:
        if max_tokens is None:
            return {}
        return {"max_completion_tokens" if self.model.startswith("openai.") else "max_tokens": max_tokens}

    def _client(self) -> AsyncOpenAI:
        headers = {"CompartmentId": self._compartment} if self._compartment else {}
        # A hook rather than an `auth`: it is the last to touch a request, and it may wait, as signers that fetch a
        # token have to.
        http_client = self._library.DefaultAsyncHttpxClient(headers=headers, event_hooks={"request": [self._sign]})
        client: AsyncOpenAI = self._library.AsyncOpenAI(
            api_key=self._api_key.get_secret_value(),
            base_url=self._base_url,
            http_client=http_client,
            **self._connection,
        )
        return client

    async def _sign(self, request: Any) -> None:
        request.headers.pop("authorization", None)
        # The signer expects a request of the `requests` library; these are the parts that it reads.
        signed = SimpleNamespace(
            method=request.method,
            url=str(request.url),
            path_url=request.url.raw_path.decode(),
            headers=dict(request.headers),
            body=request.content,
        )
        await asyncio.to_thread(lambda: self._own_signer()(signed))
        request.headers.update(signed.headers)

    def _own_signer(self) -> Signer:
        """The signer of this process. This may use the network."""
        # A key that another thread was signing with during a fork is of no use to the child: OpenSSL keeps the
        # numbers that blind it, and a lock, inside the key. The child reads it anew.
        if self._make_signer is not None and self._signer_of != os.getpid():
            self._signer, _ = self._make_signer()
            self._signer_of = os.getpid()
        return self._signer


def _endpoint(region: str | None, config: dict[str, Any], signer: Signer) -> str:
    chosen = region or os.environ.get("OCI_REGION") or config.get("region") or getattr(signer, "region", None)
    if not chosen:
        raise ConfigurationError("which OCI region? Set OCI_REGION, or pass region=… or service_endpoint=…")
    return _ENDPOINT.format(region=chosen)
