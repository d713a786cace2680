"""What an agent remembers, in an SQLite file: the five parts of `notebook_16_agent_memory.py`, with nothing to set up.

    python examples/agent_memory_sqlite.py              # in a temporary folder, removed at the end
    python examples/agent_memory_sqlite.py agents.db    # in a file that stays: run it twice

The model is the one that `config.py` finds, else the mock, which needs neither a key nor a network.
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from config import get_model, print_config  # type: ignore[import-not-found] # it lies beside this file

from locus.agent import Agent
from locus.memory.backends import sqlite_checkpointer
from locus.tools import tool


def conversation_memory(path: Path) -> None:
    """Two turns with one thread_id: the second knows what the first was about."""
    print("=== Part 1: a conversation of two turns ===\n")
    agent = Agent(
        model=get_model(max_tokens=100),
        system_prompt="You are a helpful assistant. Remember what the user tells you.",
        checkpointer=sqlite_checkpointer(path),
    )
    for text in ("My name is Alice.", "What's my name?"):
        print(f"User:  {text}")
        print(f"Agent: {agent.run_sync(text, thread_id='conversation').message}\n")


def checkpoints_with_tools(path: Path) -> None:
    """Every step is kept: the message, the calls before they are made, each result, and the answer."""
    print("=== Part 2: a checkpoint for each step ===\n")
    notes: list[str] = []

    @tool
    def save_note(content: str) -> str:
        """Save a note for later reference."""
        notes.append(content)
        return f"Note saved: {content}"

    @tool
    def get_notes() -> str:
        """Get all saved notes."""
        return f"You have {len(notes)} note(s): {', '.join(notes)}"

    checkpointer = sqlite_checkpointer(path)
    agent = Agent(
        model=get_model(max_tokens=150),
        tools=[save_note, get_notes],
        system_prompt="You are a note-taking assistant.",
        checkpointer=checkpointer,
        checkpoint_every_n_iterations=1,
    )
    for text in ("Save a note: Buy groceries", "What notes do I have?"):
        result = agent.run_sync(text, thread_id="notes")
        print(f"User:  {text}")
        print(f"Agent: {result.message}")
        print(f"       tool calls: {result.metrics.tool_calls}, checkpoints: {result.metrics.checkpoints}\n")
    for entry in reversed(checkpointer.sync.history("notes", limit=8)):
        print(f"  checkpoint {entry.seq}: {entry.metadata['step']}")
    print()


def persistence_across_processes(path: Path) -> None:
    """A question that another process answers: it shares nothing with this one but the file."""
    print("=== Part 3: another process goes on ===\n")
    agent = Agent(model=get_model(max_tokens=100), checkpointer=sqlite_checkpointer(path))
    print("User:  Remember: The secret code is 42.")
    print(f"Agent: {agent.run_sync('Remember: The secret code is 42.', thread_id='secret').message}\n")
    command = [sys.executable, __file__, "--ask", str(path), "secret", "What was the secret code?"]
    print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def ask(path: str, thread_id: str, question: str) -> None:
    """What the other process of part 3 does."""
    agent = Agent(model=get_model(max_tokens=100), checkpointer=f"sqlite:{path}")
    print(f"[another process]\nUser:  {question}\nAgent: {agent.run_sync(question, thread_id=thread_id).message}")


def several_threads(path: Path) -> None:
    """Two people, two threads, one file: neither hears of the other."""
    print("=== Part 4: two conversations in one file ===\n")
    agent = Agent(model=get_model(max_tokens=100), checkpointer=sqlite_checkpointer(path))
    agent.run_sync("I'm Alice and I like pizza.", thread_id="alice")
    agent.run_sync("I'm Bob and I like sushi.", thread_id="bob")
    for thread_id in ("alice", "bob"):
        result = agent.run_sync("What's my favorite food?", thread_id=thread_id)
        print(f"{thread_id}: What's my favorite food?\nAgent: {result.message}\n")


async def inside_a_checkpoint(path: Path) -> None:
    """The state, loaded without an agent. Confidence moves when tools succeed, so there is one to call."""
    print("=== Part 5: what a checkpoint holds ===\n")
    facts: list[str] = []

    @tool
    def record_fact(fact: str) -> str:
        """Keep a fact that the user has shared."""
        facts.append(fact)
        return f"Recorded fact #{len(facts)}: {fact}"

    checkpointer = sqlite_checkpointer(path)
    agent = Agent(
        agent_id="inspector",
        model=get_model(max_tokens=200),
        system_prompt=(
            "You are a helpful assistant. Whenever the user shares a fact about themselves, call record_fact "
            "exactly once with a short summary of that fact, then reply naturally."
        ),
        tools=[record_fact],
        checkpointer=checkpointer,
        reflexion=True,
    )
    # Blocking calls inside a running event loop: they run on a loop of their own.
    agent.run_sync("Hello, my name is Charlie.", thread_id="inspect")
    agent.run_sync("I work as a data scientist.", thread_id="inspect")

    state = await checkpointer.load("inspect")
    assert state is not None
    print(f"agent:      {state.agent_id}")
    print(f"iteration:  {state.iteration} of the last run")
    print(f"tools:      {', '.join(state.tool_history)}")
    print(f"confidence: {state.confidence:.2f}, after {[round(c, 2) for c in state.confidence_history]}")
    print(f"messages:   {len(state.messages)}")
    for number, message in enumerate(state.messages):
        calls = ", ".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
        print(f"  {number}. [{message.role.value}] {message.text or calls}")
    print(f"facts:      {facts}\n")
    await checkpointer.close()


def main(path: Path) -> None:
    print_config()
    print(f"Store: {path}\n")
    conversation_memory(path)
    checkpoints_with_tools(path)
    persistence_across_processes(path)
    several_threads(path)
    asyncio.run(inside_a_checkpoint(path))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        ask(*sys.argv[2:])
    elif sys.argv[1:]:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="locus-") as folder:
            main(Path(folder) / "agents.db")
