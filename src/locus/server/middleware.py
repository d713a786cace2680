"""What happens around every request: authentication, request ids, metrics, logs, and errors as problem details."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Collection, Iterable
from typing import Any, Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.routing import Match, Route, Router
from starlette.types import Message, Receive, Scope, Send

from locus.errors import BackendUnavailableError, LocusError
from locus.memory.model.codec import encode_trusted
from locus.server.auth import GRANT_KEY, Guard
from locus.server.logs import LOGGER
from locus.server.metrics import Metrics
from locus.wire.format import PROTOCOL, PROTOCOL_HEADER
from locus.wire.problems import MEDIA_TYPE, Problem, problem_of

PUBLIC: Final = frozenset({"/health", "/ready", "/openapi.json"})
"""Paths that need no token."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_PROTOCOL = (PROTOCOL_HEADER.lower().encode(), str(PROTOCOL).encode())
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_RETRY_AFTER = {"Retry-After": "1"}
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class ServerMiddleware:
    """The outermost layer of the app. `hosts` are the host names that requests may use (`None`: any)."""

    def __init__(self, app: Router, guard: Guard, metrics: Metrics, hosts: Collection[str] | None) -> None:
        self._app = app
        self._guard = guard
        self._metrics = metrics
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await _HandledRequest(self, scope, receive, send).run()
        else:
            raise RuntimeError(f"this server does not speak {scope['type']}")

    async def dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate a request, and pass it to the router."""
        headers = dict(scope["headers"])
        if self._hosts is not None and _host(headers.get(b"host", b"")) not in self._hosts:
            raise Problem(421, "misdirected", "this server is not called by that name")
        # Ids may contain any character, also an encoded slash: the router must split the path before it is decoded.
        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        scope["path"] = raw.partition(b"?")[0].decode("ascii", "replace")
        scope["app"] = self._app  # makes the router raise an HTTPException instead of responding
        root: str = scope.get("root_path", "")
        if scope["path"].removeprefix(root) not in PUBLIC:
            scope[GRANT_KEY] = self._guard.admit(headers.get(b"authorization", b"").decode("latin-1"))
        await self._app(scope, receive, send)

    def routing_problem(self, error: HTTPException, scope: Scope) -> Problem:
        """A path or method that the router does not know, as a problem."""
        if error.status_code != 405:
            return Problem(404, "no_such_path", "there is nothing under this path; /openapi.json lists what there is")
        # Asked again, because only newer versions of Starlette say which route it was.
        routes = [
            route
            for route in self._app.routes
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE
        ]
        allowed = sorted({method for route in routes for method in route.methods or ()})
        text = f"{scope['method']:.20} is not for this path"
        return Problem(405, "method_not_allowed", text, headers={"Allow": ", ".join(allowed)})

    def count(self, request: _HandledRequest) -> None:
        operation = getattr(request.scope.get("endpoint"), "__name__", "none")
        method = request.scope["method"] if request.scope["method"] in _METHODS else "other"
        seconds = time.perf_counter() - request.started
        self._metrics.count(operation, method, request.status, seconds, request.received, request.sent)
        if LOGGER.isEnabledFor(logging.INFO):
            LOGGER.info("request", extra={"facts": request.facts(operation, method, seconds)})

    def begin(self) -> None:
        self._metrics.in_flight.inc()

    def end(self) -> None:
        self._metrics.in_flight.dec()


class _HandledRequest:
    """One request, and what became of it."""

    def __init__(self, middleware: ServerMiddleware, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.status = 0
        self.received = 0
        self.sent = 0
        self.started = time.perf_counter()
        self._middleware = middleware
        self._receive_message = receive
        self._send_message = send
        self._code: str | None = None
        self.request_id = _request_id(scope["headers"])

    async def run(self) -> None:
        self._middleware.begin()
        try:
            await self._middleware.dispatch(self.scope, self._receive, self._send)
        except Problem as problem:
            await self._send_problem(problem)
        except HTTPException as error:
            await self._send_problem(self._middleware.routing_problem(error, self.scope))
        except BackendUnavailableError as error:
            LOGGER.error(
                "the store is not available", extra={"facts": {"request_id": self.request_id, "why": str(error)}}
            )
            await self._send_problem(
                Problem(503, "store_unavailable", "the store of this server could not be reached", headers=_RETRY_AFTER)
            )
        except LocusError as error:
            await self._send_problem(problem_of(error))
        except Exception:  # noqa: BLE001 - logged, and answered as a failure of this server
            LOGGER.exception("failed", extra={"facts": {"request_id": self.request_id}})
            await self._send_problem(Problem(500, "failed", "this server failed; its log says where"))
        finally:
            self._middleware.end()
            self._middleware.count(self)

    async def _receive(self) -> Message:
        message = await self._receive_message()
        self.received += len(message.get("body", b""))
        return message

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [
                *message["headers"],
                _PROTOCOL,
                (b"x-request-id", self.request_id.encode()),
                _NO_SNIFFING,
                (b"cache-control", b"no-store"),
            ]
        else:
            self.sent += len(message.get("body", b""))
        await self._send_message(message)

    async def _send_problem(self, problem: Problem) -> None:
        self._code = problem.code
        if self.status:  # the response has begun, so the only way to signal failure is to break it off
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


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The id that the sender gave the request, if it is safe to log; otherwise a new one."""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value.decode("ascii")
    return secrets.token_hex(8)


def _host(value: bytes) -> str:
    """The host name without the port."""
    text = value.decode("latin-1").lower()
    if text.startswith("["):
        return text.partition("]")[0].strip("[")
    return text.partition(":")[0]
