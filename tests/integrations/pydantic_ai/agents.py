"""An agent of Pydantic AI whose model is a function, and a process that is killed while it runs.

python -m tests.integrations.pydantic_ai.agents URL
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from locus.integrations.pydantic_ai import LocusConversationStore


def clerk(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Looks everything up, and then says how much it was shown."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    if any(isinstance(part, ToolReturnPart) for part in last.parts):
        return ModelResponse(parts=[TextPart(content=f"I was shown {len(messages)} messages.")])
    call = ToolCallPart(tool_name="look_up", args={"number": len(messages)}, tool_call_id=f"call_{len(messages)}")
    return ModelResponse(parts=[call])


def agent_with(*, killed: bool = False) -> Agent[None, str]:
    agent = Agent(FunctionModel(clerk))

    @agent.tool_plain
    def look_up(number: int) -> str:
        """Looks something up."""
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"found {number}"

    return agent


async def run(store: LocusConversationStore, agent: Agent[None, str], text: str) -> str:
    """A turn as the framework's documentation has it."""
    conversation = await store.load("alice") or Conversation(conversation_id="alice")
    result = await agent.run(text, conversation=conversation)
    await store.save(result)
    return result.output


async def _main(url: str) -> None:
    async with LocusConversationStore(url) as store:
        await run(store, agent_with(), "First?")
        await run(store, agent_with(killed=True), "Second?")


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
