"""Reads the fields of a request and checks their types. A field that is wrong is reported by name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request

from locus.memory.model.arguments import UNLIMITED
from locus.memory.model.ids import check_id
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, Unset
from locus.wire.format import from_etag
from locus.wire.problems import Problem

MOST = 2**53 - 1
"""The largest integer that every JSON parser reads exactly."""


def invalid(what: str, wanted: str) -> Problem:
    return Problem(422, "invalid_request", f"{what} must be {wanted}")


def only(data: Mapping[str, Any], known: frozenset[str]) -> None:
    """Refuse unknown fields: a misspelt one would otherwise be ignored."""
    unknown = data.keys() - known
    if unknown:
        raise Problem(422, "invalid_request", f"there is no field {sorted(unknown)[0]!r:.60}")


def text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise invalid(name, "text")
    return value


def optional_text(data: Mapping[str, Any], name: str) -> str | None:
    return None if data.get(name) is None else text(data, name)


def flag(data: Mapping[str, Any], name: str) -> bool:
    value = data.get(name, False)
    if not isinstance(value, bool):
        raise invalid(name, "true or false")
    return value


def number(value: Any, what: str, least: int = 0, most: int = MOST) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise invalid(what, f"a whole number from {least} to {most}")
    return value


def optional_number(data: Mapping[str, Any], name: str, least: int = 0) -> int | None:
    return None if data.get(name) is None else number(data[name], name, least)


def limit(data: Mapping[str, Any], otherwise: int) -> int:
    return number(data.get("limit", otherwise), "limit", 0, UNLIMITED)


def mapping(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    if not isinstance(value, dict):
        raise invalid(name, "an object")
    return value


def sequence(data: Mapping[str, Any], name: str) -> list[Any]:
    value = data.get(name)
    if not isinstance(value, list):
        raise invalid(name, "a list")
    return value


def moment(data: Mapping[str, Any], name: str) -> datetime:
    try:
        found = datetime.fromisoformat(text(data, name))
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise invalid(name, "a time such as 2026-01-31T12:00:00+00:00") from error


def query_number(request: Request, name: str, otherwise: int | None, most: int) -> int | None:
    given = request.query_params.get(name)
    if given is None:
        return otherwise
    if not (given.isascii() and given.isdigit()) or len(given) > 16:
        raise invalid(name, f"a whole number from 0 to {most}")
    return number(int(given), name, 0, most)


def query_flag(request: Request, name: str) -> bool:
    given = request.query_params.get(name, "false")
    if given not in ("true", "false"):
        raise invalid(name, "true or false")
    return given == "true"


def namespace(request: Request) -> str:
    return check_id(request.query_params.get("namespace", DEFAULT_NAMESPACE), "namespace", empty=True)


def if_latest(request: Request) -> str | None | Unset:
    """The checkpoint that must be the latest: `If-Match` names it; with `If-None-Match: *` there must be none."""
    match, none_match = request.headers.get("if-match"), request.headers.get("if-none-match")
    if match is None and none_match is None:
        return ANY
    if match is not None and none_match is not None:
        raise Problem(400, "malformed", "send If-Match or If-None-Match, not both")
    if match is None:
        if none_match != "*":
            raise Problem(400, "malformed", "the only If-None-Match is *: there must be no checkpoint yet")
        return None
    expected = from_etag(match)
    if not expected:
        raise Problem(400, "malformed", 'If-Match is one checkpoint id in quotes, percent-encoded: "c7"')
    return check_id(expected, "If-Match")
