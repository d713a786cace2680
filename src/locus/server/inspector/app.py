"""The inspector as a part of a server: its routes, and what is checked before any of them.

`create_inspector` makes a server of the inspector alone, as `locus inspect` runs it; `create_app(…, inspector=True)`
has it beside the HTTP API, under `/ui`. In both of them requests go through `ServerMiddleware`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from functools import partial
from importlib.resources import files
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import Scope

from locus.server.auth import GRANT_KEY, GRANT_NOW_KEY, Grant, Guard
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import read_form
from locus.server.inspector import safety
from locus.server.inspector.pages import Pages, page_routes
from locus.server.inspector.rendering import LOGIN_KEY, Rendering
from locus.server.inspector.sessions import Sessions
from locus.server.memory_budget import MemoryBudget
from locus.server.metrics import Metrics
from locus.server.middleware import ServerMiddleware
from locus.server.requests import Query, Text
from locus.wire.problems import UNAUTHENTICATED, Problem

BASE: Final = "/ui"
"""The path of the inspector on a server that has the API, too."""

_STATIC_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_LONGEST_WAY: Final = 4_000


class _Open(Query):
    code: Text = ""


class _Login(Query):
    next: Text = ""


class Inspector:
    """The pages under one path, with their sessions. `hosts` are the names by which the server may be called."""

    headers = safety.HEADERS

    def __init__(
        self,
        authorized: AuthorizedStore,
        guard: Guard,
        *,
        base: str,
        writes: bool,
        hosts: Collection[str],
        sessions: Sessions | None = None,
    ) -> None:
        self._authorized = authorized
        self._base = base
        self._rendering = Rendering(base=base, writes=writes)
        self._hosts = frozenset(host.lower() for host in hosts)
        self.sessions = sessions or Sessions(guard)
        self._static = _static_files()
        pages = page_routes(Pages(authorized, self._rendering, writes))
        own = [
            Route("/", self.index),
            Route("/login", self.login, methods=["GET"]),
            Route("/login", self.log_in, methods=["POST"]),
            Route("/logout", self.log_out, methods=["POST"]),
            Route("/open", self.open),
            Route("/static/{file}", self.static),
        ]
        self.routes = [
            *([Route(base, self.index)] if base else []),
            *(Route(base + route.path, route.endpoint, methods=list(route.methods or ())) for route in (*own, *pages)),
        ]

    # What the middleware asks before it passes a request on

    def serves(self, path: str) -> bool:
        return path == self._base or path.startswith(f"{self._base}/")

    def check(self, scope: Scope) -> None:
        safety.check(scope, self._hosts)

    def is_public(self, path: str) -> bool:
        """True for paths that need no login."""
        below = path.removeprefix(self._base)
        return below in ("/login", "/open") or below.startswith("/static/")

    def takes_secrets(self, path: str, method: str) -> bool:
        """True for requests that try a token or a code. They are limited as requests of strangers are."""
        below = path.removeprefix(self._base)
        return below == "/open" or (below == "/login" and method not in safety.SAFE_METHODS)

    def admit(self, scope: Scope) -> Grant:
        """The grant of the session that a request's cookie names."""
        grant = self.sessions.grant(_cookies(scope))
        if grant is None:
            raise Problem(401, UNAUTHENTICATED, "Nobody has logged in here, or that was too long ago.")
        scope[LOGIN_KEY] = self.sessions.takes_tokens
        scope[GRANT_NOW_KEY] = partial(self.sessions.grant, _cookies(scope))
        return grant

    def problem_page(self, request: Request, problem: Problem) -> Response:
        """An error as a page; for a missing login, the page to log in."""
        if problem.status == 401:
            return self._login_page(request, self._own_way(_way(request)), problem.detail, 401)
        return self._rendering.problem(request, safety.hidden(problem))

    # Pages that are about the inspector itself

    async def index(self, request: Request) -> Response:
        return self._to(self._rendering.url("threads"))

    async def login(self, request: Request) -> Response:
        """The page to log in."""
        way = self._own_way(_Login.of(request).next)
        if self.sessions.grant(_cookies(request.scope)) is not None:
            return self._to(way)
        return self._login_page(request, way, "", 200)

    async def log_in(self, request: Request) -> Response:
        """Begin a session with a token."""
        form = await read_form(request, self._authorized.limits)
        way = self._own_way(form.get("next", ""))
        if not self.sessions.takes_tokens:
            return self._to(way)
        try:
            secret, grant = self.sessions.log_in(form.get("token", ""))
        except Problem as problem:
            return self._login_page(request, way, "This token is not known here.", problem.status)
        request.scope[GRANT_KEY] = grant  # for the audit log
        return self._with_cookie(self._to(way), request, secret)

    async def log_out(self, request: Request) -> Response:
        self.sessions.end(_cookies(request.scope))
        response = self._to(self._rendering.url("login"))
        response.delete_cookie(_cookie_name(request.scope), path=self._base or "/", httponly=True, samesite="strict")
        return response

    async def open(self, request: Request) -> Response:
        """Begin a session with a one-time code, which is part of the address."""
        secret = self.sessions.redeem(_Open.of(request).code)
        if secret is None:
            used = "This link was used already, or is too old."
            return self._login_page(request, self._rendering.url("threads"), used, 401)
        return self._with_cookie(self._to(self._rendering.url("threads")), request, secret)

    async def static(self, request: Request) -> Response:
        file = self._static.get(request.path_params["file"])
        if file is None:
            raise Problem(404, "no_such_path", "")
        body, kind, tag = file
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=kind)

    def _login_page(self, request: Request, way: str, said: str, status: int) -> Response:
        return self._rendering.page(
            request, "login.html", status=status, way=way, said=said, takes_tokens=self.sessions.takes_tokens
        )

    def _own_way(self, way: str) -> str:
        """The address to go to after the login: `way`, if it is a page of this inspector; else the list of threads."""
        is_own = way.startswith(f"{self._base}/") and not way.startswith("//") and len(way) <= _LONGEST_WAY
        plain = way.isascii() and way.isprintable() and "\\" not in way
        return way if is_own and plain else self._rendering.url("threads")

    def _to(self, way: str) -> RedirectResponse:
        return RedirectResponse(way, 303)

    def _with_cookie(self, response: Response, request: Request, secret: str) -> Response:
        secure = request.headers.get("origin", "").startswith("https://") or request.scope.get("scheme") == "https"
        response.set_cookie(
            _cookie_name(request.scope),
            secret,
            max_age=int(self.sessions.seconds),
            path=self._base or "/",
            secure=secure,
            httponly=True,
            samesite="strict",
        )
        return response


