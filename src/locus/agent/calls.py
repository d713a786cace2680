"""Makes the tool calls that a model asked for: all at once, each recorded as it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from locus.agent.recovery import TAKEN_OVER, failed
from locus.agent.sessions import Session
from locus.core.messages import ToolCall, ToolResult
from locus.core.tasks import ended
from locus.tools import ToolRegistry


@dataclass(frozen=True)
class CallContext:
    """The call that a tool is running for."""

    thread_id: str | None
    call: ToolCall
    session: Session


current_call: ContextVar[CallContext] = ContextVar("current_call")


@dataclass(frozen=True)
class Started:
    call: ToolCall


@dataclass(frozen=True)
class Finished:
    """A call has its result. `made` is False if it was left to another worker."""

    call: ToolCall
    result: ToolResult
    made: bool = True


async def make_calls(
    calls: Sequence[ToolCall], tools: ToolRegistry, session: Session, timeout: float | None
) -> AsyncGenerator[Started | Finished, None]:
    """Make calls concurrently, and yield an event as each begins and ends.

    A result is recorded before it is yielded. If the caller goes away, or a record cannot be saved, the calls
    that are still under way are cancelled.
    """
    events: asyncio.Queue[Started | Finished | Exception] = asyncio.Queue()

    async def make(call: ToolCall) -> None:
        try:
            if not is_repeatable(tools, call.name) and not await session.record_start(call.id):
                events.put_nowait(Finished(call, failed(call, TAKEN_OVER), made=False))
                return
            events.put_nowait(Started(call))
            result = await _result(call, tools, session, timeout)
            await session.record_result(result)
            events.put_nowait(Finished(call, result))
        except Exception as error:  # noqa: BLE001 - raised again where the caller waits
            events.put_nowait(error)

    tasks = [asyncio.create_task(make(call)) for call in calls]
    try:
        left = len(calls)
        while left:
            event = await events.get()
            if isinstance(event, Exception):
                raise event
            left -= isinstance(event, Finished)
            yield event
    finally:
        await ended(*tasks)


async def _result(call: ToolCall, tools: ToolRegistry, session: Session, timeout: float | None) -> ToolResult:
    current_call.set(CallContext(session.thread_id, call, session))
    return await tools.run(call, timeout=timeout)


def is_repeatable(tools: ToolRegistry, name: str) -> bool:
    """Whether a call may be made twice: its tool is idempotent, or does not exist, so that nothing happens."""
    tool = tools.find(name)
    return tool is None or tool.idempotent
