"""An agent of the OpenAI Agents SDK on a session of ours: kept in a file, forked, taken back.

    python examples/openai_agents_session.py [PATH]

It runs offline: the model is a script that plays a travel clerk. With `Agent(model="gpt-4.1")` in its place, and a key,
the rest stays as it is.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from agents.items import TResponseStreamEvent
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from locus.integrations.openai_agents import LocusSession
from locus.memory.backends import sqlite_checkpointer


class ScriptedClerk(Model):
    """Looks a fare up for the last city that it was told of."""

    async def get_response(self, *_args: Any, **asked: Any) -> ModelResponse:
        items = asked["input"]
        output: Any
        if items[-1].get("type") == "function_call_output":
            output = _said(f"That is {items[-1]['output']}.")
        else:
            told = [item["content"] for item in items if item.get("role") == "user"]
            city = told[-1].rstrip(".?!").split()[-1]
            output = ResponseFunctionToolCall(
                type="function_call",
                call_id=f"call_{uuid4().hex[:8]}",
                name="look_up_fare",
                arguments=f'{{"city": "{city}", "travellers": {len(told)}}}',
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_args: Any, **_asked: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError("this example does not stream")


def _said(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id=f"msg_{uuid4().hex[:8]}", type="message", role="assistant", status="completed", content=[content]
    )


@function_tool
def look_up_fare(city: str, travellers: int) -> str:
    """The fare to a city."""
    return f"{len(city) * 10 * travellers} euros to {city} for {travellers}"


CLERK = Agent(name="clerk", model=ScriptedClerk(), tools=[look_up_fare])


async def ask(session: LocusSession, text: str) -> None:
    result = await Runner.run(CLERK, text, session=session, run_config=RunConfig(tracing_disabled=True))
    print(f"{session.session_id}: {text}\n  -> {result.final_output}")


async def main(path: Path) -> None:
    async with sqlite_checkpointer(path) as store:
        alice = LocusSession("alice", store)
        await ask(alice, "A ticket to Oslo.")
        after_oslo = (await alice.history(1))[0]
        await ask(alice, "And one more to Rome.")

        print("\nWhat was, and when:")
        for point in reversed(await alice.history(None)):
            print(f"  {point.checkpoint_id}: {point.items} items after {point.change!r}")

        print("\nAnother line from the first answer on:")
        other = await alice.fork("alice-another-plan", after_oslo.checkpoint_id)
        await ask(other, "And one more to Lisbon.")

        print("\nBack to the first answer, in the same session:")
        await alice.rewind(after_oslo.checkpoint_id)
        await ask(alice, "And one more to Bern.")

        print("\nFour batches of two, added at once:")
        await asyncio.gather(*(LocusSession("notes", store).add_items([_note(n), _note(n)]) for n in range(4)))
        print(f"  {len(await LocusSession('notes', store).get_items())} items are there")
    async with LocusSession("alice", f"sqlite:{path}") as again:
        (last,) = await again.get_items(1)
        print(f"\nOpened again: {len(await again.get_items())} items, the last by the {last['role']}")  # type: ignore[typeddict-item]


def _note(number: int) -> Any:
    return {"role": "user", "content": f"Note {number}"}


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory(prefix="locus-") as folder:
            asyncio.run(main(Path(folder) / "agents.db"))
