"""Describes the arguments of a function as JSON schema for a model, and checks them before the call.

The types come from annotations; the descriptions from a docstring in Google style.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from locus.errors import ConfigurationError

_REFUSED = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional only",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values",
    inspect.Parameter.VAR_KEYWORD: "takes any name",
}


class ArgumentsError(ValueError):
    """The arguments of a call do not fit the function. The text is for the model."""


class _Schema(GenerateJsonSchema):
    """JSON schema without generated titles, which cost tokens and only repeat the names."""

    # A default that JSON cannot hold is left out of the schema, and still is the default.
    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class Arguments:
    """The arguments of a function: their JSON schema, and their validation."""

    def __init__(
        self, tool: str, function: Callable[..., Any], docs: Mapping[str, str], names: Mapping[str, Any]
    ) -> None:
        self._tool = tool
        self._parameters = _parameters(tool, function)
        hints = _hints(tool, function, names)
        fields: dict[str, Any] = {}
        # Numbered, because a parameter may have a name that a pydantic model uses itself ("schema", "copy", "_x").
        for number, (name, parameter) in enumerate(self._parameters.items()):
            annotation = _described(hints.get(name, Any), name, docs.get(name))
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[f"argument_{number}"] = (annotation, default)
        try:
            self._model: type[BaseModel] = create_model(
                tool, __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields
            )
            self.json_schema: dict[str, Any] = self._model.model_json_schema(schema_generator=_Schema)
        except PydanticUserError as error:
            raise ConfigurationError(f"the tool {tool} has an argument that JSON cannot describe: {error}") from error
        self.json_schema.pop("title", None)

    def validate(self, given: Any) -> dict[str, Any]:
        """The values to call the function with, by parameter name."""
        if not isinstance(given, Mapping):
            raise ArgumentsError(f"arguments are an object, got {type(given).__name__}")
        try:
            checked = self._model.model_validate(dict(given))
        except ValidationError as error:
            raise ArgumentsError(_problems(error)) from error
        return {name: getattr(checked, f"argument_{number}") for number, name in enumerate(self._parameters)}


def _parameters(tool: str, function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = dict(inspect.signature(function).parameters)
    for number, (name, parameter) in enumerate(parameters.items()):
        if parameter.kind in _REFUSED:
            raise ConfigurationError(
                f"the tool {tool} cannot be called by name: {parameter} {_REFUSED[parameter.kind]}"
            )
        if number == 0 and name in ("self", "cls") and parameter.annotation is parameter.empty:
            raise ConfigurationError(f"{tool} is a method: make the tool of the bound one, tool(instance.{tool})")
    return parameters


def _hints(tool: str, function: Callable[..., Any], names: Mapping[str, Any]) -> dict[str, Any]:
    while isinstance(function, partial):
        function = function.func
    annotated = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(annotated, localns=dict(names), include_extras=True)
    except NameError as error:
        raise ConfigurationError(f"the annotations of the tool {tool} cannot be read: {error}") from error


def _described(annotation: Any, name: str, description: str | None) -> Any:
    """An annotation with the parameter's name and description added. A `Field` of the user's comes later, and wins."""
    kind, metadata = annotation, ()
    if get_origin(annotation) is Annotated:
        kind, *rest = get_args(annotation)
        metadata = tuple(Field(description=note) if isinstance(note, str) else note for note in rest)
    return operator.getitem(Annotated, (kind, Field(alias=name, description=description), *metadata))


def _problems(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}" for problem in problems)


_ARGUMENTS = frozenset({"args", "arguments", "parameters", "params"})
_OTHERS = frozenset(
    {"returns", "return", "yields", "raises", "example", "examples", "note", "notes", "warning", "attributes", "todo"}
)
_HEADING = re.compile(r"(\w+):\s*$")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)$")


@dataclass(frozen=True)
class Documentation:
    """The description of a function (its docstring up to the first section) and of its arguments."""

    description: str = ""
    arguments: dict[str, str] = field(default_factory=dict)


def documentation_of(function: Callable[..., Any]) -> Documentation:
    lines = (inspect.getdoc(function) or "").splitlines()
    sections = [number for number, line in enumerate(lines) if _section(line)]
    description = "\n".join(lines[: sections[0]] if sections else lines).strip()
    arguments: dict[str, str] = {}
    for number in sections:
        if _section(lines[number]) in _ARGUMENTS:
            arguments.update(_entries(_indented(lines[number + 1 :])))
    return Documentation(description, arguments)


def _section(line: str) -> str:
    """The name of the docstring section that a line opens; empty if it opens none."""
    heading = _HEADING.match(line)
    name = heading[1].lower() if heading else ""
    return name if name in _ARGUMENTS or name in _OTHERS else ""


def _indented(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line and not line[0].isspace():
            return
        if line.strip():
            yield line


def _entries(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """The entries of a section, `name (type): text`. Lines indented deeper than the first continue the text."""
    name, words, margin = "", [], -1
    for line in lines:
        depth = len(line) - len(line.lstrip())
        entry = _ENTRY.match(line.strip()) if margin < 0 or depth <= margin else None
        if entry is None:
            words.append(line.strip())
            continue
        if name:
            yield name, " ".join(words).strip()
        name, words, margin = entry[1], [entry[2]], depth
    if name:
        yield name, " ".join(words).strip()
