"""A deep agent: it plans, writes files and delegates, and all of that is kept with the conversation.

    python examples/deep_agent.py

With a real model (`LOCUS_MODEL_PROVIDER`, see `config.py`) it decides itself what to do. The mock cannot plan, so
for it the answers are given below; what the tools do with them is real.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from config import chosen_model, get_model, print_config  # type: ignore[import-not-found] # it lies beside this file

from locus.agent import Agent, create_deep_agent
from locus.core.events import Event, ToolCompleteEvent
from locus.core.messages import Message, ToolCall
from locus.memory.backends import SQLiteBackend
from locus.models import MockModel
from locus.tools import tool

REQUEST = "How long is the coast of Finland? Write a short report."


@tool(idempotent=True)
def look_up(subject: str) -> str:
    """Look something up in the atlas."""
    return f"{subject}: the coast is 1,250 km long; with the islands, 39,125 km."


def asks(name: str, **arguments: Any) -> Message:
    return Message.assistant(None, [ToolCall(name=name, arguments=arguments)])


def report(messages: Sequence[Message], _tools: object) -> Message:
    """The report, made of what the sub-agent said."""
    return asks("write_file", path="report.md", content=f"# The coast of Finland\n\n{messages[-1].text}\n")


PLAN = ["ask the researcher", "write report.md"]
ANSWERS: list[Any] = [
    asks("write_todos", todos=[{"content": PLAN[0], "status": "in_progress"}, {"content": PLAN[1]}]),
    asks("task", agent="researcher", prompt="Find out how long the coast of Finland is."),
    report,
    asks("write_todos", todos=[{"content": step, "status": "completed"} for step in PLAN]),
    "The report is in report.md.",
]
FINDINGS: list[Any] = [asks("look_up", subject="Finland"), lambda messages, _tools: messages[-1].text]


def model_for(answers: list[Any]) -> Any:
    return MockModel(script=answers) if chosen_model().provider == "mock" else get_model()


def deep_agent(backend: SQLiteBackend, answers: list[Any]) -> Agent:
    researcher = Agent(model=model_for(FINDINGS), tools=[look_up], system_prompt="You are a researcher.")
    return create_deep_agent(
        model_for(answers),
        memory=backend,
        system_prompt="You write reports. Let the researcher find out what you need to know.",
        subagents={"researcher": researcher},
    )


def listen(event: Event) -> None:
    if isinstance(event, ToolCompleteEvent):
        print(f"  {event.call.name}: {event.result.content or event.result.error}")


def main(path: Path) -> None:
    print_config()
    backend = SQLiteBackend(path)
    print(f"\nUser: {REQUEST}")
    result = deep_agent(backend, ANSWERS).run_sync(REQUEST, thread_id="report", on_event=listen)
    print(f"Agent: {result.message}")

    print("\nAnother agent, on the same file, finds the plan and the report:")
    again = [asks("read_todos"), asks("read_file", path="report.md"), "There they are."]
    deep_agent(backend, again).run_sync("What have you got?", thread_id="report", on_event=listen)

    print("\nThe threads, and how the workspace became what it is:")
    print(f"  {', '.join(backend.sync.list_threads())}")
    for entry in reversed(backend.sync.history("report", namespace="workspace")):
        workspace = backend.sync.load("report", entry.checkpoint_id, namespace="workspace") or {}
        done = sum(todo["status"] == "completed" for todo in workspace["todos"])
        print(
            f"  {entry.seq}. {done} of {len(workspace['todos'])} steps done, files: {list(workspace.get('files', ()))}"
        )


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="locus-") as folder:
            main(Path(folder) / "agents.db")
