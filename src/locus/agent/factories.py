"""Agents in one call: `create_agent`, and `create_deep_agent`, which plans, writes files and delegates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard, Unpack

from locus.agent.agent import Agent
from locus.agent.calls import current_call
from locus.agent.config import Settings, Store, Tools
from locus.agent.results import AgentResult
from locus.agent.workspace import Workspace
from locus.memory.checkpointer import Checkpointer
from locus.memory.conversation import AgentCheckpointer
from locus.memory.model.ids import MAX_ID_LENGTH, digest
from locus.models.base import Model
from locus.tools import Tool, tool

DEEP_PROMPT = (
    "Work through the request step by step. Write down a plan with write_todos before you begin, and keep it up "
    "to date. Keep longer texts in files (write_file, read_file, list_files)."
)


def create_agent(
    model: Model | str | None = None,
    *,
    tools: Tools = (),
    memory: Store | AgentCheckpointer | None = None,
    system_prompt: str | None = None,
    **settings: Unpack[Settings],
) -> Agent:
    """Make an agent that remembers.

    `memory` is a checkpointer, a storage backend, a URL, or any object with the two methods of `AgentCheckpointer`.
    `settings` are those of `AgentConfig`.
    """
    return Agent(model=model, tools=tools, memory=memory, system_prompt=system_prompt, **settings)


def create_deep_agent(
    model: Model | str | None = None,
    *,
    tools: Tools = (),
    memory: Store | AgentCheckpointer | None = None,
    system_prompt: str | None = None,
    subagents: Mapping[str, Agent] | None = None,
    **settings: Unpack[Settings],
) -> Agent:
    """Make an agent with a plan, a file workspace and sub-agents, all kept in the memory like the conversation.

    `subagents` maps names to agents; each call of the tool `task` gives one a thread of its own. A sub-agent without a
    memory gets the memory of this agent. A third-party store has no place for the workspace and the threads of
    sub-agents: there they live as long as this agent does.
    """
    plain = create_agent(model, memory=memory, checkpointer=settings.pop("checkpointer", None))
    memory_of_helpers = plain.checkpointer if _keeps_everything(plain.checkpointer) else None
    helpers = {
        name: Agent(agent.config, checkpointer=memory_of_helpers) if agent.checkpointer is None else agent
        for name, agent in (subagents or {}).items()
    }
    workspace = Workspace(memory_of_helpers.store if isinstance(memory_of_helpers, Checkpointer) else None)
    all_tools: list[Any] = [*tools, *workspace.tools(), *([_task(helpers)] if helpers else [])]
    prompt = f"{system_prompt}\n\n{DEEP_PROMPT}" if system_prompt else DEEP_PROMPT
    return create_agent(plain.model, tools=all_tools, memory=plain.checkpointer, system_prompt=prompt, **settings)


def _keeps_everything(memory: object) -> TypeGuard[Checkpointer]:
    """Whether a memory keeps namespaces and the records of single calls, as the checkpointers of Locus do."""
    return isinstance(memory, Checkpointer) and memory.store.keeps_writes


def sub_thread(thread_id: str, call_id: str) -> str:
    """The id of a sub-agent's thread. It depends only on the call, so that a restart finds that thread."""
    name = f"{thread_id}/{call_id}"
    return name if len(name) <= MAX_ID_LENGTH else f"{thread_id[:200]}/{digest(name)}"


def _task(agents: Mapping[str, Agent]) -> Tool[..., Any]:
    names = ", ".join(sorted(agents))

    @tool(
        # A call may be repeated only if the repetition continues the sub-agent's thread.
        idempotent=all(_keeps_everything(agent.checkpointer) for agent in agents.values()),
        description=f"Give a task to a sub-agent, and get its answer. Agents: {names}.",
        timeout=math.inf,  # a sub-agent has limits of its own
    )
    async def task(agent: str, prompt: str) -> str:
        chosen = agents.get(agent)
        if chosen is None:
            raise LookupError(f"there is no agent {agent!r}; there are: {names}")
        context = current_call.get()
        memory = chosen.checkpointer
        outer = context.thread_id if memory is not None else None
        thread_id = sub_thread(outer, context.call.id) if outer else None
        if isinstance(memory, Checkpointer) and thread_id is not None and await memory.exists(thread_id):
            # The worker that has the thread of the call has this one, too, even if an earlier worker's lease still
            # runs.
            successor = Agent(
                chosen.config, model=chosen.model, checkpointer=memory, memory=None, on_conflict="take_over"
            )
            return _told(await successor.resume_invoke(thread_id))
        return _told(await chosen.invoke(prompt, thread_id))

    return task


def _told(result: AgentResult) -> str:
    """The text of a sub-agent's result, for the agent that called it."""
    if result.interrupt is not None:
        calls = ", ".join(call.name for call in result.interrupt.calls)
        raise RuntimeError(f"it waits for a person's decision on {calls}, in the thread {result.thread_id!r}")
    return result.message or f"The sub-agent stopped without an answer: {result.stop_reason}."
