"""A run of Pydantic AI with our conversation store: `python -m tests.versions.smoke.pydantic_ai FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from locus.integrations.pydantic_ai import LocusConversationStore


def echo(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(content=f"{len(messages)} messages")])


async def check(folder: Path) -> None:
    agent = Agent(FunctionModel(echo))
    async with LocusConversationStore(f"sqlite:{folder / 'conversations.db'}") as store:
        for text, answer in (("Hello", "1 messages"), ("Again", "3 messages")):
            conversation = await store.load("alice") or Conversation(conversation_id="alice")
            result = await agent.run(text, conversation=conversation)
            assert result.output == answer
            entries = await store.save(result)
        assert await store.read_entry(entries[0].id) == entries[0]
        first = (await store.history("alice"))[-1]
        fork = await store.fork_at("alice", first.checkpoint_id, new_conversation_id="bob")
        assert len(fork.messages) == 2
        assert [record.conversation_id for record in await store.list_conversations()] == ["bob", "alice"]
        await store.delete("alice")
        assert await store.load("alice") is None


if __name__ == "__main__":
    asyncio.run(check(Path(sys.argv[1])))
