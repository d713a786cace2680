"""A provider's real client against a local server: `python -m tests.versions.smoke.model openai`."""

from __future__ import annotations

import asyncio
import sys

from locus.core.messages import Message
from tests.models.server import ModelServer
from tests.models.wires import AnthropicWire, OllamaWire, OpenAIWire, Wire

WIRES: dict[str, type[Wire]] = {"openai": OpenAIWire, "anthropic": AnthropicWire, "ollama": OllamaWire}


async def check(name: str, server: ModelServer) -> None:
    wire = WIRES[name]()
    call = ("t1", "save_note", '{"content": "a"}')
    server.replies = [wire.answer("Hi 🌍"), wire.answer("", [call]), wire.stream(["Hel", "lo"], [call])]
    async with wire.model(server.url) as model:
        asked = [Message.user("Hello")]
        assert (await model.complete(asked)).message == Message.assistant("Hi 🌍")
        (made,) = (await model.complete(asked)).message.tool_calls
        assert (made.name, made.arguments) == ("save_note", {"content": "a"})
        chunks = [chunk async for chunk in model.stream(asked)]
    assert "".join(chunk.text for chunk in chunks[:-1]) == "Hello"
    assert chunks[-1].response is not None
    assert chunks[-1].response.message.content == "Hello"


if __name__ == "__main__":
    server = ModelServer()
    try:
        asyncio.run(check(sys.argv[1], server))
    finally:
        server.close()
