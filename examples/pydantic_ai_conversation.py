"""An agent of Pydantic AI on a conversation store of ours: kept in a file, answered anew, forked, taken back.

    python examples/pydantic_ai_conversation.py [PATH]

It runs offline: the model is a function that plays a travel clerk. With `Agent("openai:gpt-4.1")` in its place, and a
key, the rest stays as it is.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from locus.integrations.pydantic_ai import LocusConversationStore


def clerk(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Looks a fare up for the last city that it was told of."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    if isinstance(parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart(content=f"That is {parts[-1].content}.")])
    told = [str(part.content) for part in parts if isinstance(part, UserPromptPart)]
    city = told[-1].rstrip(".?!").split()[-1]
    return ModelResponse(parts=[ToolCallPart("look_up_fare", {"city": city, "travellers": len(told)})])


CLERK = Agent(FunctionModel(clerk))


@CLERK.tool_plain
def look_up_fare(city: str, travellers: int) -> str:
    """The fare to a city."""
    return f"{len(city) * 10 * travellers} euros to {city} for {travellers}"


async def ask(store: LocusConversationStore, conversation: Conversation, text: str) -> None:
    result = await CLERK.run(text, conversation=conversation)
    await store.save(result)
    print(f"{conversation.conversation_id}: {text}\n  -> {result.output}")


async def opened(store: LocusConversationStore, conversation_id: str) -> Conversation:
    return await store.load(conversation_id) or Conversation(conversation_id=conversation_id)


async def main(path: Path) -> None:
    async with LocusConversationStore(f"sqlite:{path}") as store:
        await ask(store, await opened(store, "alice"), "A ticket to Oslo.")
        after_oslo = (await store.history("alice"))[0]
        await ask(store, await opened(store, "alice"), "And one more to Rome.")

        print("\nWhat was, and when:")
        for point in reversed(await store.history("alice")):
            print(f"  {point.checkpoint_id}: {point.messages} messages")

        print("\nAnother line from the first answer on:")
        other = await store.fork_at("alice", after_oslo.checkpoint_id, new_conversation_id="alice-another-plan")
        await ask(store, other, "And one more to Lisbon.")

        print("\nBack to the first answer, in the same conversation:")
        await ask(store, await store.rewind("alice", after_oslo.checkpoint_id), "And one more to Bern.")

        print("\nTwo answers to one revision:")
        both = [await opened(store, "alice") for _ in range(2)]
        await ask(store, both[0], "And one more to Kiel.")
        try:
            await ask(store, both[1], "And one more to Graz.")
        except ConversationConflict:
            print("  the second one is refused, and nothing of it is stored")
    async with LocusConversationStore(f"sqlite:{path}") as again:
        window = await again.load("alice", limit=2)
        record = await again.read_record("alice")
        assert window is not None
        assert record is not None
        print(f"\nOpened again: the last {len(window.messages)} messages, and {len(record.branches)} branch left")


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory(prefix="locus-") as folder:
            asyncio.run(main(Path(folder) / "agents.db"))
