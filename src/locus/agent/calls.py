"""Making the calls that a model asked for: at once, each recorded as it is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from locus.agent.recovery import TAKEN_OVER, failed
from locus.agent.sessions import Session
from locus.core.messages import ToolCall, ToolResult
from locus.tools import ToolRegistry


@dataclass(frozen=True)
class CallContext:
    """Which call a tool serves just now."""

    thread_id: str | None
    call: ToolCall
    session: Session


current_call: ContextVar[CallContext] = ContextVar("current_call")


@dataclass(frozen=True)
class Started:
    call: ToolCall


@dataclass(frozen=True)
class Finished:
    """`made` is False for a call that was left to another worker."""

    call: ToolCall
    result: ToolResult
    made: bool = True


async def make_calls(
    calls: Sequence[ToolCall], tools: ToolRegistry, session: Session, timeout: float | None
) -> AsyncGenerator[Started | Finished, None]:
    """Make calls side by side, and tell as each begins and ends.

    A result is recorded before it is told. If the caller goes away, or the record cannot be kept, the calls
    that are still under way are cancelled.
    """
    told: asyncio.Queue[Started | Finished | Exception] = asyncio.Queue()

    async def make(call: ToolCall) -> None:
        try:
            if not is_repeatable(tools, call.name) and not await session.record_start(call.id):
                told.put_nowait(Finished(call, failed(call, TAKEN_OVER), made=False))
                return
            told.put_nowait(Started(call))
            result = await _result(call, tools, session, timeout)
            await session.record_result(result)
            told.put_nowait(Finished(call, result))
        except Exception as error:  # noqa: BLE001 - raised again where the caller waits
            told.put_nowait(error)

    tasks = [asyncio.create_task(make(call)) for call in calls]
    try:
        left = len(calls)
        while left:
            event = await told.get()
            if isinstance(event, Exception):
                raise event
            left -= isinstance(event, Finished)
            yield event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _result(call: ToolCall, tools: ToolRegistry, session: Session, timeout: float | None) -> ToolResult:
    current_call.set(CallContext(session.thread_id, call, session))
    return await tools.run(call, timeout=timeout)


def is_repeatable(tools: ToolRegistry, name: str) -> bool:
    """Whether a call may be made twice: the tool says so, or there is none, and nothing happens."""
    tool = tools.find(name)
    return tool is None or tool.idempotent
