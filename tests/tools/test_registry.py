"""The tools of one agent."""

from __future__ import annotations

import pytest

from locus.core.messages import Message, ToolCall
from locus.errors import ConfigurationError
from locus.tools import ToolRegistry, tool
from locus.tools.calls import raw_arguments, tool_call


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def plain() -> str:
    return "plain"


async def test_a_call_is_carried_out() -> None:
    result = await ToolRegistry([double]).run(ToolCall(id="t1", name="double", arguments={"number": 4}))
    assert (result.tool_call_id, result.name, result.content, result.error) == ("t1", "double", "8", None)
    assert result.duration_ms is not None
    assert 0 <= result.duration_ms < 10_000
    assert Message.tool(result).content == "8"


async def test_plain_functions_become_tools() -> None:
    registry = ToolRegistry([double, plain])
    assert (registry.names, len(registry)) == (["double", "plain"], 2)
    assert "plain" in registry
    assert [found.name for found in registry] == ["double", "plain"]
    assert (await registry.run(ToolCall(name="plain"))).content == "plain"


async def test_an_unknown_tool_is_told_what_there_is() -> None:
    result = await ToolRegistry([double, plain]).run(ToolCall(name="triple"))
    assert result.error == "there is no tool 'triple'; there are: double, plain"
    assert (await ToolRegistry().run(ToolCall(name="x"))).error == "there is no tool 'x'; there are: none"
    assert ToolRegistry().find("x") is None


def test_a_name_occurs_once() -> None:
    with pytest.raises(ConfigurationError, match="two tools are named 'plain'"):
        ToolRegistry([plain, tool(name="plain")(double.function)])


async def test_malformed_arguments_reach_the_model_as_an_error() -> None:
    call = tool_call("double", '{"number": ', "t1")
    result = await ToolRegistry([double]).run(call)
    assert result.error is not None
    assert 'no JSON object: {"number": ' in result.error
    assert '"required":["number"]' in result.error


@pytest.mark.parametrize("given", [None, "", "{}", {}])
def test_no_arguments_are_empty_arguments(given: object) -> None:
    call = tool_call("x", given)
    assert (call.arguments, raw_arguments(call)) == ({}, None)
    assert call.id


@pytest.mark.parametrize("given", ["[]", "5", "nul", '{"a": 1e999}', [1], {"a": float("nan")}, "[" * 100_000, "\ud800"])
def test_what_is_no_object_or_cannot_be_kept_stays_as_text(given: object) -> None:
    call = tool_call("x", given, "t1")
    assert call.arguments == {}
    raw = raw_arguments(call)
    assert raw is not None
    assert raw.encode()
    assert ToolCall.model_validate(call.model_dump()) == call


async def test_the_timeout_of_the_caller_serves_tools_without_one() -> None:
    import asyncio

    @tool
    async def wait() -> None:
        await asyncio.sleep(10)

    result = await ToolRegistry([wait]).run(ToolCall(name="wait"), timeout=0.01)
    assert result.error == "wait did not finish within 0.01 seconds"
