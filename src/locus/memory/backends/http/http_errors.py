"""What a request may come to, as errors of our tree that `except httpx.HTTPError` catches, too.

Each error of ours that a server reports has a twin here: `HTTPConflictError` is a `ConflictError`, and so on.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import httpx

from locus.errors import BackendUnavailableError, CheckpointError, ConflictError, SerializationError
from locus.memory.backends.http.http_lanes import Answer
from locus.wire.format import PROTOCOL_HEADER
from locus.wire.problems import ERRORS, FORBIDDEN, NOT_FOUND, UNAUTHENTICATED

_SHOWN = 300
_BUSY = frozenset({408, 425, 429})


class HTTPUnavailableError(BackendUnavailableError, httpx.HTTPError):
    """The server could not be reached, did not answer, or could not do its work."""


class HTTPAuthenticationError(CheckpointError, httpx.HTTPError):
    """The server refused the credentials, or they do not allow this."""


class HTTPRefusedError(CheckpointError, httpx.HTTPError):
    """The server refused the request: sending it again will not help."""


_TWINS: dict[str, Any] = {
    code: type(f"HTTP{kind.__name__}", (kind, httpx.HTTPError), {"__doc__": kind.__doc__, "__module__": __name__})
    for code, kind in ERRORS.items()
}


def is_ours(answer: Answer) -> bool:
    """Whether `locus.server` itself answered, and not something on the way to it."""
    return PROTOCOL_HEADER.lower() in answer.headers


def not_there(answer: Answer) -> bool:
    """Whether our server says that something is not there. Anybody else's 404 says nothing about that."""
    return answer.status_code == 404 and is_ours(answer) and problem(answer).get("code") == NOT_FOUND


def problem(answer: Answer) -> dict[str, Any]:
    """The problem details in an answer, if it has any."""
    try:
        found = json.loads(answer.content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def refuse(answer: Answer) -> NoReturn:
    """Raise the error that an answer which is no success stands for."""
    found = problem(answer)
    code = found.get("code") if is_ours(answer) else None
    detail = str(found.get("detail") or answer.reason or "no reason was given")[:_SHOWN]
    text = f"the server answered {answer.status_code}: {detail}"
    request = answer.question.shown()
    cause = httpx.HTTPStatusError(text, request=request, response=httpx.Response(answer.status_code, request=request))
    error = _error(answer, code, detail, text, found)
    error.request = request
    raise error from cause


def _error(answer: Answer, code: Any, detail: str, text: str, found: dict[str, Any]) -> Any:
    status = answer.status_code
    if code in (UNAUTHENTICATED, FORBIDDEN) or (code is None and status in (401, 403, 407)):
        return HTTPAuthenticationError(f"{text}; check `auth`, `token` or `headers`")
    if isinstance(code, str) and code in _TWINS:
        if issubclass(ERRORS[code], ConflictError):
            return _TWINS[code](detail, expected=found.get("expected"), latest=found.get("latest"))
        if issubclass(ERRORS[code], SerializationError):
            return _TWINS[code](detail, str(found.get("path", "")))
        return _TWINS[code](detail)
    if status >= 500 or status in _BUSY or (code is None and status == 404):
        return HTTPUnavailableError(text)
    if 300 <= status < 400:
        return HTTPRefusedError(f"{text}: it sends us elsewhere; give that address as base_url")
    return HTTPRefusedError(text)
