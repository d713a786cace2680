"""A run of the OpenAI Agents SDK with our session: `python -m tests.versions.smoke.openai_agents FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from locus.integrations.openai_agents import LocusSession


class Echo(Model):
    async def get_response(self, *given: Any, **asked: Any) -> ModelResponse:
        text = ResponseOutputText(type="output_text", text=f"{len(asked['input'])} items", annotations=[])
        said = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **asked: Any) -> Any:
        raise NotImplementedError


async def check(folder: Path) -> None:
    agent, offline = Agent(name="clerk", model=Echo()), RunConfig(tracing_disabled=True)
    async with LocusSession("alice", f"sqlite:{folder / 'sessions.db'}") as session:
        await Runner.run(agent, "Hello", session=session, run_config=offline)
        result = await Runner.run(agent, "Again", session=session, run_config=offline)
        assert result.final_output == "3 items"
        assert len(await session.get_items()) == 4
        first = (await session.history())[-1]
        fork = await session.fork("bob", first.checkpoint_id)
        assert len(await fork.get_items()) < 4
        assert await session.pop_item() is not None
        await session.clear_session()
        assert await session.get_items() == []


if __name__ == "__main__":
    asyncio.run(check(Path(sys.argv[1])))