def create_inspector(
    authorized: AuthorizedStore,
    guard: Guard,
    *,
    base: str = "",
    writes: bool = False,
    hosts: Collection[str],
    sessions: Sessions | None = None,
    metrics: Metrics | None = None,
    lifespan: Callable[[Any], AbstractAsyncContextManager[None]] | None = None,
) -> ServerMiddleware:
    """A server that has the pages of the inspector, and nothing else."""
    inspector = Inspector(authorized, guard, base=base, writes=writes, hosts=hosts, sessions=sessions)
    return ServerMiddleware(
        Router(inspector.routes, redirect_slashes=False, lifespan=lifespan),
        guard,
        metrics or Metrics(),
        hosts,
        memory=MemoryBudget(authorized.limits.memory_bytes),
        inspector=inspector,
    )


def _static_files() -> dict[str, tuple[bytes, str, str]]:
    """The content, type and entity tag of each file that pages load, by name. No other file is served."""
    served: dict[str, tuple[bytes, str, str]] = {}
    for file in files("locus.server.inspector").joinpath("static").iterdir():
        kind = next((kind for ending, kind in _STATIC_TYPES.items() if file.name.endswith(ending)), None)
        if kind is not None:
            body = file.read_bytes()
            served[file.name] = body, kind, f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    return served


def _cookie_name(scope: Scope) -> str:
    """The name of the cookie, which has the port in it: browsers send a cookie to all servers of a machine."""
    server = scope.get("server") or ("", None)
    return f"locus-inspector-{server[1] or 0}"


def _cookies(scope: Scope) -> list[str]:
    """The secrets in a request's cookies: several, if another server has set a cookie of the same name."""
    name, secrets = _cookie_name(scope), []
    for header, value in scope["headers"]:
        if header == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, _, text = part.strip().partition("=")
                if key == name:
                    secrets.append(text.strip())
    return secrets


def _way(request: Request) -> str:
    """The address of a page that somebody wants to see, for after the login."""
    if request.method not in safety.SAFE_METHODS:
        return ""
    query = request.scope.get("query_string", b"").decode("latin-1")
    return f"{request.scope['path']}?{query}" if query else str(request.scope["path"])
