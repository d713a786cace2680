"""An agent and a workflow of the Microsoft Agent Framework on stores of ours: kept in a file, forked, taken back.

    python examples/agent_framework_history.py [PATH]

It runs offline: the model is a script that plays a travel clerk. With a chat client of the framework in its place
(`OpenAIChatClient()`), and a key, the rest stays as it is.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    Executor,
    FunctionInvocationLayer,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)

from locus.errors import ConflictError
from locus.integrations.agent_framework import LocusAgentSessionStore, LocusCheckpointStorage, LocusHistoryProvider
from locus.memory.backends import sqlite_checkpointer


class ScriptedClerk(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """Looks a fare up for the last city that it was told of."""

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_asked: Any
    ) -> Awaitable[ChatResponse]:
        async def respond() -> ChatResponse:
            last = messages[-1]
            if last.role == "tool":
                return ChatResponse(messages=[Message("assistant", [f"That is {last.contents[0].result}."])])
            told = [message.text for message in messages if message.role == "user"]
            asked = {"city": told[-1].rstrip(".?!").split()[-1], "travellers": len(told)}
            call = Content.from_function_call(f"call_{len(messages)}", "look_up_fare", arguments=asked)
            return ChatResponse(messages=[Message("assistant", [call])])

        return respond()


def look_up_fare(city: str, travellers: int) -> str:
    """The fare to a city."""
    return f"{len(city) * 10 * travellers} euros to {city} for {travellers}"


class Reserve(Executor):
    """The first step of a booking."""

    @handler
    async def reserve(self, city: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(f"seat reserved to {city}")


class Charge(Executor):
    """The second step. It fails as long as the bank is closed."""

    is_open = False

    @handler
    async def charge(self, reserved: str, ctx: WorkflowContext[Any, str]) -> None:
        if not Charge.is_open:
            raise ConnectionError("the bank is closed")
        await ctx.yield_output(f"{reserved}, and paid")


def booking(storage: LocusCheckpointStorage) -> Workflow:
    reserve, charge = Reserve(id="reserve"), Charge(id="charge")
    builder = WorkflowBuilder(name="booking", start_executor=reserve, checkpoint_storage=storage, output_from=[charge])
    return builder.add_edge(reserve, charge).build()


async def ask(agent: Agent[Any], session: AgentSession, text: str) -> None:
    print(f"{session.session_id}: {text}\n  -> {(await agent.run(text, session=session)).text}")


async def main(path: Path) -> None:
    async with sqlite_checkpointer(path) as store:
        history, sessions = LocusHistoryProvider(store), LocusAgentSessionStore(store)
        clerk = Agent(client=ScriptedClerk(), name="clerk", tools=[look_up_fare], context_providers=[history])
        alice = clerk.create_session(session_id="alice")
        await ask(clerk, alice, "A ticket to Oslo.")
        await ask(clerk, alice, "And one more to Rome.")

        print("\nWhat was, and when:")
        points = await history.history("alice")
        for point in reversed(points):
            print(f"  {point.checkpoint_id}: {point.items} messages after {point.change!r}")

        print("\nAnother line from the first answer on, and the same session taken back to it:")
        await history.fork("alice", "alice-another-plan", points[-1].checkpoint_id)
        await ask(clerk, clerk.create_session(session_id="alice-another-plan"), "And one more to Lisbon.")
        await history.rewind("alice", points[-1].checkpoint_id)
        await ask(clerk, alice, "And one more to Bern.")

        print("\nTwo requests that loaded the same session:")
        await sessions.set("alice", alice)
        one, two = await sessions.get("alice"), await sessions.get("alice")
        assert one is not None
        assert two is not None
        one.state["seat"], two.state["seat"] = "window", "aisle"
        await sessions.set("alice", one)
        try:
            await sessions.set("alice", two)
        except ConflictError:
            print("  the second one is refused, and the seat at the window stays")

        print("\nA workflow that fails, and goes on in another one:")
        storage = LocusCheckpointStorage(store, "booking-1")
        try:
            await booking(storage).run("Oslo")
        except ConnectionError as error:
            print(f"  {error}")
        Charge.is_open = True
        latest = await storage.get_latest(workflow_name="booking")
        assert latest is not None
        result = await booking(storage).run(checkpoint_id=latest.checkpoint_id)
        print(f"  {result.get_outputs()[0]}")

    async with LocusHistoryProvider(f"sqlite:{path}") as again:
        last = (await again.get_messages("alice", limit=1))[0]
        print(f"\nOpened again: {len(await again.get_messages('alice'))} messages, the last by the {last.role}")


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory(prefix="locus-") as folder:
            asyncio.run(main(Path(folder) / "agents.db"))
