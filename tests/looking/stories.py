"""The same conversation with an agent of each framework, in a store: `python -m tests.looking.stories PATH`.

A customer asks twice what a jacket costs. The agent looks it up, and the second time the price is wrong. The models are
scripts; the agents, runners and graphs that call them are the frameworks' own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

from a2a.types import Message as A2AMessage
from a2a.types import Part, Role, Task, TaskState, TaskStatus
from agent_framework import Agent as FrameworkAgent
from agent_framework import Content as FrameworkContent
from agent_framework import Message as FrameworkMessage
from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner as ADKRunner
from google.adk.tools.function_tool import FunctionTool
from google.genai import types
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import interrupt
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelRequest, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.messages import ModelResponse as PydanticResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from strands import Agent as StrandsAgent
from strands import tool as strands_tool
from strands.session import RepositorySessionManager

from locus.integrations.a2a import LocusTaskStore
from locus.integrations.agent_framework import LocusHistoryProvider
from locus.integrations.claude_agent_sdk import LocusSessionStore
from locus.integrations.google_adk import LocusSessionService
from locus.integrations.langgraph import LocusSaver
from locus.integrations.llmfy import LlmfyCheckpointer
from locus.integrations.llmfy.in_memory import Checkpoint, CheckpointMetadata
from locus.integrations.openai_agents import LocusSession
from locus.integrations.pydantic_ai import LocusConversationStore
from locus.integrations.strands import LocusSessionRepository
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.threads import ThreadStore
from tests.integrations.a2a.agents import call_by
from tests.integrations.agent_framework.models import Scripted
from tests.integrations.strands.models import FakeModel

QUESTIONS: Final = ("How much is the Peak jacket?", "And how much did I pay?")
PRICES: Final = ("89.90", "8.99")


def said(last_is_result: bool, result: str) -> tuple[str, str] | str:
    """What the model says: a call of `get_price`, or the answer, once the result is there."""
    return f"The Peak jacket costs {result}." if last_is_result else ("get_price", "Peak")


class Prices:
    """The tool: the price is right at first, and wrong after that."""

    def __init__(self) -> None:
        self._left = list(PRICES)

    def __call__(self, product: str) -> str:
        """The price of a product."""
        return self._left.pop(0)


async def tell_agent(store: Checkpointer, *, asks: bool = False) -> None:
    from locus.agent import Agent as LocusAgent
    from locus.agent import HumanInTheLoop
    from locus.core.messages import Message, ToolCall
    from locus.models import MockModel
    from locus.tools import tool

    prices = Prices()

    @tool
    def get_price(product: str) -> str:
        """The price of a product."""
        return prices(product)

    def answer(messages: Any, _tools: Any) -> Message:
        last = messages[-1]
        reply = said(last.role == "tool", last.text)
        if isinstance(reply, str):
            return Message.assistant(reply)
        return Message.assistant("I look.", [ToolCall(name=reply[0], arguments={"product": reply[1]})])

    agent = LocusAgent(
        model=MockModel(script=[answer] * 8),
        tools=[get_price],
        system_prompt="You sell jackets.",
        checkpointer=store,
        middleware=[HumanInTheLoop(["get_price"])] if asks else [],
    )
    for question in QUESTIONS[: 1 if asks else 2]:
        await agent.invoke(question, thread_id="agent-waiting" if asks else "agent")


def _graph(prices: Prices, schema: Any = MessagesState, *, asks: bool = False) -> StateGraph[Any]:
    def model(state: Any) -> dict[str, Any]:
        last = state["messages"][-1]
        reply = said(isinstance(last, ToolMessage), str(last.content))
        facts: dict[str, Any] = {
            "response_metadata": {"model_name": "gpt-x"},
            "usage_metadata": {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120},
        }
        if isinstance(reply, str):
            return {"messages": [AIMessage(reply, **facts)]}
        call = {"name": reply[0], "args": {"product": reply[1]}, "id": f"call_{len(state['messages'])}"}
        return {"messages": [AIMessage("", tool_calls=[call], **facts)]}

    def tools(state: Any) -> dict[str, Any]:
        (call,) = state["messages"][-1].tool_calls
        if asks:
            interrupt({"question": "May I look the price up?"})
        return {"messages": [ToolMessage(prices(**call["args"]), tool_call_id=call["id"], name=call["name"])]}

    def where(state: Any) -> str:
        return "tools" if state["messages"][-1].tool_calls else END

    graph = StateGraph(schema).add_node("model", model).add_node("tools", tools).add_edge(START, "model")
    return graph.add_conditional_edges("model", where, ["tools", END]).add_edge("tools", "model")


async def tell_langgraph(store: Checkpointer, *, asks: bool = False) -> None:
    graph = _graph(Prices(), asks=asks).compile(checkpointer=LocusSaver(store))
    config: Any = {"configurable": {"thread_id": "langgraph-waiting" if asks else "langgraph"}}
    for question in QUESTIONS[: 1 if asks else 2]:
        await graph.ainvoke({"messages": [HumanMessage(question)]}, config)


class Deltas(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=100)]


async def tell_langgraph_deltas(store: Checkpointer) -> None:
    graph = _graph(Prices(), Deltas).compile(checkpointer=LocusSaver(store))
    config: Any = {"configurable": {"thread_id": "langgraph-deltas"}}
    for question in QUESTIONS:
        await graph.ainvoke({"messages": [HumanMessage(question)]}, config)


class OpenAIModel(Model):
    async def get_response(self, *_args: Any, **asked: Any) -> ModelResponse:
        items = asked["input"]
        last = items[-1]
        reply = said(last.get("type") == "function_call_output", str(last.get("output")))
        output: Any
        if isinstance(reply, str):
            text = ResponseOutputText(type="output_text", text=reply, annotations=[])
            output = ResponseOutputMessage(
                id=f"msg_{len(items)}", type="message", role="assistant", status="completed", content=[text]
            )
        else:
            output = ResponseFunctionToolCall(
                type="function_call",
                call_id=f"call_{len(items)}",
                name=reply[0],
                arguments=f'{{"product": "{reply[1]}"}}',
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_args: Any, **_asked: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def tell_openai(store: Checkpointer, *, asks: bool = False) -> None:
    prices = Prices()

    @function_tool(needs_approval=asks)
    def get_price(product: str) -> str:
        """The price of a product."""
        return prices(product)

    agent = Agent(name="clerk", model=OpenAIModel(), tools=[get_price])
    session = LocusSession("openai-waiting" if asks else "openai", store)
    for question in QUESTIONS[: 1 if asks else 2]:
        await Runner.run(agent, question, session=session, run_config=RunConfig(tracing_disabled=True))


async def tell_pydantic(store: Checkpointer) -> None:
    prices = Prices()

    def clerk(messages: list[ModelMessage], _info: AgentInfo) -> PydanticResponse:
        last = messages[-1]
        assert isinstance(last, ModelRequest)
        results = [part for part in last.parts if isinstance(part, ToolReturnPart)]
        reply = said(bool(results), str(results[0].content) if results else "")
        if isinstance(reply, str):
            return PydanticResponse(parts=[TextPart(content=reply)])
        call = ToolCallPart(tool_name=reply[0], args={"product": reply[1]}, tool_call_id=f"call_{len(messages)}")
        return PydanticResponse(parts=[call])

    agent = PydanticAgent(FunctionModel(clerk))

    @agent.tool_plain
    def get_price(product: str) -> str:
        """The price of a product."""
        return prices(product)

    async with LocusConversationStore(store) as conversations:
        for question in QUESTIONS:
            conversation = await conversations.load("pydantic-ai") or Conversation(conversation_id="pydantic-ai")
            await conversations.save(await agent.run(question, conversation=conversation))


class ADKModel(BaseLlm):
    model: str = "clerk"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = (llm_request.contents[-1].parts or [])[-1]
        result = last.function_response
        reply = said(result is not None, str((result.response or {}).get("result")) if result else "")
        if isinstance(reply, str):
            part = types.Part(text=reply)
        else:
            part = types.Part(function_call=types.FunctionCall(name=reply[0], args={"product": reply[1]}))
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=100, candidates_token_count=20, total_token_count=120
        )
        yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=usage)


async def tell_adk(store: Checkpointer, *, asks: bool = False) -> None:
    prices = Prices()

    def get_price(product: str) -> str:
        """The price of a product."""
        return prices(product)

    service = LocusSessionService(store)
    agent = LlmAgent(name="clerk", model=ADKModel(), tools=[FunctionTool(get_price, require_confirmation=asks)])
    runner = ADKRunner(app_name="shop", agent=agent, session_service=service)
    session_id = "adk-waiting" if asks else "adk"
    await service.create_session(app_name="shop", user_id="alice", session_id=session_id)
    for question in QUESTIONS[: 1 if asks else 2]:
        message = types.Content(role="user", parts=[types.Part(text=question)])
        async for _event in runner.run_async(user_id="alice", session_id=session_id, new_message=message):
            pass


def tell_strands(store: Checkpointer) -> None:
    prices = Prices()

    def answer(messages: Any) -> Any:
        block = messages[-1]["content"][-1]
        result = block.get("toolResult")
        reply = said(result is not None, result["content"][0]["text"] if result else "")
        return reply if isinstance(reply, str) else (reply[0], {"product": reply[1]})

    @strands_tool
    def get_price(product: str) -> str:
        """The price of a product."""
        return prices(product)

    manager = RepositorySessionManager("strands", LocusSessionRepository(store))
    agent = StrandsAgent(model=FakeModel(answer), tools=[get_price], session_manager=manager, callback_handler=None)
    for question in QUESTIONS:
        agent(question)


async def tell_agent_framework(store: Checkpointer) -> None:
    prices = Prices()

    def get_price(product: str) -> str:
        """The price of a product."""
        return prices(product)

    def answer(messages: Any) -> FrameworkMessage:
        last = messages[-1]
        reply = said(last.role == "tool", str(last.contents[0].result) if last.role == "tool" else "")
        if isinstance(reply, str):
            return FrameworkMessage("assistant", [reply])
        call = FrameworkContent.from_function_call(f"call_{len(messages)}", reply[0], arguments={"product": reply[1]})
        return FrameworkMessage("assistant", [call])

    history = LocusHistoryProvider(store)
    agent: Any = FrameworkAgent(client=Scripted(answer), name="clerk", context_providers=[history], tools=[get_price])
    session = agent.create_session(session_id="agent-framework")
    for question in QUESTIONS:
        await agent.run(question, session=session)


async def tell_claude(store: Checkpointer) -> None:
    """As Claude Code writes its transcripts: it is a program of its own, and needs an account."""
    sessions = LocusSessionStore(store)
    number = 0
    for question, price in zip(QUESTIONS, PRICES, strict=True):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "get_price", "input": {"product": "Peak"}}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": price}]}
        model = {"model": "claude-x", "usage": {"input_tokens": 100, "output_tokens": 20}}
        for kind, message in (
            ("user", {"role": "user", "content": question}),
            ("assistant", {"role": "assistant", "content": [call], **model}),
            ("user", {"role": "user", "content": [result]}),
            ("assistant", {"role": "assistant", "content": [{"type": "text", "text": said(True, price)}], **model}),
        ):
            moment = f"2026-01-01T00:00:{number:02}Z"
            entry: Any = {"type": kind, "uuid": f"u{number}", "timestamp": moment, "message": message}
            await sessions.append({"project_key": "p", "session_id": "claude"}, [entry])
            number += 1


async def tell_llmfy(store: Checkpointer) -> None:
    from datetime import UTC, datetime

    flows = LlmfyCheckpointer(store)
    messages: list[dict[str, Any]] = []
    for question, price in zip(QUESTIONS, PRICES, strict=True):
        call = {"request_call_id": f"r{len(messages)}", "tool_call_id": "t", "name": "get_price"}
        for message in (
            {"role": "user", "content": question},
            {"role": "assistant", "content": None, "tool_calls": [{**call, "arguments": {"product": "Peak"}}]},
            {"role": "tool", "content": price, "tool_call_id": "t", "name": "get_price", "tool_results": [price]},
            {"role": "assistant", "content": said(True, price)},
        ):
            messages.append({"id": f"m{len(messages)}", **message})
            number = len(messages)
            about = CheckpointMetadata(
                f"c{number}", "llmfy", "run", datetime.now(UTC), "node", "__start__", number, ["messages"], 1, None
            )
            await flows.save(Checkpoint(metadata=about, state={"messages": list(messages)}))


async def tell_a2a(store: Checkpointer) -> None:
    """What an agent says to another one: tools are its own affair, and no part of a task."""
    tasks = LocusTaskStore(store)
    task = Task(id="a2a", context_id="talk")
    for number, (question, price) in enumerate(zip(QUESTIONS, PRICES, strict=True)):
        for role, text, state in (
            (Role.ROLE_USER, question, TaskState.TASK_STATE_WORKING),
            (Role.ROLE_AGENT, said(True, price), TaskState.TASK_STATE_COMPLETED),
        ):
            message = A2AMessage(message_id=f"{number}-{role}", role=role, parts=[Part(text=str(text))])
            task.history.append(message)
            task.status.CopyFrom(TaskStatus(state=state))
            await tasks.save(task, call_by("alice"))


async def tell_crewai(store: Checkpointer) -> None:
    """As its flows save: CrewAI has an environment of its own, because it needs another version of openai."""
    flow = ThreadStore.open(store, {}, owner="tell_crewai", own=[]).document("crewai", "crewai")
    messages: list[dict[str, Any]] = []
    for question, price in zip(QUESTIONS, PRICES, strict=True):
        call = {"id": f"call_{len(messages)}", "type": "function"}
        call |= {"function": {"name": "get_price", "arguments": '{"product": "Peak"}'}}  # type: ignore[dict-item]
        for method, message in (
            ("ask", {"role": "user", "content": question}),
            ("look_up", {"role": "assistant", "content": None, "tool_calls": [call]}),
            ("look_up", {"role": "tool", "content": price, "tool_call_id": call["id"]}),
            ("answer", {"role": "assistant", "content": said(True, price)}),
        ):
            messages = [*messages, message]
            await flow.save({"id": "crewai", "messages": messages}, metadata={"method": method})


STORIES: Final[Mapping[str, Callable[[Checkpointer], Awaitable[None]]]] = {
    "agent": tell_agent,
    "langgraph": tell_langgraph,
    "langgraph-deltas": tell_langgraph_deltas,
    "openai": tell_openai,
    "pydantic-ai": tell_pydantic,
    "shop/alice/adk": tell_adk,
    "strands": lambda store: asyncio.to_thread(tell_strands, store),
    "agent-framework": tell_agent_framework,
    "p/claude": tell_claude,
    "llmfy": tell_llmfy,
    "alice/a2a": tell_a2a,
    "crewai": tell_crewai,
}
"""The conversations, by their threads."""

WITHOUT_TOOLS: Final = frozenset({"alice/a2a"})
"""The conversations that have no calls in them."""

WAITING: Final[Mapping[str, Callable[[Checkpointer], Awaitable[None]]]] = {
    "agent-waiting": lambda store: tell_agent(store, asks=True),
    "langgraph-waiting": lambda store: tell_langgraph(store, asks=True),
    "openai-waiting": lambda store: tell_openai(store, asks=True),
    "shop/alice/adk-waiting": lambda store: tell_adk(store, asks=True),
}
"""Conversations that wait for a person to allow a call."""


async def tell_all(path: Path) -> None:
    """Write every conversation into a store in a file."""
    async with sqlite_checkpointer(path) as store:
        for tell in [*STORIES.values(), *WAITING.values()]:
            await tell(store)


if __name__ == "__main__":
    asyncio.run(tell_all(Path(sys.argv[1])))
