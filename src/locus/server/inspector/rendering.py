"""Turns templates and facts into pages.

Every value is escaped by Jinja2, and before that everything without a shape is made visible (`looking.formatting`), so
that a page shows exactly what is stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from locus import __version__
from locus.core.media import bytes_text
from locus.looking.formatting import ago, one_line, visible, visible_id
from locus.server.auth import GRANT_KEY, Grant
from locus.server.inspector.colours import with_marks
from locus.server.inspector.words import marked
from locus.wire.format import segment
from locus.wire.problems import Problem

_LINES: Final = "\n\t"
LOGIN_KEY: Final = "locus.login"
"""The key in a request's scope that tells if its sender has logged in with a token, and so can log out."""

_TITLES: Final = {
    400: "That is not possible",
    401: "Who are you?",
    403: "Not allowed",
    404: "Nothing is here",
    405: "Not like this",
    409: "It has changed meanwhile",
    412: "It has changed meanwhile",
    421: "Not under this name",
    422: "That is not possible",
    429: "Too fast",
    501: "This store cannot do that",
    503: "The store does not answer",
}


class Rendering:
    """The templates of an inspector under the path `base`. With `writes`, its pages may change the store."""

    def __init__(self, *, base: str = "", writes: bool = False) -> None:
        self.base = base
        self.writes = writes
        self._templates = _templates(base)

    def url(self, *segments: str, **query: str | int | None) -> str:
        """The address of a page. Ids are encoded, and parameters that are None are left out."""
        return _url(self.base, *segments, **query)

    def page(
        self,
        request: Request,
        template: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> Response:
        """A page. Templates also know the grant of the sender and whether the store may be changed."""
        grant: Grant | None = request.scope.get(GRANT_KEY)
        text = self._templates.get_template(template).render(
            prefix=grant.prefix if grant else "",
            writes=self.writes and grant is not None and grant.writes,
            known=grant is not None,
            login=request.scope.get(LOGIN_KEY, False),
            **facts,
        )
        return HTMLResponse(text, status, dict(headers or {}))

    def problem(self, request: Request | None, problem: Problem) -> Response:
        """An error as a page."""
        facts: dict[str, Any] = {
            "title": _TITLES.get(problem.status, "Something went wrong"),
            "status": problem.status,
            "detail": problem.detail,
        }
        if request is None:
            request = Request({"type": "http", "headers": []})
        return self.page(request, "problem.html", status=problem.status, headers=problem.headers, problem=facts)


@lru_cache(maxsize=8)
def _templates(base: str) -> Environment:
    """The templates for pages under a path, compiled once."""
    templates = Environment(
        loader=PackageLoader("locus.server.inspector"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        shown=shown,
        line=one_line,
        id=visible_id,
        ago=ago,
        moment=moment,
        clock=utc_time,
        day=day_of,
        time_of_day=time_of_day,
        bytes=bytes_text,
        pretty=pretty,
        indented=indented,
        marked=marked,
        with_marks=with_marks,
    )
    templates.globals.update(url=partial(_url, base), base=base, version=__version__)
    return templates


def _url(base: str, *segments: str, **query: str | int | None) -> str:
    asked = {name: value for name, value in query.items() if value is not None}
    path = "".join(f"/{_readable(text)}" for text in segments)
    return f"{base}{path}" + (f"?{urlencode(asked)}" if asked else "")


def _readable(text: str) -> str:
    """A segment of a path that a person can read, unless a browser or a server would take it for something else."""
    is_special = not text.strip(".") or text.startswith("~") or "\\" in text or not text.isprintable()
    return segment(text) if is_special else quote(text, safe=":@")


def shown(text: Any) -> str:
    """A text with its lines, and everything without a shape as an escape."""
    return visible(str(text), keep=_LINES)


def moment(when: datetime) -> str:
    """A time for the attribute `datetime` of a `time` element."""
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_time(when: datetime) -> str:
    """A time for people, in UTC and saying so: the server does not know their time zone."""
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def day_of(when: datetime) -> str:
    """The day of a time, in UTC."""
    return f"{when.astimezone(UTC):%A, %d %B %Y}"


def time_of_day(when: datetime) -> str:
    """The time of a day, in UTC. Scripts turn it into the local one."""
    return when.astimezone(UTC).strftime("%H:%M:%S")


def pretty(value: Any) -> str:
    """A value as JSON on several lines."""
    return visible(json.dumps(value, ensure_ascii=False, indent=2), keep=_LINES)


def indented(text: str) -> str:
    """A text that is JSON, on several lines; any other text as it is."""
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text
