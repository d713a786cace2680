"""`@tool`: what it makes of a function."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import sys
import threading
import time
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from locus.errors import ConfigurationError
from locus.tools import Tool, ToolOutcome, tool


class Address(BaseModel):
    street: str
    number: int = Field(ge=1)


@dataclass
class Point:
    x: float
    y: Any


class Colour(Enum):
    RED = "red"


@tool
def greet(name: str, times: int = 1) -> str:
    """Greet somebody.

    More than once, if need be.

    Args:
        name: Whom to greet,
            by first name.
        times (int): How often.

    Returns:
        The greeting.
    """
    return " ".join([f"Hello {name}"] * times)


def test_a_tool_is_still_the_function() -> None:
    assert greet("Eve", times=2) == "Hello Eve Hello Eve"
    assert greet.__doc__ == greet.function.__doc__
    assert isinstance(greet, Tool)
    assert repr(greet) == "Tool(greet)"


def test_the_schema_comes_from_hints_and_docstring() -> None:
    assert greet.name == "greet"
    assert greet.description == "Greet somebody.\n\nMore than once, if need be."
    assert greet.parameters == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Whom to greet, by first name."},
            "times": {"type": "integer", "description": "How often.", "default": 1},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    assert (greet.idempotent, greet.timeout) == (False, None)


def test_options() -> None:
    @tool(name="other", description="Does it.", idempotent=True, timeout=5)
    def something() -> None:
        """Not this."""

    assert (something.name, something.description) == ("other", "Does it.")
    assert (something.idempotent, something.timeout) == (True, 5)
    assert something.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_annotated_fields_models_and_odd_names() -> None:
    class Local(BaseModel):
        a: int

    @tool
    def many(  # type: ignore[no-untyped-def]
        where: Address,
        kind: Literal["a", "b"],
        copy: Annotated[int, Field(description="Said here.", gt=0)],
        schema: Annotated[str, "In words."],
        _hidden: bool = False,
        model_config: str | None = None,
        local: Local | None = None,
        count: int = Field(default=3, description="Of the default."),
        anything=object(),  # noqa: B008
    ) -> str:
        """Many.

        Args:
            copy: Not this.
        """
        return f"{where.street} {kind} {copy} {schema} {_hidden} {model_config} {local} {count}"

    properties = many.parameters["properties"]
    assert properties["where"] == {"$ref": "#/$defs/Address"}
    assert many.parameters["$defs"]["Address"]["properties"]["number"]["minimum"] == 1
    assert properties["kind"]["enum"] == ["a", "b"]
    assert properties["copy"] == {"type": "integer", "description": "Said here.", "exclusiveMinimum": 0}
    assert properties["schema"]["description"] == "In words."
    assert properties["count"] == {"type": "integer", "description": "Of the default.", "default": 3}
    assert many.parameters["required"] == ["where", "kind", "copy", "schema"]
    given = {"where": {"street": "Elm", "number": 1}, "kind": "a", "copy": 1, "schema": "s", "local": {"a": 1}}
    assert asyncio.run(many.run(given)) == ToolOutcome("Elm a 1 s False None a=1 3")


@pytest.mark.parametrize("style", ["plain", "bound method", "partial", "callable object", "async callable object"])
async def test_any_callable_can_be_a_tool(style: str) -> None:
    class Greeter:
        def hello(self, name: str) -> str:
            return f"Hello {name}"

        def __call__(self, name: str) -> str:
            return f"Hello {name}"

    class Later(Greeter):
        async def __call__(self, name: str) -> str:  # type: ignore[override]
            return f"Hello {name}"

    def plain(name: str, greeting: str = "Hello") -> str:
        return f"{greeting} {name}"

    functions: dict[str, Any] = {
        "plain": plain,
        "bound method": Greeter().hello,
        "partial": functools.partial(plain, greeting="Hello"),
        "callable object": Greeter(),
        "async callable object": Later(),
    }
    made = Tool(functions[style], name="hello")
    assert made.parameters["properties"]["name"] == {"type": "string"}
    assert await made.run({"name": "Eve"}) == ToolOutcome("Hello Eve")


def test_functions_that_cannot_be_tools() -> None:
    def star(*values: int) -> None: ...
    def stars(**values: int) -> None: ...
    def positional(value: int, /) -> None: ...
    def method(self, value: int) -> None: ...  # type: ignore[no-untyped-def]
    def unknown(value: NoSuchType) -> None: ...  # type: ignore[name-defined] # noqa: F821
    def indescribable(value: threading.Lock) -> None: ...

    for function, said in (
        (star, r"\*values"),
        (stars, r"\*\*values"),
        (positional, "positional only"),
        (method, "bound"),
        (unknown, "NoSuchType"),
        (indescribable, "JSON cannot describe"),
        (lambda: None, "cannot be the name"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            tool(function)
    for name in ("", "a b", "a" * 65, "é"):
        with pytest.raises(ConfigurationError, match="cannot be the name"):
            tool(name=name)(star)
    with pytest.raises(ConfigurationError, match="above zero"):
        tool(timeout=0)(greet)
    with pytest.raises(ConfigurationError, match="made of a function"):
        tool(5)  # type: ignore[call-overload]


async def test_arguments_are_checked_and_the_error_tells_all() -> None:
    outcome = await greet.run({"times": "many", "extra": 1})
    assert outcome.error is not None
    assert "name: Field required" in outcome.error
    assert "times: Input should be a valid integer" in outcome.error
    assert "extra: Extra inputs are not permitted" in outcome.error
    assert '"required":["name"]' in outcome.error
    assert not outcome.success
    listed = await greet.run(["Eve"])  # type: ignore[arg-type]
    assert listed.error is not None
    assert "arguments are an object, got list" in listed.error
    assert await greet.run({"name": "Eve", "times": "2"}) == ToolOutcome("Hello Eve Hello Eve")


async def test_a_validator_of_the_users_may_raise_anything() -> None:
    class Picky(BaseModel):
        def model_post_init(self, _context: object) -> None:
            raise KeyError("picky")

    @tool
    def use(picky: Picky) -> None: ...

    assert await use.run({"picky": {}}) == ToolOutcome(error="invalid arguments for use: KeyError: 'picky'")


RESULTS: list[tuple[Any, str]] = [
    ("as it is", "as it is"),
    ("", ""),
    (None, "null"),
    (5, "5"),
    (True, "true"),
    (1.5, "1.5"),
    ({"a": [1, "é"]}, '{"a":[1,"é"]}'),
    ((1, 2), "[1,2]"),
    (Address(street="Elm", number=1), '{"street":"Elm","number":1}'),
    ([Address(street="Elm", number=1)], '[{"street":"Elm","number":1}]'),
    (Point(1.0, Point(2.0, None)), '{"x":1.0,"y":{"x":2.0,"y":null}}'),
    ({"day": date(2025, 1, 2), "id": UUID(int=1)}, '{"day":"2025-01-02","id":"00000000-0000-0000-0000-000000000001"}'),
    ([Colour.RED], '["red"]'),
]


@pytest.mark.parametrize(("value", "text"), RESULTS)
async def test_results_become_text(value: Any, text: str) -> None:
    assert await Tool(lambda: value, name="x").run({}) == ToolOutcome(text)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "result is of type object"),
        ({"a": [1, {2, 3}]}, "result.a[1] is of type set"),
        ({"a": float("nan")}, "result.a is nan"),
        (b"bytes", "result is of type bytes"),
        ({1: 2}, "key of type int"),
        (Point(1.0, object()), "result.y is of type object"),
        ([Point], "result[0] is of type type"),
        ("\ud800", "lone surrogate"),
        (nested(200), "levels deep"),
    ],
)
async def test_what_json_cannot_hold_is_an_error_that_names_the_path(value: Any, said: str) -> None:
    outcome = await Tool(lambda: value, name="x").run({})
    assert outcome.error is not None
    assert said in outcome.error
    assert outcome.content == ""


async def test_a_model_that_holds_what_json_cannot() -> None:
    class Holder(BaseModel):
        value: Any

    for value in (float("inf"), object()):
        outcome = await Tool(lambda value=value: [Holder(value=value)], name="x").run({})
        assert outcome.error is not None
        assert "result[0]" in outcome.error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad \udcff name"), "ValueError: bad \\udcff name"),
        (KeyError("k"), "KeyError: 'k'"),
        (RuntimeError(), "RuntimeError"),
        (StopIteration(1), "RuntimeError: coroutine raised StopIteration"),
        (TimeoutError("upstream"), "TimeoutError: upstream"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_exceptions_become_text(error: BaseException, text: str, is_async: bool) -> None:
    def fail() -> None:
        raise error

    async def fail_later() -> None:
        raise error

    outcome = await Tool(fail_later if is_async else fail, timeout=5).run({})
    assert outcome == ToolOutcome(error=text)


async def test_sync_functions_run_in_threads_with_the_callers_context() -> None:
    who = contextvars.ContextVar("who", default="nobody")
    who.set("Eve")
    barrier = threading.Barrier(12, timeout=10)

    @tool
    def meet() -> list[str]:
        barrier.wait()
        return [threading.current_thread().name, who.get()]

    outcomes = await asyncio.gather(*(meet.run({}) for _ in range(12)))
    assert {outcome.content for outcome in outcomes} == {'["locus-tool","Eve"]'}


async def test_timeouts() -> None:
    release = threading.Event()

    @tool(timeout=0.05)
    def hang() -> None:
        release.wait(10)

    @tool
    async def hang_too() -> None:
        await asyncio.sleep(10)

    started = time.monotonic()
    try:
        sync, not_sync = await asyncio.gather(hang.run({}, timeout=10), hang_too.run({}, timeout=0.05))
    finally:
        release.set()
    assert sync == ToolOutcome(error="hang did not finish within 0.05 seconds")
    assert not_sync == ToolOutcome(error="hang_too did not finish within 0.05 seconds")
    assert time.monotonic() - started < 5


def test_a_hanging_tool_does_not_keep_the_process_alive() -> None:
    code = (
        "import asyncio, threading\n"
        "from locus.tools import tool\n"
        "@tool(timeout=0.05)\n"
        "def hang() -> None:\n"
        "    threading.Event().wait()\n"
        "print(asyncio.run(hang.run({})).error)\n"
    )
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "hang did not finish within 0.05 seconds\n"
    assert done.stderr == ""


async def test_cancellation_is_raised_and_a_cancellation_from_within_is_not() -> None:
    @tool
    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    outcome = await cancels_itself.run({})
    assert outcome.error is not None
    assert "cancelled from within" in outcome.error

    started = asyncio.Event()

    @tool
    async def waits() -> None:
        started.set()
        await asyncio.sleep(10)

    task = asyncio.create_task(waits.run({}))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_sync_tool_goes_on_unheard() -> None:
    begun, release, finished = threading.Event(), threading.Event(), threading.Event()

    @tool
    def slow() -> None:
        begun.set()
        release.wait(10)
        finished.set()

    task = asyncio.create_task(slow.run({}))
    assert await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    assert await asyncio.to_thread(finished.wait, 10)
