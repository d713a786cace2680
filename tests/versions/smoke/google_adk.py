"""A run of Google ADK with our services: `python -m tests.versions.smoke.google_adk FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.genai import types

from locus.integrations.google_adk import LocusArtifactService, LocusSessionService

ALICE: Any = {"app_name": "shop", "user_id": "alice"}


class Echo(BaseLlm):
    model: str = "echo"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        part = types.Part(text=f"{len(llm_request.contents)} contents")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def check(folder: Path) -> None:
    url = f"sqlite:{folder / 'sessions.db'}"
    async with LocusSessionService(url) as sessions, LocusArtifactService(url) as artifacts:
        runner = Runner(
            app_name="shop",
            agent=LlmAgent(name="clerk", model=Echo(), output_key="user:said"),
            session_service=sessions,
            artifact_service=artifacts,
        )
        await sessions.create_session(**ALICE, session_id="s")
        for text in ("Hello", "Again"):
            message = types.Content(role="user", parts=[types.Part(text=text)])
            async for _event in runner.run_async(user_id="alice", session_id="s", new_message=message):
                pass
        assert await sessions.get_user_state(**ALICE) == {"said": "3 contents"}
        first = (await sessions.history(**ALICE, session_id="s"))[2]
        fork = await sessions.fork_session(**ALICE, session_id="s", new_session_id="t", at=first.checkpoint_id)
        assert len(fork.events) == 2
        saved = {**ALICE, "session_id": "s", "filename": "a.txt"}
        assert await artifacts.save_artifact(**saved, artifact=types.Part(text="a")) == 0
        assert await artifacts.load_artifact(**saved) == types.Part(text="a")
        await sessions.delete_session(**ALICE, session_id="s")
        assert [one.id for one in (await sessions.list_sessions(**ALICE)).sessions] == ["t"]


if __name__ == "__main__":
    asyncio.run(check(Path(sys.argv[1])))
