"""Discovery, health, metrics and the OpenAPI document."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from locus.memory.engine import Exports
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import json_response
from locus.server.metrics import CONTENT_TYPE, Metrics
from locus.server.openapi import TEXT, Schema, obj, operation, ref, response
from locus.wire.format import PROTOCOL, SERVICE
from locus.wire.problems import Problem

READY_SECONDS = 5.0


class OperationsRoutes:
    """Requests of whoever runs the server, and the request that a client sends first."""

    def __init__(self, authorized: AuthorizedStore, metrics: Metrics, version: str, openapi: Schema) -> None:
        self._authorized = authorized
        self._metrics = metrics
        self._version = version
        self._openapi = openapi

    def routes(self) -> list[Route]:
        return [
            Route("/", self.about, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/ready", self.ready, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
        ]

    async def about(self, request: Request) -> Response:
        """What this server can do. Clients ask this first."""
        store = self._authorized.store
        async with store.using() as engine:
            about = {
                "service": SERVICE,
                "protocol": PROTOCOL,
                "version": self._version,
                "capabilities": asdict(store.capabilities),
                "pending_writes": store.keeps_writes,
                "deltas": engine.keeps_runs,
                "exports": engine.offers(Exports),
                "keeps_key_order": engine.dialect.exact,
                "limits": {"body_bytes": self._authorized.limits.body_bytes},
                "encodings": ["gzip"],
            }
        return await json_response(request, about)

    async def health(self, request: Request) -> Response:
        """The process runs. The store is not asked."""
        return await json_response(request, {"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """The store answers."""
        try:
            async with asyncio.timeout(READY_SECONDS), self._authorized.store.using() as engine:
                await engine.entry("locus-ready", "default", None)
        except TimeoutError as error:
            raise Problem(503, "store_unavailable", "the store of this server does not answer") from error
        return await json_response(request, {"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        self._authorized.grant(request).check_everywhere()
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        return await json_response(request, self._openapi)


def openapi_paths() -> dict[str, Schema]:
    figures = {"200": {"description": "Figures for Prometheus", "content": {"text/plain": {"schema": TEXT}}}}
    status = obj({"status": TEXT})
    return {
        "/": {"get": operation("about", "What this server can do", response(ref("About"), "What it can do"))},
        "/health": {"get": operation("health", "Whether this process runs", response(status, "It does"), public=True)},
        "/ready": {"get": operation("ready", "Whether the store answers", response(status, "It does"), public=True)},
        "/metrics": {"get": operation("metrics", "Figures", figures)},
        "/openapi.json": {
            "get": operation("openapi", "This document", response({"type": "object"}, "OpenAPI"), public=True)
        },
    }
