"""Serves threads over HTTP: run `locus serve`, or build an ASGI app with `create_app`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from locus.extras import lazy_names, require

if TYPE_CHECKING:
    from locus.server.app import create_app
    from locus.server.auth import Token, parse_tokens, read_tokens
    from locus.server.bodies import Limits
    from locus.server.quotas import Quota

__all__ = ["Limits", "Quota", "Token", "create_app", "parse_tokens", "read_tokens"]

_names = lazy_names(
    __name__,
    {
        "app": ("create_app",),
        "auth": ("Token", "parse_tokens", "read_tokens"),
        "bodies": ("Limits",),
        "quotas": ("Quota",),
    },
)


def __getattr__(name: str) -> Any:
    if name in ("create_app", "Limits"):
        for module in ("starlette", "uvicorn", "prometheus_client"):
            require(module, "server")
    return _names(name)
