"""The mock follows a conversation, calls tools, and replays scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from locus.core.messages import Message, ToolCall
from locus.errors import ConfigurationError
from locus.models import MockModel, Model, ModelError, ModelResponse, ModelUnavailableError, StreamingModel
from locus.tools import Tool, ToolRegistry, tool


class Chat:
    """A conversation with the mock in which its tool calls are carried out."""

    def __init__(
        self, tools: Sequence[Tool[..., Any] | Callable[..., Any]] = (), system: str = "You are a helpful assistant."
    ) -> None:
        self.model = MockModel(max_tokens=100)
        self.messages = [Message.system(system)]
        self.registry = ToolRegistry(tools)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.rounds = 0

    async def say(self, text: str) -> str:
        self.messages.append(Message.user(text))
        self.rounds = 0
        while True:
            response = await self.model.complete(self.messages, list(self.registry))
            self.messages.append(response.message)
            if not response.message.tool_calls:
                return response.message.text
            assert response.stop_reason == "tool_calls"
            self.rounds += 1
            assert self.rounds < 10
            for call in response.message.tool_calls:
                self.calls.append((call.name, dict(call.arguments)))
                self.messages.append(Message.tool(await self.registry.run(call)))


class Notes:
    def __init__(self) -> None:
        self.kept: list[str] = []

    def tools(self) -> list[Tool[..., Any]]:
        @tool
        def save_note(content: str) -> str:
            """Save a note for later reference."""
            self.kept.append(content)
            return f"Note saved: {content}"

        @tool
        def get_notes() -> str:
            """Get all saved notes."""
            return f"You have {len(self.kept)} note(s):\n" + "\n".join(f"- {note}" for note in self.kept)

        return [save_note, get_notes]


@pytest.mark.parametrize(
    ("told", "asked", "answer"),
    [
        ("My name is Alice.", "What's my name?", "Your name is Alice."),
        ("Hello, my name is Charlie.", "Who am I?", "Your name is Charlie."),
        ("Remember: The secret code is 42.", "What was the secret code?", "The secret code is 42."),
        ("I'm Alice and I like pizza.", "What's my favorite food?", "You like pizza."),
        ("I'm Bob and I like sushi.", "What is my name?", "Your name is Bob."),
        ("I work as a data scientist.", "What's my job?", "You work as a data scientist."),
        ("I live in Berlin. I'm 30 years old.", "Where do I live?", "You live in Berlin."),
        ("I live in Berlin. I'm 30 years old.", "How old am I?", "You are 30 years old."),
        (
            "My favourite colour is blue and my dog is Rex.",
            "What's my favorite color?",
            "Your favourite colour is blue.",
        ),
        ("The meeting is at 3.30 pm in room B.", "When is the meeting?", "The meeting is at 3.30 pm in room B."),
        ("My name is Alice.", "What's my favorite food?", "I don't know: nothing in this conversation says it."),
    ],
)
async def test_it_answers_from_what_it_was_told(told: str, asked: str, answer: str) -> None:
    chat = Chat()
    await chat.say(told)
    await chat.say("Thanks!")
    assert await chat.say(asked) == answer


async def test_the_latest_word_counts_and_conversations_are_apart() -> None:
    chat = Chat()
    await chat.say("The meeting is at 3 pm.")
    await chat.say("The meeting is at 5 pm.")
    assert await chat.say("When is the meeting?") == "The meeting is at 5 pm."
    assert "5 pm" not in await Chat().say("When is the meeting?")


async def test_it_knows_what_a_summary_says() -> None:
    chat = Chat(system="Summary of the earlier turns: The user's name is Eve. The user likes tea.")
    assert await chat.say("What is my name?") == "Your name is Eve."
    assert await chat.say("What do I like?") == "You like tea."


async def test_it_acknowledges_and_tells_all_it_knows() -> None:
    chat = Chat()
    assert "Alice" in await chat.say("My name is Alice.")
    await chat.say("I like pizza.")
    assert await chat.say("What do you know about me?") == "Your name is Alice. You like pizza."


async def test_notes_are_saved_and_read() -> None:
    notes = Notes()
    chat = Chat(notes.tools(), "You are a note-taking assistant.")
    assert await chat.say("Save a note: Buy groceries") == "Note saved: Buy groceries"
    assert await chat.say("What notes do I have?") == "You have 1 note(s):\n- Buy groceries"
    assert chat.calls == [("save_note", {"content": "Buy groceries"}), ("get_notes", {})]


async def test_several_calls_at_once_and_one_after_the_other() -> None:
    notes = Notes()
    chat = Chat(notes.tools())
    await chat.say("Save a note: one; save a note: two")
    assert (chat.rounds, notes.kept) == (1, ["one", "two"])
    answer = await chat.say("Save a note: three, then show me my notes")
    assert (chat.rounds, notes.kept) == (2, ["one", "two", "three"])
    assert answer.endswith("You have 3 note(s):\n- one\n- two\n- three")


async def test_a_standing_order_is_followed_when_a_fact_is_told() -> None:
    def record_fact(fact: str) -> str:
        """Persist a fact the user has shared so the agent can remember it."""
        return f"Recorded: {fact}"

    chat = Chat(
        [record_fact],
        "You are a helpful assistant. Whenever the user shares a fact about themselves (their name, job, hobbies, "
        "etc.), call record_fact exactly once with a short summary of that fact, then reply naturally.",
    )
    assert "Charlie" in await chat.say("Hello, my name is Charlie.")
    assert "data scientist" in await chat.say("I work as a data scientist.")
    assert chat.calls == [
        ("record_fact", {"fact": "The user's name is Charlie."}),
        ("record_fact", {"fact": "They work as a data scientist."}),
    ]
    assert await chat.say("What's my job?") == "You work as a data scientist."
    assert len(chat.calls) == 2


def get_weather(city: str) -> str:
    """Get the current weather for a city."""
    return f"Sunny in {city}"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def write_file(path: str, content: str) -> str:
    """Write a file."""
    return f"wrote {path}"


def search(query: str, limit: int = 5) -> list[str]:
    """Search the web."""
    return [query]


def set_mode(mode: str, tags: list[str], loud: bool) -> str:
    """Set the mode."""
    return mode


@pytest.mark.parametrize(
    ("request_text", "name", "arguments"),
    [
        ("What's the weather in Paris?", "get_weather", {"city": "Paris"}),
        ("Please add 2 and 3.", "add", {"a": 2, "b": 3}),
        ("Write 'hello' to notes.txt", "write_file", {"path": "notes.txt", "content": "hello"}),
        ("Search the web for python news", "search", {"query": "python news"}),
        ('search(query="abc", limit=3)', "search", {"query": "abc", "limit": 3}),
        ('Call write_file {"path": "a/b", "content": "x"}', "write_file", {"path": "a/b", "content": "x"}),
        ("use set_mode mode=fast tags=a loud=yes", "set_mode", {"mode": "fast", "tags": ["a"], "loud": True}),
    ],
)
async def test_arguments_are_found_in_the_request(request_text: str, name: str, arguments: dict[str, Any]) -> None:
    chat = Chat([get_weather, add, write_file, search, set_mode])
    await chat.say(request_text)
    assert chat.calls == [(name, arguments)]


async def test_a_missing_argument_is_asked_for() -> None:
    chat = Chat([get_weather])
    assert "city" in await chat.say("Call get_weather")
    assert chat.calls == []


@pytest.mark.parametrize(
    "text", ["Hello!", "What is 2 plus 3?", "Tell me a joke", "How are you?", "Delete it", "", "?"]
)
async def test_tools_are_left_alone_when_nothing_asks_for_them(text: str) -> None:
    chat = Chat([get_weather, search, write_file])
    assert await chat.say(text)
    assert chat.calls == []


async def test_a_failed_tool_is_admitted() -> None:
    def save_note(content: str) -> str:
        """Save a note."""
        raise OSError("disk full")

    assert "disk full" in await Chat([save_note]).say("Save a note: a")


async def test_the_same_conversation_gets_the_same_answer() -> None:
    tools = Notes().tools()
    asked = [Message.user("Save a note: a; save a note: b")]
    first = await MockModel().complete(asked, tools)
    assert await MockModel().complete(asked, tools) == first
    ids = [call.id for call in first.message.tool_calls]
    assert len(set(ids)) == 2


async def test_it_counts_tokens_and_streams() -> None:
    model = MockModel()
    assert isinstance(model, Model)
    assert isinstance(model, StreamingModel)
    short = await model.complete([Message.user("Hello")])
    longer = await model.complete([Message.user("Hello"), Message.assistant("x" * 400), Message.user("Hello")])
    assert longer.usage["prompt_tokens"] > short.usage["prompt_tokens"] + 90
    assert short.usage["total_tokens"] == short.usage["prompt_tokens"] + short.usage["completion_tokens"]
    chunks = [chunk async for chunk in model.stream([Message.user("Hello")])]
    assert len(chunks) > 3
    assert "".join(chunk.text for chunk in chunks) == short.message.text
    assert chunks[-1].response == short


async def test_without_a_user_it_says_hello() -> None:
    assert (await MockModel().complete([])).message.text


async def test_a_script_is_replayed_in_order() -> None:
    calling = Message.assistant(None, [ToolCall(name="x")])
    ready = ModelResponse(message=Message.assistant("ready"), usage={"prompt_tokens": 1}, stop_reason="length")

    async def later(messages: Sequence[Message], tools: Sequence[Any]) -> str:
        return f"{len(messages)} messages, {len(tools)} tools"

    model = MockModel(script=[calling, ready, ModelUnavailableError("busy"), KeyError, later, "text"])
    said = [Message.user("a")]
    assert (await model.complete(said)).stop_reason == "tool_calls"
    assert await model.complete(said) is ready
    with pytest.raises(ModelUnavailableError, match="busy"):
        await model.complete(said)
    with pytest.raises(KeyError):
        await model.complete(said)
    assert (await model.complete(said, [tool(add)])).message.text == "1 messages, 1 tools"
    assert (await model.complete(said, temperature=1)).message.text == "text"
    assert [call.options for call in model.calls][-1] == {"temperature": 1}
    with pytest.raises(ModelError, match="6 responses, and the mock was called 7 times"):
        await model.complete(said)


async def test_a_script_of_nonsense_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not 5"):
        MockModel(script=[5])  # type: ignore[list-item]
    with pytest.raises(ModelError, match="is a int"):
        await MockModel(script=[lambda _messages, _tools: 5]).complete([])
