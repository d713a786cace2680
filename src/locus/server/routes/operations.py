"""Discovery, health, metrics and the OpenAPI document."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from locus.memory.engine import Exports
from locus.server.answers import Answer
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import json_response
from locus.server.metrics import CONTENT_TYPE, Metrics
from locus.server.openapi import Routes, Schema, answer, operation, text_answer
from locus.server.requests import Number
from locus.wire.format import PROTOCOL, SERVICE
from locus.wire.problems import Problem

READY_SECONDS = 5.0


class ServerLimits(Answer):
    body_bytes: Number


class About(Answer):
    service: Literal["locus"]
    protocol: int
    version: str
    capabilities: dict[str, bool]
    pending_writes: bool
    deltas: bool
    exports: bool
    prefixes: bool
    keeps_key_order: bool
    limits: ServerLimits
    encodings: list[str]


class Status(Answer):
    status: str


class OperationsRoutes(Routes):
    """Requests of whoever runs the server, and the request that a client sends first."""

    def __init__(self, authorized: AuthorizedStore, metrics: Metrics, version: str, openapi: Schema) -> None:
        super().__init__(authorized)
        self._metrics = metrics
        self._version = version
        self._openapi = openapi

    @operation("GET", "/", "What this server can do", answer(About, "What it can do"))
    async def about(self, request: Request) -> Response:
        """What this server can do. Clients ask this first."""
        async with self._store.using() as engine:
            about = {
                "service": SERVICE,
                "protocol": PROTOCOL,
                "version": self._version,
                "capabilities": asdict(self._store.capabilities),
                "pending_writes": self._store.keeps_writes,
                "deltas": engine.keeps_runs,
                "exports": engine.offers(Exports),
                "prefixes": True,
                "keeps_key_order": engine.dialect.exact,
                "limits": {"body_bytes": self._authorized.limits.body_bytes},
                "encodings": ["gzip"],
            }
        return await json_response(request, about)

    @operation("GET", "/health", "Whether this process runs", answer(Status, "It does"), public=True)
    async def health(self, request: Request) -> Response:
        """The process runs. The store is not asked."""
        return await json_response(request, {"status": "ok"})

    @operation("GET", "/ready", "Whether the store answers", answer(Status, "It does"), public=True)
    async def ready(self, request: Request) -> Response:
        """The store answers."""
        try:
            async with asyncio.timeout(READY_SECONDS), self._store.using() as engine:
                await engine.entry("locus-ready", "default", None)
        except TimeoutError as error:
            raise Problem(503, "store_unavailable", "the store of this server does not answer") from error
        return await json_response(request, {"status": "ready"})

    @operation("GET", "/metrics", "Figures", text_answer("text/plain", "Figures for Prometheus"))
    async def metrics(self, request: Request) -> Response:
        self._authorized.grant(request).check_everywhere()
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    @operation("GET", "/openapi.json", "This document", answer({"type": "object"}, "OpenAPI"), public=True)
    async def openapi(self, request: Request) -> Response:
        return await json_response(request, self._openapi)
