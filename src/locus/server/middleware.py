"""The middleware around every request: tokens, rates, request ids, metrics, logs, and errors as problem details."""

from __future__ import annotations

import logging
import math
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Match, Route, Router
from starlette.types import Message, Receive, Scope, Send

from locus.errors import CapabilityError, LocusError
from locus.memory.model.codec import encode_trusted
from locus.server.audit import AuditLog
from locus.server.auth import GRANT_KEY, THREADS_KEY, Grant, Guard, Token
from locus.server.hosts import check_host
from locus.server.logs import LOGGER, Digests, error_facts
from locus.server.memory_budget import MemoryBudget, MemoryShare
from locus.server.metrics import Metrics
from locus.server.rates import Bucket, Rate
from locus.wire.format import PROTOCOL, PROTOCOL_HEADER
from locus.wire.problems import MEDIA_TYPE, Problem, failure, problem_of

if TYPE_CHECKING:
    from locus.server.inspector.app import Inspector

PUBLIC: Final = frozenset({"/health", "/ready", "/openapi.json"})
"""Paths that need no token."""

PATIENCE_SECONDS = 60.0
LEAST_RATE = 256 * 1024
"""The least rate at which a client must read an answer, in bytes per second, after the first `PATIENCE_SECONDS`."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_PROTOCOL = (PROTOCOL_HEADER.lower().encode(), str(PROTOCOL).encode())
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_NO_CACHE = (b"cache-control", b"no-store")
_MESSAGES = {
    "corrupt": "what is stored is damaged",
    "misconfigured": "the store cannot be used as it is set up",
    "store_unavailable": "the store is not available",
    "unsupported_format": "what is stored is of a newer format",
}
_STRANGERS = "strangers"
_INSPECTOR_KEY = "locus.inspector"
"""The key in the ASGI scope of a request for the inspector, if the request is for one of its pages."""

_PROBES = frozenset({"health", "ready"})
"""Operations that monitoring calls every few seconds, logged only at debug level. A failing store logs its own line."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class ServerMiddleware:
    """The outermost layer of the app. `hosts` are the host names that requests may use (`None`: any).

    The pages of an `inspector` are for people, who log in and send a cookie instead of a header. Errors are pages
    there. In all else, these requests are handled like others.
    """

    def __init__(
        self,
        app: Router,
        guard: Guard,
        metrics: Metrics,
        hosts: Collection[str] | None,
        *,
        memory: MemoryBudget,
        rate: Rate | None = None,
        audit: AuditLog | None = None,
        digests: Digests | None = None,
        inspector: Inspector | None = None,
    ) -> None:
        self._app = app
        self._guard = guard
        self.metrics = metrics
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self.memory = memory
        self._rate = rate
        self._buckets: dict[str, Bucket] = {}
        self._audit = audit
        self.digests = digests or Digests()
        self._inspector = inspector

    def use_tokens(self, tokens: Iterable[Token]) -> None:
        """Accept these tokens from the next request on, and no others. The rates of known tokens go on as they are."""
        accepted = [*tokens]
        self._guard.use(accepted)
        known = {_STRANGERS, *(token.id for token in accepted)}
        self._buckets = {token_id: bucket for token_id, bucket in self._buckets.items() if token_id in known}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await _HandledRequest(self, scope, receive, send).run()
        else:
            raise RuntimeError(f"this server does not speak {scope['type']}")

    async def dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate a request, and pass it to the router."""
        # Ids may contain any character, also an encoded slash: the router must split the path before it is decoded.
        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        scope["path"] = raw.partition(b"?")[0].decode("ascii", "replace")
        scope["app"] = self._app  # with this, the router raises an HTTPException instead of responding
        root: str = scope.get("root_path", "")
        path = scope["path"].removeprefix(root)
        if self._inspector is not None and self._inspector.serves(path):
            scope[_INSPECTOR_KEY] = self._inspector
            self._inspector.check(scope)
            if self._inspector.takes_secrets(path, scope["method"]):
                self._check_rate(_STRANGERS)
            elif not self._inspector.is_public(path):
                self._admit(scope, self._inspector.admit)
        else:
            if self._hosts is not None:
                check_host(scope["headers"], self._hosts)
            if path not in PUBLIC:
                self._admit(scope, lambda scope: self._guard.admit(_authorization(scope["headers"])))
        await self._app(scope, receive, send)

    def _admit(self, scope: Scope, admitted: Callable[[Scope], Grant]) -> None:
        """Find the grant of a request, and count the request."""
        try:
            grant = admitted(scope)
        except Problem:
            self._check_rate(_STRANGERS)  # so that guesses are limited, too
            raise
        scope[GRANT_KEY] = grant
        self._check_rate(grant.token_id)

    def _check_rate(self, token_id: str) -> None:
        if self._rate is None:
            return
        # There is one bucket for each token of the server, so there are few.
        bucket = self._buckets.get(token_id) or self._buckets.setdefault(token_id, Bucket(self._rate))
        if seconds := bucket.take():
            raise Problem(
                429,
                "too_many_requests",
                f"this token may send {self._rate.per_second:g} requests per second: send the next one later",
                headers={"Retry-After": str(math.ceil(seconds))},
            )

    def routing_problem(self, error: HTTPException, scope: Scope) -> Problem:
        """The problem for a path or a method that no route has."""
        if error.status_code != 405:
            return Problem(404, "no_such_path", "there is nothing under this path; /openapi.json lists what there is")
        # The routes are matched again, because only newer versions of Starlette say which one it was.
        routes = [
            route
            for route in self._app.routes
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE
        ]
        allowed = sorted({method for route in routes for method in route.methods or ()})
        text = f"{scope['method']:.20} is not for this path"
        return Problem(405, "method_not_allowed", text, headers={"Allow": ", ".join(allowed)})

    def count(self, request: _HandledRequest) -> None:
        operation = _operation(request.scope)
        method = request.scope["method"] if request.scope["method"] in _METHODS else "other"
        seconds = time.perf_counter() - request.started
        self.metrics.count(operation, method, request.status, seconds, request.received, request.sent)
        level = logging.DEBUG if operation in _PROBES else logging.INFO
        if LOGGER.isEnabledFor(level):
            LOGGER.log(level, "request", extra={"facts": request.facts(operation, method, seconds)})
        if self._audit is not None:
            self._write_audit(request, operation)

    def _write_audit(self, request: _HandledRequest, operation: str) -> None:
        """Write the request to the audit log, unless it needs no token: then it does nothing to account for."""
        grant: Grant | None = request.scope.get(GRANT_KEY)
        if self._audit is None or (grant is None and request.status != 401):
            return
        self._audit.write(
            {
                "request_id": request.request_id,
                "token": grant.token_id if grant else None,
                "operation": operation,
                "threads": self.threads(request.scope),
                "status": request.status,
                **request.outcome,
            }
        )

    def threads(self, scope: Scope) -> list[str]:
        """The threads that a request names, as digests."""
        return [self.digests.of(thread_id) for thread_id in scope.get(THREADS_KEY, ())]


class _HandledRequest:
    """A request being handled: its counts, its status, and its problem if it fails."""

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
        self._waited = 0.0
        self.request_id = _request_id(scope["headers"])

    async def run(self) -> None:
        middleware = self._middleware
        middleware.metrics.in_flight.inc()
        share = MemoryShare(middleware.memory)
        share.put_into(self.scope)
        try:
            await middleware.dispatch(self.scope, self._receive, self._send)
        except Problem as problem:
            await self._send_problem(problem)
        except HTTPException as error:
            await self._send_problem(middleware.routing_problem(error, self.scope))
        except LocusError as error:
            problem_found = problem_of(error)
            if problem_found.status >= 500 and not isinstance(error, CapabilityError):
                facts = {**self._about(error), **error_facts(error)}
                LOGGER.error(_MESSAGES.get(problem_found.code, "failed"), extra={"facts": facts})
            await self._send_problem(problem_found)
        except Exception as error:  # noqa: BLE001 - logged, and answered as a failure of this server
            LOGGER.exception("failed", extra={"facts": self._about(error)})
            await self._send_problem(failure(500, "failed"))
        finally:
            share.give_back()
            middleware.metrics.in_flight.dec()
            middleware.count(self)

    def _about(self, error: Exception) -> dict[str, Any]:
        """The facts about a failure that help to find its cause. Equal errors have equal digests."""
        return {
            "request_id": self.request_id,
            "threads": self._middleware.threads(self.scope),
            "digest": self._middleware.digests.of(str(error)),
        }

    @property
    def _inspector(self) -> Inspector | None:
        inspector: Inspector | None = self.scope.get(_INSPECTOR_KEY)
        return inspector

    @property
    def outcome(self) -> dict[str, Any]:
        return {} if self._code is None else {"problem": self._code}

    async def _receive(self) -> Message:
        message = await self._receive_message()
        self.received += len(message.get("body", b""))
        return message

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message["headers"], _PROTOCOL, (b"x-request-id", self.request_id.encode()), _NO_SNIFFING]
            if self._inspector is not None:
                headers += self._inspector.headers
            if self._inspector is None or all(name != _NO_CACHE[0] for name, _ in headers):
                headers.append(_NO_CACHE)
            message["headers"] = headers
        else:
            self.sent += len(message.get("body", b""))
        began = time.perf_counter()
        await self._send_message(message)
        self._waited += time.perf_counter() - began
        if self._waited > PATIENCE_SECONDS + self.sent / LEAST_RATE:
            raise Problem(408, "too_slow", "the client reads too slowly")

    async def _send_problem(self, problem: Problem) -> None:
        self._code = problem.code
        if self.status:  # the response has begun, so the only way to signal failure is to break it off
            raise ConnectionAbortedError(problem.code)
        if self._inspector is not None:
            page = self._inspector.problem_page(Request(self.scope), problem)
            await page(self.scope, self._receive, self._send)
            return
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
        return {**facts, **self.outcome}


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The request id from the headers if it is safe to log; otherwise a new one."""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value.decode("ascii")
    return secrets.token_hex(8)


def _authorization(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The Authorization header. Two are refused, because a proxy might take one, and this server the other."""
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) > 1:
        raise Problem(400, "malformed", "send one Authorization header")
    return values[0].decode("latin-1") if values else None


def _operation(scope: Scope) -> str:
    """The name of a request's operation. Those of pages have a prefix, to tell them from those of the API."""
    name: str = getattr(scope.get("endpoint"), "__name__", "none")
    return f"inspector_{name}" if _INSPECTOR_KEY in scope and name != "none" else name
