"""Signers for requests to Oracle Cloud, from a profile of the configuration file or from a principal."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from locus.errors import ConfigurationError
from locus.extras import require

Signer = Callable[[Any], Any]

AUTH_TYPES: Final = ("api_key", "security_token", "instance_principal", "resource_principal")


def config_file(given: str | Path | None = None) -> Path:
    return Path(given or os.environ.get("OCI_CONFIG_FILE") or "~/.oci/config").expanduser()


def is_configured() -> bool:
    """Whether this machine has an OCI configuration: a file, or the variables of a resource principal."""
    return config_file().is_file() or "OCI_RESOURCE_PRINCIPAL_VERSION" in os.environ


def check_auth_type(auth: str | None, parameter: str = "auth") -> None:
    if auth is not None and auth not in AUTH_TYPES:
        raise ConfigurationError(f"there is no {parameter} {auth!r:.80}; there are: {', '.join(AUTH_TYPES)}")


def make_signer(
    auth: str | None, profile: str | None, *, extra: str, file: str | Path | None = None
) -> tuple[Signer, dict[str, Any]]:
    """Make a signer, and return it with the profile that it comes from (empty for principals). May use the network.

    Without `auth`, it uses the key or token of the profile, or else a resource principal.
    """
    check_auth_type(auth)
    oci = require("oci", extra)
    require("oci.auth.signers", extra)
    if auth is None and not config_file(file).is_file() and "OCI_RESOURCE_PRINCIPAL_VERSION" in os.environ:
        auth = "resource_principal"
    if auth == "resource_principal":
        return oci.auth.signers.get_resource_principals_signer(), {}
    if auth == "instance_principal":
        return oci.auth.signers.InstancePrincipalsSecurityTokenSigner(), {}
    config = read_profile(profile, extra=extra, file=file)
    if auth == "security_token" or (auth is None and "security_token_file" in config):
        return _token_signer(oci, config), config
    try:
        return oci.signer.Signer.from_config(config), config
    except (ValueError, OSError, oci.exceptions.ClientError) as error:
        raise ConfigurationError(f"the OCI profile cannot be used: {error}") from error


def read_profile(profile: str | None, *, extra: str, file: str | Path | None = None) -> dict[str, Any]:
    oci = require("oci", extra)
    name = profile or os.environ.get("OCI_CONFIG_PROFILE") or "DEFAULT"
    try:
        config: dict[str, Any] = oci.config.from_file(str(config_file(file)), name)
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
