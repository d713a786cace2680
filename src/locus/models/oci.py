"""OCI Generative AI through its OpenAI-compatible endpoint. Needs the extras `oci` and `openai`.

Requests are signed by the OCI SDK, anew for every try. Who signs is what `auth` says: "api_key" or
"security_token" (a profile of the configuration file), "instance_principal" or "resource_principal".
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.extras import require
from locus.models.openai import OpenAIModel

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Signer = Callable[[Any], Any]

_ENDPOINT = "https://inference.generativeai.{region}.oci.oraclecloud.com"
_PATH = "/20231130/actions/v1"


def config_file() -> Path:
    return Path(os.environ.get("OCI_CONFIG_FILE") or "~/.oci/config").expanduser()


def is_configured() -> bool:
    """Whether this machine has an OCI configuration: a file, or the variables of a resource principal."""
    return config_file().is_file() or "OCI_RESOURCE_PRINCIPAL_VERSION" in os.environ


class OCIModel(OpenAIModel):
    """A model of OCI Generative AI, such as `openai.gpt-4.1` or `meta.llama-3.3-70b-instruct`.

    Whatever is not given comes from the environment (`OCI_CONFIG_FILE`, `OCI_CONFIG_PROFILE`, `OCI_REGION`,
    `OCI_COMPARTMENT_ID`, `OCI_GENAI_ENDPOINT`), then from the profile; the compartment is the tenancy then.
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
        if signer is None:
            signer, config = _signer(auth, profile)
        self._signer = signer
        tenancy = config.get("tenancy") or getattr(signer, "tenancy_id", None)
        self._compartment = compartment_id or os.environ.get("OCI_COMPARTMENT_ID") or tenancy
        endpoint = service_endpoint or os.environ.get("OCI_GENAI_ENDPOINT") or _endpoint(region, config, signer)
        super().__init__(model, base_url=endpoint.rstrip("/") + _PATH, **options)

    def _key(self, given: str | SecretStr | None) -> SecretStr:
        # The client wants one; the signature takes its place in the request.
        return SecretStr("unused: requests are signed")

    def _limit(self, max_tokens: int | None) -> dict[str, Any]:
        if max_tokens is None:
            return {}
        return {"max_completion_tokens" if self.model.startswith("openai.") else "max_tokens": max_tokens}

    def _client(self) -> AsyncOpenAI:
        headers = {"CompartmentId": self._compartment} if self._compartment else {}
        # A hook and not an `auth`: it is the last to touch a request, and it may wait, as signers that fetch
        # a token need.
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
        await asyncio.to_thread(self._signer, signed)
        request.headers.update(signed.headers)


def _signer(auth: str | None, profile: str | None) -> tuple[Signer, dict[str, Any]]:
    oci = require("oci", OCIModel.extra)
    require("oci.auth.signers", OCIModel.extra)
    if auth is None and not config_file().is_file() and "OCI_RESOURCE_PRINCIPAL_VERSION" in os.environ:
        auth = "resource_principal"
    if auth == "resource_principal":
        return oci.auth.signers.get_resource_principals_signer(), {}
    if auth == "instance_principal":
        return oci.auth.signers.InstancePrincipalsSecurityTokenSigner(), {}
    if auth not in (None, "api_key", "security_token"):
        raise ConfigurationError(
            f"there is no auth {auth!r}; there are: api_key, security_token, instance_principal, resource_principal"
        )
    config = _profile(oci, profile)
    if auth == "security_token" or (auth is None and "security_token_file" in config):
        return _token_signer(oci, config), config
    try:
        return oci.signer.Signer.from_config(config), config
    except (ValueError, OSError, oci.exceptions.ClientError) as error:
        raise ConfigurationError(f"the OCI profile cannot be used: {error}") from error


def _profile(oci: Any, profile: str | None) -> dict[str, Any]:
    name = profile or os.environ.get("OCI_CONFIG_PROFILE") or "DEFAULT"
    try:
        config: dict[str, Any] = oci.config.from_file(str(config_file()), name)
    except (ValueError, OSError, oci.exceptions.ClientError) as error:
        raise ConfigurationError(f"the OCI configuration cannot be read: {error}") from error
    return config


def _token_signer(oci: Any, config: dict[str, Any]) -> Signer:
    try:
        token = Path(config["security_token_file"]).expanduser().read_text(encoding="utf-8").strip()
        key = oci.signer.load_private_key_from_file(config["key_file"], config.get("pass_phrase"))
    except (KeyError, OSError, oci.exceptions.ClientError) as error:
        raise ConfigurationError(f"the OCI profile has no usable security token: {error}") from error
    signer: Signer = oci.auth.signers.SecurityTokenSigner(token, key)
    return signer


def _endpoint(region: str | None, config: dict[str, Any], signer: Signer) -> str:
    found = region or os.environ.get("OCI_REGION") or config.get("region") or getattr(signer, "region", None)
    if not found:
        raise ConfigurationError("which OCI region? Set OCI_REGION, or pass region=… or service_endpoint=…")
    return _ENDPOINT.format(region=found)
