"""The base classes and field types of the models for queries and bodies of requests.

Every route declares its query and its body as a model. The model checks a request before the route sees it, and the
OpenAPI document is made from the same model. The error for an invalid field names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Self, TypeVar
from urllib.parse import parse_qsl

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from starlette.requests import Request

from locus.errors import LocusError
from locus.hints import did_you_mean
from locus.memory.model.codec import MAX_DEPTH
from locus.memory.model.ids import MAX_ID_LENGTH, check_id, check_text
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, Unset
from locus.wire.format import MOST_LISTS, from_etag
from locus.wire.problems import Problem

T = TypeVar("T")

MOST_PARAMETERS = 100
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,16}")
MOST = 2**53 - 1
"""The largest integer that every JSON parser reads exactly."""


def invalid(what: str | None, wanted: str) -> Problem:
    return Problem(422, "invalid_request", f"{what} must be {wanted}")


def _id(value: Any, info: ValidationInfo) -> Any:
    return check_id(value, info.field_name or "id") if isinstance(value, str) else value


def _name(value: Any, info: ValidationInfo) -> Any:
    return check_id(value, info.field_name or "name", empty=True) if isinstance(value, str) else value


def _text(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str):
        check_text(value, info.field_name or "a text")
    return value


def _no_text_is_no_id(value: Any, info: ValidationInfo) -> str:
    return check_id(value, info.field_name or "id", empty=True)


def _moment(value: Any, info: ValidationInfo) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(info.field_name, "a time such as 2026-01-31T12:00:00+00:00") from error


def _digits(value: Any) -> Any:
    return int(value) if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value) else value


def _in_json(wanted: str) -> BeforeValidator:
    """A validator that reads the JSON text of a parameter, which must be what is `wanted`."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        try:
            return json.loads(value) if isinstance(value, str) else value
        except (ValueError, RecursionError):
            raise invalid(info.field_name, wanted) from None

    return BeforeValidator(validate)


def _at_once(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    try:
        return handler(value)
    except ValidationError as error:
        raise _problem(error, value, info.field_name) from None


def _row(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _word(value: Any) -> Any:
    return {"true": True, "false": False}.get(value, value)


Id = Annotated[str, Field(min_length=1, max_length=MAX_ID_LENGTH), BeforeValidator(_id)]
Name = Annotated[str, Field(max_length=MAX_ID_LENGTH), BeforeValidator(_name)]
"""An id that may be empty."""
Text = Annotated[str, BeforeValidator(_text)]
"""Any text but lone surrogates, halves of characters, which JSON can write and no database can keep."""
ID_ERROR = BeforeValidator(_no_text_is_no_id)
"""A validator for ids: makes the error for a value that is no text that of an invalid id."""
Number = Annotated[int, Field(ge=0, le=MOST)]
Moment = Annotated[datetime, BeforeValidator(_moment)]
ROW = BeforeValidator(_row)
"""A validator that makes tuples of JSON's lists. (`Strict(False)` would do, but not in unions below pydantic 2.11.)"""
Many = Annotated[list[T], Field(fail_fast=True)]
"""A list of any length. The first invalid item ends the check, because a large body could hold millions."""
AT_ONCE = WrapValidator(_at_once)
"""A validator for the values of an object: the first invalid one ends the check."""
_Names = Annotated[tuple[Text, ...], Field(min_length=1, max_length=MAX_DEPTH), ROW]
ItemPath = Annotated[_Names, _in_json(f'the names that lead to a list, at most {MAX_DEPTH}, as JSON: ["messages"]')]
_ItemPaths = Annotated[tuple[_Names, ...], Field(max_length=MOST_LISTS), ROW]
WindowOfLists = Annotated[
    tuple[Annotated[int, Field(ge=1, le=MOST)], _ItemPaths],
    ROW,
    _in_json(f'how many of the last items of which lists, at most {MOST_LISTS}, as JSON: [50,[["messages"]]]'),
]
HeldIds = Annotated[tuple[Id, Id], ROW, _in_json('the id and the rev of a checkpoint, as JSON: ["c6","r6"]')]
IN_QUERY = BeforeValidator(_digits)
"""A validator for numbers in a query, where everything is text."""
QueryFlag = Annotated[bool, BeforeValidator(_word)]


class _Checked(BaseModel):
    @classmethod
    def check(cls, data: dict[str, Any]) -> Self:
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise _problem(error, data) from None


class Body(_Checked):
    """A JSON object. Unknown fields are refused: a misspelt one would otherwise be ignored."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @classmethod
    def check(cls, data: dict[str, Any]) -> Self:
        known = cls.model_fields
        for name in data:  # pydantic would make an error for each unknown field
            if name not in known:
                raise Problem(422, "invalid_request", f"there is no field {name!r:.60}")
        return super().check(data)


class Query(_Checked):
    """The query of a URL. Unknown parameters are refused: a misspelt limit or prefix would otherwise be ignored."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @classmethod
    def of(cls, request: Request) -> Self:
        given: dict[str, str] = {}
        try:
            # Starlette would replace invalid UTF-8 by one character, so that two ids could become one.
            pairs = parse_qsl(
                request.scope["query_string"].decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=MOST_PARAMETERS,
            )
        except ValueError as error:
            raise Problem(400, "malformed", "the query is too long, or no UTF-8 that is percent-encoded") from error
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for name, value in pairs:
            if name not in known:
                raise unknown_parameter(name, known)
            if name in given:
                raise Problem(400, "malformed", f"send {name} once")
            given[name] = value
        return cls.check(given)


def unknown_parameter(name: str, known: Iterable[str]) -> Problem:
    names = list(known)
    choices = f"there are: {', '.join(names)}" if names else "this request has none"
    text = f"there is no parameter {name!r:.60}{did_you_mean(name, names)} in this query; {choices}"
    return Problem(422, "invalid_request", text)


class Namespaced(Query):
    namespace: Name = DEFAULT_NAMESPACE


_WANTED = {
    "missing": "be given",
    "string_type": "be text",
    "bool_type": "be true or false",
    "int_type": "be a whole number",
    "float_type": "be a number",
    "dict_type": "be an object",
    "list_type": "be a list",
    "tuple_type": "be a list",
}
"""Texts for pydantic's types of errors, in terms of JSON rather than of Python."""


def _problem(error: ValidationError, data: Any, field: str | None = None) -> Exception:
    first = error.errors(include_url=False, include_input=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, LocusError):
        return cause
    wanted = _WANTED.get(first["type"]) or re.sub(r"^\w+ should | after validation", "", first["msg"])
    return Problem(422, "invalid_request", f"{field or _place(first['loc'], data)} must {wanted}")


def _place(steps: Sequence[int | str], data: Any) -> str:
    """The path to an invalid value. pydantic adds the names of types in a union, which are left out."""
    names = []
    for step in steps:
        inside = isinstance(data, dict) if isinstance(step, str) else isinstance(data, list)
        if not inside:
            break
        names.append(step[:60].encode(errors="backslashreplace").decode() if isinstance(step, str) else str(step))
        try:
            data = data[step]
        except LookupError:
            break
    return ".".join(names)


CONDITIONS = [
    {"name": "If-Match", "in": "header", "schema": {"type": "string", "pattern": '^"[A-Za-z0-9_-]+"$'}},
    {"name": "If-None-Match", "in": "header", "schema": {"type": "string", "const": "*"}},
]
"""The OpenAPI description of the headers that `if_latest` reads."""


def if_latest(request: Request) -> str | None | Unset:
    """The checkpoint that must be the latest, from `If-Match`. With `If-None-Match: *`, None: there must be none."""
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
