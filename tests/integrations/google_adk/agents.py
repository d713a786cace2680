"""An agent of ADK with a model that is a function, and a run of it in a process of its own that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from locus.integrations.google_adk import LocusArtifactService, LocusSessionService


def booked(city: str, tool_context: ToolContext) -> dict[str, Any]:
    """Book a trip to a city."""
    cities = [*tool_context.state.get("cities", []), city]
    tool_context.state["cities"] = cities
    tool_context.state["user:trips"] = tool_context.state.get("user:trips", 0) + 1
    tool_context.state["temp:city"] = city
    return {"result": f"{len(cities)} booked"}


class Clerk(BaseLlm):
    """Books what it is asked for, and then says what it knows. With `dies`, it is killed before it says so."""

    model: str = "clerk"
    dies: bool = False

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = (llm_request.contents[-1].parts or [])[-1]
        if last.function_response is not None:
            if self.dies:
                os.kill(os.getpid(), signal.SIGKILL)
            part = types.Part(text=f"{(last.function_response.response or {})['result']}.")
        else:
            city = (last.text or "").split()[-1]
            part = types.Part(function_call=types.FunctionCall(name="booked", args={"city": city}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def runner(
    sessions: LocusSessionService, artifacts: LocusArtifactService | None = None, *, dies: bool = False
) -> Runner:
    agent = LlmAgent(name="clerk", model=Clerk(dies=dies), tools=[booked])
    return Runner(app_name="shop", agent=agent, session_service=sessions, artifact_service=artifacts)


async def say(run: Runner, text: str, session_id: str = "s") -> list[str]:
    """What the agent answers."""
    message = types.Content(role="user", parts=[types.Part(text=text)])
    said: list[str] = []
    async for event in run.run_async(user_id="alice", session_id=session_id, new_message=message):
        said += [part.text for part in (event.content.parts if event.content else None) or [] if part.text]
    return said


async def main(url: str) -> None:
    async with LocusSessionService(url) as sessions:
        await say(runner(sessions, dies=True), "To Oslo")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
