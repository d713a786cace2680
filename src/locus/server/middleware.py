"""What surrounds every request: its id, who sent it, what became of it; and errors as problem details."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Collection, Iterable
from typing import Any, Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from locus.errors import BackendUnavailableError, LocusError
from locus.memory.model.codec import encode_trusted
from locus.server.access import GRANT
from locus.server.auth import Guard
from locus.server.logs import LOGGER
from locus.server.metrics import Metrics
from locus.wire.format import PROTOCOL, PROTOCOL_HEADER
from locus.wire.problems import MEDIA_TYPE, Problem, problem_of

PUBLIC: Final = frozenset({"/health", "/ready", "/openapi.json"})
"""What load balancers and readers of the documentation may ask without a token."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_PROTOCOL = (PROTOCOL_HEADER.lower().encode(), str(PROTOCOL).encode())
_SAFETY = (b"x-content-type-options", b"nosniff")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class Edge:
    """The outermost layer. `hosts` are the names that requests may call this server by; `None`: any."""

    def __init__(self, app: Router, guard: Guard, metrics: Metrics, hosts: Collection[str] | None) -> None:
        self._app = app
        self._guard = guard
        self._metrics = metrics
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await _Exchange(self, scope, receive, send).run()
        else:
            raise RuntimeError(f"this server does not speak {scope['type']}")

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit a request, and have it answered."""
        headers = dict(scope["headers"])
        if self._hosts is not None and _host(headers.get(b"host", b"")) not in self._hosts:
            raise Problem(421, "misdirected", "this server is not called by that name")
        # Ids may hold any character, so the path is taken apart before it is decoded.
        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        scope["path"] = raw.partition(b"?")[0].decode("ascii", "replace")
        scope["app"] = self._app  # lets the router raise what it refuses
        root: str = scope.get("root_path", "")
        if scope["path"].removeprefix(root) not in PUBLIC:
            scope[GRANT] = self._guard.admit(headers.get(b"authorization", b"").decode("latin-1"))
        await self._app(scope, receive, send)

    def refused(self, error: HTTPException, scope: Scope) -> Problem:
        """What the router does not know."""
        if error.status_code != 405:
            return Problem(404, "no_such_path", "there is nothing under this path; /openapi.json lists what there is")
        path = scope["route"].path
        routes = [route for route in self._app.routes if isinstance(route, Route) and route.path == path]
        allowed = sorted({method for route in routes for method in route.methods or ()})
        text = f"{scope['method']:.20} is not for this path"
        return Problem(405, "method_not_allowed", text, headers={"Allow": ", ".join(allowed)})

    def count(self, exchange: _Exchange) -> None:
        operation = getattr(exchange.scope.get("endpoint"), "__name__", "none")
        method = exchange.scope["method"] if exchange.scope["method"] in _METHODS else "other"
        seconds = time.perf_counter() - exchange.started
        self._metrics.count(operation, method, exchange.status, seconds, exchange.received, exchange.sent)
        if LOGGER.isEnabledFor(logging.INFO):
            LOGGER.info("request", extra={"facts": exchange.facts(operation, method, seconds)})

    def begin(self) -> None:
        self._metrics.in_flight.inc()

    def end(self) -> None:
        self._metrics.in_flight.dec()


class _Exchange:
    """One request and its answer."""

    def __init__(self, edge: Edge, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.status = 0
        self.received = 0
        self.sent = 0
        self.started = time.perf_counter()
        self._edge = edge
        self._receive_from = receive
        self._send_to = send
        self._code: str | None = None
        self.request_id = _request_id(scope["headers"])

    async def run(self) -> None:
        self._edge.begin()
        try:
            await self._edge.pass_on(self.scope, self._receive, self._send)
        except Problem as problem:
            await self._refuse(problem)
        except HTTPException as error:
            await self._refuse(self._edge.refused(error, self.scope))
        except BackendUnavailableError as error:
            LOGGER.error(
                "the store is not available", extra={"facts": {"request_id": self.request_id, "why": str(error)}}
            )
            await self._refuse(
                Problem(503, "store_unavailable", "the store of this server could not be reached", headers=_LATER)
            )
        except LocusError as error:
            await self._refuse(problem_of(error))
        except Exception:  # noqa: BLE001 - logged, and answered as a failure of this server
            LOGGER.exception("failed", extra={"facts": {"request_id": self.request_id}})
            await self._refuse(Problem(500, "failed", "this server failed; its log says where"))
        finally:
            self._edge.end()
            self._edge.count(self)

    async def _receive(self) -> Message:
        message = await self._receive_from()
        self.received += len(message.get("body", b""))
        return message

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [
                *message["headers"],
                _PROTOCOL,
                (b"x-request-id", self.request_id.encode()),
                _SAFETY,
                (b"cache-control", b"no-store"),
            ]
        else:
            self.sent += len(message.get("body", b""))
        await self._send_to(message)

    async def _refuse(self, problem: Problem) -> None:
        self._code = problem.code
        if self.status:  # the answer has begun: all that can be told is that it broke off
            raise ConnectionAbortedError(problem.code)
        body = encode_trusted(problem.data(self.request_id)).encode()
        headers = {"content-type": MEDIA_TYPE, "content-length": str(len(body)), **problem.headers}
        await self._send(
            {
                "type": "http.response.start",
                "status": problem.status,
                "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
            }
        )
        await self._send({"type": "http.response.body", "body": b"" if self.scope["method"] == "HEAD" else body})

    def facts(self, operation: str, method: str, seconds: float) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "request_id": self.request_id,
            "operation": operation,
            "method": method,
            "status": self.status,
            "ms": round(seconds * 1e3, 2),
            "received": self.received,
            "sent": self.sent,
        }
        return facts if self._code is None else {**facts, "problem": self._code}


_LATER = {"Retry-After": "1"}


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The sender's id for the request if it can be logged as it is, else a new one."""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value.decode("ascii")
    return secrets.token_hex(8)


def _host(value: bytes) -> str:
    """A host without its port."""
    text = value.decode("latin-1").lower()
    if text.startswith("["):
        return text.partition("]")[0].strip("[")
    return text.partition(":")[0]
