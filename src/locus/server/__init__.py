"""Serves threads over HTTP: run `locus serve`, or build an ASGI app with `create_app`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from locus.server.app import create_app
    from locus.server.auth import Token, parse_tokens, read_tokens
    from locus.server.bodies import Limits
    from locus.server.quotas import Quota

_HOMES = {
    "Limits": "bodies",
    "Quota": "quotas",
    "Token": "auth",
    "create_app": "app",
    "parse_tokens": "auth",
    "read_tokens": "auth",
}

__all__ = ["Limits", "Quota", "Token", "create_app", "parse_tokens", "read_tokens"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("create_app", "Limits"):
        _require_extra()
    return getattr(import_module(f"{__name__}.{home}"), name)


def _require_extra() -> None:
    """Raise an error that names the extra to install, if a library of the server is missing."""
    from locus.extras import require

    for module in ("starlette", "uvicorn", "prometheus_client"):
        require(module, "server")
