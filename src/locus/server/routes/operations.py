"""Routes for discovery, health, metrics and the OpenAPI document."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from locus.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    MissingDependencyError,
    UnsupportedFormatError,
)
from locus.memory.engine import Exports
from locus.memory.model.codec import encode_trusted
from locus.server.answers import Answer
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import json_response, text_response
from locus.server.logs import LOGGER, causes, error_facts
from locus.server.metrics import CONTENT_TYPE, Metrics
from locus.server.openapi import Routes, Schema, answer, operation, text_answer
from locus.server.rates import Bucket, Rate
from locus.server.requests import Number
from locus.wire.format import PROTOCOL, SERVICE
from locus.wire.problems import RETRY_AFTER, Problem

READY_SECONDS = 5.0
"""How long `/ready` waits for the store."""
ANSWER_SECONDS = 1.5
"""How long a request for `/ready` waits, because probes give up soon. A later result is for the next request."""
READY_RATE = Rate(per_second=1, burst=5)
"""How often `/ready` asks the store. In between, it repeats the last answer."""


REFUSED = "it refuses connections"
SLOW = "it takes too long"
WRONG = "it is not set up right"
DAMAGED = "what it holds cannot be read"
FAILED = "it cannot be used now; the log of this server says more"


def cause_of(error: BaseException) -> str:
    """The reason why a store does not answer, as one of a few fixed texts, because the reader may have no token."""
    chain = list(causes(error))
    if any(isinstance(cause, ConnectionRefusedError) or "connection refused" in str(cause).lower() for cause in chain):
        return REFUSED
    if any(isinstance(cause, UnsupportedFormatError | CorruptCheckpointError) for cause in chain):
        return DAMAGED
    if any(isinstance(cause, ConfigurationError | MissingDependencyError) for cause in chain):
        return WRONG
    return SLOW if any(isinstance(cause, TimeoutError) for cause in chain) else FAILED


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
    namespaces: bool
    parts: bool
    window: bool
    ends: bool
    held: bool
    diffs: bool
    ancestors: bool
    deadlines: bool
    pages: bool
    recent_threads: bool
    before: bool
    progress: bool
    sizes: bool
    contents: bool
    keeps_key_order: bool
    limits: ServerLimits
    encodings: list[str]


_FEATURES = {name: True for name, field in About.model_fields.items() if field.annotation is bool}
"""The features that a server of this version has. Some of them depend on its store."""


class Status(Answer):
    status: str


class OperationsRoutes(Routes):
    """Routes for operators and monitoring, and the one that a client calls first."""

    def __init__(self, authorized: AuthorizedStore, metrics: Metrics, version: str, openapi: Schema) -> None:
        super().__init__(authorized)
        self._metrics = metrics
        self._version = version
        self._openapi = encode_trusted(openapi)
        self._ready: bool | None = None
        self._cause = ""
        self._looking: asyncio.Future[None] | None = None
        self._looks = Bucket(READY_RATE)

    @operation("GET", "/", "What this server can do", answer(About, "What it can do"))
    async def about(self, request: Request) -> Response:
        """Describe the features of this server. A client asks for them first."""
        async with self._store.using() as engine:
            # Those that clients of every version know. `windows` follows from `deltas`.
            capabilities = asdict(self._store.capabilities)
            about = {
                "service": SERVICE,
                "protocol": PROTOCOL,
                "version": self._version,
                "capabilities": {name: able for name, able in capabilities.items() if name != "windows"},
                **_FEATURES,
                "pending_writes": self._store.keeps_writes,
                "deltas": engine.keeps_runs,
                "exports": engine.offers(Exports),
                "keeps_key_order": engine.dialect.exact,
                "limits": {"body_bytes": self._authorized.limits.body_bytes},
                "encodings": ["gzip"],
            }
        return await json_response(request, about)

    @operation("GET", "/health", "Whether this process runs", answer(Status, "It does"), public=True, probed=True)
    async def health(self, request: Request) -> Response:
        """Answer that the process runs. The store is not asked."""
        return await json_response(request, {"status": "ok"})

    @operation("GET", "/ready", "Whether the store answers", answer(Status, "It does"), public=True, probed=True)
    async def ready(self, request: Request) -> Response:
        """Answer whether the store answers. Frequent requests, which need no token, get the last result."""
        if self._looking is None and (self._ready is None or not self._looks.take()):
            self._looking = asyncio.ensure_future(self._look())
        ready, cause = self._ready, self._cause
        if self._looking is not None:
            done, _ = await asyncio.wait({self._looking}, timeout=ANSWER_SECONDS)
            ready, cause = (self._ready, self._cause) if done else (False, self._cause or SLOW)
        if not ready:
            detail = f"the store of this server does not answer: {cause}"
            raise Problem(503, "store_unavailable", detail, headers=RETRY_AFTER)
        return await json_response(request, {"status": "ready"})

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(READY_SECONDS), self._store.using() as engine:
                await engine.entry("locus-ready", "default", None)
            self._ready, self._cause = True, ""
        except Exception as error:  # noqa: BLE001 - whatever it is, the store is of no use now
            self._ready, self._cause = False, cause_of(error)
            LOGGER.error("the store does not answer", extra={"facts": {"cause": self._cause, **error_facts(error)}})
        finally:
            self._looking = None

    @operation("GET", "/metrics", "Figures", text_answer("text/plain", "Figures for Prometheus"), probed=True)
    async def metrics(self, request: Request) -> Response:
        self._authorized.grant(request).check_everywhere()
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    @operation("GET", "/openapi.json", "This document", answer({"type": "object"}, "OpenAPI"), public=True, probed=True)
    async def openapi(self, request: Request) -> Response:
        return await text_response(request, self._openapi)
