"""What those ask who run a server, and what a client asks first."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from locus.memory.engine import Exports
from locus.server.access import Access
from locus.server.bodies import json_response
from locus.server.metrics import CONTENT_TYPE, Metrics
from locus.server.openapi import document
from locus.wire.format import PROTOCOL, SERVICE
from locus.wire.problems import Problem

READY_SECONDS = 5.0


def software() -> str:
    try:
        return version("locus-sdk")
    except PackageNotFoundError:
        return "unknown"


class OperationsAPI:
    """Discovery, health and figures."""

    def __init__(self, access: Access, metrics: Metrics) -> None:
        self._access = access
        self._metrics = metrics
        self._document = document(software(), access.limits)

    def routes(self) -> list[Route]:
        return [
            Route("/", self.about, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/ready", self.ready, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
        ]

    async def about(self, request: Request) -> Response:
        """What this server can do: what a client asks before anything else."""
        store = self._access.store
        async with store.using() as engine:
            about = {
                "service": SERVICE,
                "protocol": PROTOCOL,
                "version": software(),
                "capabilities": asdict(store.capabilities),
                "pending_writes": store.keeps_writes,
                "deltas": engine.keeps_runs,
                "exports": engine.offers(Exports),
                "keeps_key_order": engine.dialect.exact,
                "limits": {"body_bytes": self._access.limits.body_bytes},
                "encodings": ["gzip"],
            }
        return await json_response(request, about)

    async def health(self, request: Request) -> Response:
        """This process runs. Nothing else is looked at."""
        return await json_response(request, {"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """The store answers."""
        try:
            async with asyncio.timeout(READY_SECONDS), self._access.store.using() as engine:
                await engine.entry("locus-ready", "default", None)
        except TimeoutError as error:
            raise Problem(503, "store_unavailable", "the store of this server does not answer") from error
        return await json_response(request, {"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        self._access.grant(request).check_everywhere()
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        return await json_response(request, self._document)
