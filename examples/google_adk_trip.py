"""An agent of Google ADK on sessions and artifacts of ours: kept in a file, forked, taken back.

    python examples/google_adk_trip.py [PATH]

It runs offline: the model is a script that plays a travel clerk. With `LlmAgent(model="gemini-2.5-flash")` in its
place, and a key, the rest stays as it is.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from locus.integrations.google_adk import LocusArtifactService, LocusSessionService
from locus.memory.backends import sqlite_checkpointer

ALICE: Any = {"app_name": "trips", "user_id": "alice"}


class ScriptedClerk(BaseLlm):
    """Looks a fare up for the last city that it was told of."""

    model: str = "scripted"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = (llm_request.contents[-1].parts or [])[-1]
        if last.function_response is not None:
            part = types.Part(text=f"That is {(last.function_response.response or {})['fare']}.")
        else:
            city = (last.text or "").rstrip(".?!").split()[-1]
            part = types.Part(function_call=types.FunctionCall(name="look_up_fare", args={"city": city}))
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=1, candidates_token_count=1)
        yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=usage)


async def look_up_fare(city: str, tool_context: ToolContext) -> dict[str, str]:
    """The fare to a city."""
    cities = [*tool_context.state.get("cities", []), city]
    tool_context.state["cities"] = cities  # of this session
    tool_context.state["user:asked"] = tool_context.state.get("user:asked", 0) + 1  # of all sessions of the user
    plan = types.Part(inline_data=types.Blob(mime_type="text/plain", data=", ".join(cities).encode()))
    await tool_context.save_artifact("plan.txt", plan)
    return {"fare": f"{sum(map(len, cities)) * 10} euros for {' and '.join(cities)}"}


async def ask(runner: Runner, session_id: str, text: str) -> None:
    message = types.Content(role="user", parts=[types.Part(text=text)])
    async for event in runner.run_async(user_id="alice", session_id=session_id, new_message=message):
        if event.is_final_response() and event.content and event.content.parts:
            print(f"{session_id}: {text}\n  -> {event.content.parts[0].text}")


async def main(path: Path) -> None:
    async with sqlite_checkpointer(path) as store:
        sessions, artifacts = LocusSessionService(store), LocusArtifactService(store)
        agent = LlmAgent(name="clerk", model=ScriptedClerk(), tools=[look_up_fare])
        runner = Runner(app_name="trips", agent=agent, session_service=sessions, artifact_service=artifacts)

        await sessions.create_session(**ALICE, session_id="summer")
        await ask(runner, "summer", "A ticket to Oslo.")
        after_oslo = (await sessions.history(**ALICE, session_id="summer", limit=1))[0]
        await ask(runner, "summer", "And one to Rome.")

        print("\nWhat was, and when:")
        for point in reversed(await sessions.history(**ALICE, session_id="summer", limit=None)):
            print(f"  {point.checkpoint_id}: {point.items} events after {point.change!r}")

        print("\nAnother line from the first answer on:")
        await sessions.fork_session(**ALICE, session_id="summer", new_session_id="autumn", at=after_oslo.checkpoint_id)
        await ask(runner, "autumn", "And one to Lisbon.")

        print("\nBack to the first answer, in the same session:")
        await sessions.rewind_session(**ALICE, session_id="summer", at=after_oslo.checkpoint_id)
        await ask(runner, "summer", "And one to Bern.")

        versions = await artifacts.list_versions(**ALICE, session_id="summer", filename="plan.txt")
        plan = await artifacts.load_artifact(**ALICE, session_id="summer", filename="plan.txt")
        assert plan is not None
        assert plan.inline_data is not None
        assert plan.inline_data.data is not None
        print(f"\nThe plan has {len(versions)} versions; the newest: {plan.inline_data.data.decode()}")
    async with LocusSessionService(f"sqlite:{path}") as again:
        summer = await again.get_session(**ALICE, session_id="summer")
        assert summer is not None
        print(f"Opened again: {len(summer.events)} events, {summer.state['user:asked']} questions of alice in all")


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory(prefix="locus-") as folder:
            asyncio.run(main(Path(folder) / "agents.db"))
