"""An agent of each framework that pays an order by a tool, and a process with all of them, to be killed meanwhile."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any

from locus.effects import Effects, current_effect
from locus.testing.processes.effect_jobs import receive
from tests.integrations.agent_framework.models import Scripted, calls
from tests.integrations.strands.models import FakeModel

KEY = "charge/{order_id}"
Pay = Callable[[str, int], Coroutine[Any, Any, str]]
Turn = Callable[[Effects, Pay, str, dict[str, Any]], Coroutine[Any, Any, str]]
"""A turn in which the model has an order paid. It returns what the model says afterwards."""


async def langgraph(effects: Effects, pay: Pay, order: str, terms: dict[str, Any]) -> str:
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.tools import tool
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    from locus.integrations.effects.langgraph import effect_tool

    @tool
    async def charge(order_id: str, amount: int) -> str:
        """Pay an order."""
        return await pay(order_id, amount)

    def model(state: MessagesState) -> dict[str, Any]:
        call = {"name": "charge", "args": {"order_id": order, "amount": 5}, "id": "c1", "type": "tool_call"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([effect_tool(charge, effects, key=KEY, **terms)]))
    graph.add_edge(START, "model")
    graph.add_edge("model", "tools")
    graph.add_edge("tools", END)
    said = await graph.compile().ainvoke({"messages": [HumanMessage(f"pay {order}")]})
    return str(said["messages"][-1].content)


async def openai_agents(effects: Effects, pay: Pay, order: str, terms: dict[str, Any]) -> str:
    from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
    from agents.items import TResponseStreamEvent
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    from locus.integrations.effects.openai_agents import effect_tool

    @function_tool
    async def charge(order_id: str, amount: int) -> str:
        """Pay an order."""
        return await pay(order_id, amount)

    class Payer(Model):
        async def get_response(self, *_args: Any, **asked: Any) -> ModelResponse:
            last = asked["input"][-1]
            output: Any = ResponseFunctionToolCall(
                type="function_call", call_id="c1", name="charge", arguments=f'{{"order_id": "{order}", "amount": 5}}'
            )
            if last.get("type") == "function_call_output":
                text = ResponseOutputText(type="output_text", text=last["output"], annotations=[])
                output = ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        def stream_response(self, *_args: Any, **_asked: Any) -> AsyncIterator[TResponseStreamEvent]:
            raise NotImplementedError

    agent = Agent("payer", model=Payer(), tools=[effect_tool(charge, effects, key=KEY, **terms)])
    result = await Runner.run(agent, f"pay {order}", run_config=RunConfig(tracing_disabled=True))
    return str(result.final_output)


async def pydantic_ai(effects: Effects, pay: Pay, order: str, terms: dict[str, Any]) -> str:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.toolsets import FunctionToolset

    from locus.integrations.effects.pydantic_ai import effect_tools

    async def charge(order_id: str, amount: int) -> str:
        return await pay(order_id, amount)

    def model(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        if isinstance(last, ToolReturnPart):
            return ModelResponse([TextPart(str(last.content))])
        return ModelResponse([ToolCallPart("charge", {"order_id": order, "amount": 5})])

    tools = effect_tools(FunctionToolset([charge]), effects, key=KEY, **terms)
    return (await Agent(FunctionModel(model), toolsets=[tools]).run(f"pay {order}")).output


async def google_adk(effects: Effects, pay: Pay, order: str, terms: dict[str, Any]) -> str:
    from google.adk.agents.llm_agent import LlmAgent
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    from locus.integrations.effects.google_adk import effect_tool

    async def charge(order_id: str, amount: int) -> str:
        """Pay an order."""
        return await pay(order_id, amount)

    class Payer(BaseLlm):
        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            last = (llm_request.contents[-1].parts or [])[-1]
            part = types.Part(function_call=types.FunctionCall(name="charge", args={"order_id": order, "amount": 5}))
            if last.function_response is not None:
                part = types.Part(text=str((last.function_response.response or {})["result"]))
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    agent = LlmAgent(name="payer", model=Payer(model="payer"), tools=[effect_tool(charge, effects, key=KEY, **terms)])
    runner = InMemoryRunner(agent=agent, app_name="shop")
    session = await runner.session_service.create_session(app_name="shop", user_id="ada")
    message = types.Content(role="user", parts=[types.Part(text=f"pay {order}")])
    said: list[str] = []
    async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=message):
        said += [part.text for part in (event.content.parts if event.content else None) or [] if part.text]
    return said[-1]


async def strands(effects: Effects, pay: Pay, order: str, terms: dict[str, Any]) -> str:
    from strands import Agent, tool

    from locus.integrations.effects.strands import effect_tool

    @tool
    async def charge(order_id: str, amount: int) -> str:
        """Pay an order."""
        return await pay(order_id, amount)

    def model(messages: Any) -> Any:
        for block in messages[-1]["content"]:
            if "toolResult" in block:
                return block["toolResult"]["content"][0]["text"]
        return "charge", {"order_id": order, "amount": 5}

    agent = Agent(FakeModel(model), tools=[effect_tool(charge, effects, key=KEY, **terms)], callback_handler=None)
    return str(await agent.invoke_async(f"pay {order}")).strip()


async def agent_framework(effects: Effects, pay: Pay, order: str, terms: dict[str, Any]) -> str:
    from agent_framework import Agent

    from locus.integrations.effects.agent_framework import EffectMiddleware

    async def charge(order_id: str, amount: int) -> str:
        """Pay an order."""
        return await pay(order_id, amount)

    client = Scripted(calls("charge", order_id=order, amount=5))
    middleware = EffectMiddleware(effects, only=["charge"], key=KEY, **terms)
    agent = Agent(client=client, name="payer", tools=[charge], middleware=[middleware])
    return (await agent.run(f"pay {order}")).text


async def claude_agent_sdk(effects: Effects, pay: Pay, order: str, terms: dict[str, Any]) -> str:
    from claude_agent_sdk import create_sdk_mcp_server, tool
    from mcp import Client

    @tool("charge", "Pay an order.", {"order_id": str, "amount": int})
    @effects.keyed("charge/{args[order_id]}", load=_as_content, **terms)
    async def charge(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await pay(args["order_id"], args["amount"])}]}

    server = create_sdk_mcp_server("shop", tools=[charge])["instance"]
    async with Client(server) as client:
        result = await client.call_tool("charge", {"order_id": order, "amount": 5})
    return str(getattr(result.content[0], "text", ""))


def _as_content(kept: Any) -> dict[str, Any]:
    """What was recorded, or what the receiver has told, as the SDK wants it."""
    return kept if isinstance(kept, dict) else {"content": [{"type": "text", "text": str(kept)}]}


async def llmfy(effects: Effects, pay: Pay, order: str, terms: dict[str, Any]) -> str:
    from llmfy import Tool
    from llmfy.llmfy_core.model_backend import ModelBackend
    from llmfy.llmfy_core.tools.tool_registry import ToolRegistry

    @Tool()
    @effects.keyed(KEY, **terms)
    def charge(order_id: str, amount: int) -> str:
        """Pay an order."""
        return asyncio.run(pay(order_id, amount))

    class Model:
        backend = ModelBackend.OPENAI_CHAT

    registry = ToolRegistry([charge], Model())  # type: ignore[arg-type]
    return str(await asyncio.to_thread(registry.execute_tool, "charge", {"order_id": order, "amount": 5}))


FRAMEWORKS: dict[str, Turn] = {
    turn.__name__: turn
    for turn in (
        langgraph,
        openai_agents,
        pydantic_ai,
        google_adk,
        strands,
        agent_framework,
        claude_agent_sdk,
        llmfy,
    )
}
MODULES = {
    **{name: (f"locus.integrations.effects.{name}",) for name in FRAMEWORKS},
    "claude_agent_sdk": ("claude_agent_sdk", "mcp"),
    "llmfy": ("llmfy",),
}
"""What a process imports for a turn."""
CHOICES = ("raise", "retry", "ask the receiver")


def order_of(framework: str, choice: str) -> str:
    return f"{framework} {choice}"


async def main(url: str, receiver: str) -> None:
    """Pay an order for each framework and choice, and stop after the receiver has got it, to be killed."""
    arrived = threading.Semaphore(0)

    async def pay(order_id: str, amount: int) -> str:
        effect = current_effect()
        assert effect is not None
        receive(receiver, f"{effect.idempotency_key} {order_id}")
        arrived.release()
        await asyncio.Event().wait()
        raise AssertionError

    effects = Effects(url, lease_seconds=0.2)
    orders = [(turn, order_of(name, choice)) for name, turn in FRAMEWORKS.items() for choice in CHOICES]
    turns = [asyncio.create_task(turn(effects, pay, order, {})) for turn, order in orders]
    for _ in turns:
        while not arrived.acquire(blocking=False):
            if any(turn.done() for turn in turns):
                traceback.print_exception(next(turn.exception() for turn in turns if turn.done()))
                os._exit(1)  # other threads wait for ever
            await asyncio.sleep(0.01)
    sys.stdout.write("paid\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
