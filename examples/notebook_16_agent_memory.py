"""Notebook 10: what an agent remembers, in an Oracle Autonomous Database.

An agent that is given a checkpointer keeps every step of every conversation. The process may end at any time: a
new agent on the same database, asked with the same `thread_id`, knows what was said. The five parts show

1. a conversation of two turns,
2. a checkpoint after each iteration, with tools,
3. a second agent that goes on where the first one stopped,
4. several conversations in one database,
5. what a checkpoint holds, field by field.

It needs a database, whose place the environment tells:

    export ORACLE_DSN=mydb_low                  # an alias of tnsnames.ora
    export ORACLE_USER=locus_app
    export ORACLE_PASSWORD='...'
    export ORACLE_WALLET=~/.oci/wallets/mydb
    export ORACLE_WALLET_PASSWORD='...'         # if the wallet is encrypted
    python examples/notebook_16_agent_memory.py

Without these variables it says so and ends well; it never falls back on another store. `agent_memory_sqlite.py`
does the same on SQLite, with nothing to set up. `LOCUS_MODEL_PROVIDER` chooses the model; `mock` needs no network.
"""

import asyncio
import os
import sys
from pathlib import Path

from config import get_model, print_config  # type: ignore[import-not-found] # it lies beside this file

from locus.agent import Agent
from locus.memory import BaseCheckpointer
from locus.tools import tool

_REQUIRED_ENV = (
    "ORACLE_DSN",
    "ORACLE_USER",
    "ORACLE_PASSWORD",
    "ORACLE_WALLET",
)


def _missing_env() -> list[str]:
    return [name for name in _REQUIRED_ENV if not os.environ.get(name)]


def _build_checkpointer(table_suffix: str = "default") -> BaseCheckpointer:
    """A checkpointer on the database that the environment names, with a table for each part."""
    from locus.memory.backends import oracle_checkpointer

    checkpointer: BaseCheckpointer = oracle_checkpointer(
        dsn=os.environ["ORACLE_DSN"],
        user=os.environ["ORACLE_USER"],
        password=os.environ["ORACLE_PASSWORD"],
        wallet_location=str(Path(os.environ["ORACLE_WALLET"]).expanduser()),
        wallet_password=os.environ.get("ORACLE_WALLET_PASSWORD", ""),
        table_name=f"locus_notebook_16_{table_suffix}",
    )
    return checkpointer


def example_conversation_memory() -> None:
    """Two turns with one thread_id: the second knows what the first was about."""
    print("=== Part 1: Conversation memory (Oracle 26ai) ===\n")

    model = get_model(max_tokens=100)
    checkpointer = _build_checkpointer("convo")
    agent = Agent(
        model=model,
        system_prompt="You are a helpful assistant. Remember what the user tells you.",
        checkpointer=checkpointer,
    )

    thread_id = "conversation_001"
    result1 = agent.run_sync("My name is Alice.", thread_id=thread_id)
    print("User: My name is Alice.")
    print(f"Agent: {result1.message}")

    # What was said before is loaded from the database, not from this object.
    result2 = agent.run_sync("What's my name?", thread_id=thread_id)
    print("\nUser: What's my name?")
    print(f"Agent: {result2.message}")
    print()


_NOTES: list[str] = []


@tool
def save_note(content: str) -> str:
    """Save a note for later reference."""
    _NOTES.append(content)
    return f"Note saved: {content}"


@tool
def get_notes() -> str:
    """Get all saved notes."""
    if not _NOTES:
        return "No notes saved yet."
    lines = "\n".join(f"- {n}" for n in _NOTES)
    return f"You have {len(_NOTES)} note(s):\n{lines}"


def example_checkpointing_with_tools() -> None:
    """Tools, with a checkpoint after each iteration: a process killed in between loses nothing."""
    print("=== Part 2: Checkpoint after each iteration ===\n")

    model = get_model(max_tokens=150)
    checkpointer = _build_checkpointer("notes")
    agent = Agent(
        model=model,
        tools=[save_note, get_notes],
        system_prompt="You are a note-taking assistant.",
        checkpointer=checkpointer,
        checkpoint_every_n_iterations=1,
    )

    thread_id = "notes_session"
    result1 = agent.run_sync("Save a note: Buy groceries", thread_id=thread_id)
    print("User: Save a note: Buy groceries")
    print(f"Agent: {result1.message}")
    print(f"Tool calls: {result1.metrics.tool_calls}")

    result2 = agent.run_sync("What notes do I have?", thread_id=thread_id)
    print("\nUser: What notes do I have?")
    print(f"Agent: {result2.message}")
    print()


def example_persistence_across_processes() -> None:
    """Two agents that share nothing but the database."""
    print("=== Part 3: Cross-process persistence ===\n")

    model = get_model(max_tokens=100)
    agent1 = Agent(
        model=model,
        system_prompt="You are a helpful assistant.",
        checkpointer=_build_checkpointer("persist"),
    )

    thread_id = "persistent_chat"
    result1 = agent1.run_sync("Remember: The secret code is 42.", thread_id=thread_id)
    print("User: Remember: The secret code is 42.")
    print(f"Agent: {result1.message}")

    # As after a restart: another agent, with a checkpointer and connections of its own.
    agent2 = Agent(
        model=model,
        system_prompt="You are a helpful assistant.",
        checkpointer=_build_checkpointer("persist"),
    )

    result2 = agent2.run_sync("What was the secret code?", thread_id=thread_id)
    print("\n[New process — same Oracle DSN]")
    print("User: What was the secret code?")
    print(f"Agent: {result2.message}")
    print()


def example_multiple_threads() -> None:
    """Two people, two threads, one database: neither hears of the other."""
    print("=== Part 4: Multiple threads ===\n")

    model = get_model(max_tokens=100)
    checkpointer = _build_checkpointer("multi")
    agent = Agent(
        model=model,
        system_prompt="You are a helpful assistant.",
        checkpointer=checkpointer,
    )

    thread_alice = "thread_alice"
    thread_bob = "thread_bob"
    agent.run_sync("I'm Alice and I like pizza.", thread_id=thread_alice)
    agent.run_sync("I'm Bob and I like sushi.", thread_id=thread_bob)

    result_alice = agent.run_sync("What's my favorite food?", thread_id=thread_alice)
    print("Thread 'alice': What's my favorite food?")
    print(f"Agent: {result_alice.message}")

    result_bob = agent.run_sync("What's my favorite food?", thread_id=thread_bob)
    print("\nThread 'bob': What's my favorite food?")
    print(f"Agent: {result_bob.message}")
    print()


async def example_inspect_checkpoint() -> None:
    """A checkpoint, loaded without an agent.

    Confidence moves when tools succeed, so there is one to call: after two turns that each call it once, it is
    above zero. `run_sync` works here, inside a running event loop, too.
    """
    print("=== Part 5: Inspecting an Oracle-backed checkpoint ===\n")

    model = get_model(max_tokens=200)
    checkpointer = _build_checkpointer("inspect")
    _facts: list[str] = []

    @tool
    def record_fact(fact: str) -> str:
        """Persist a fact the user has shared so the agent can remember it."""
        _facts.append(fact)
        return f"Recorded fact #{len(_facts)}: {fact}"

    agent = Agent(
        agent_id="inspector",
        model=model,
        system_prompt=(
            "You are a helpful assistant. Whenever the user shares a fact "
            "about themselves (their name, job, hobbies, etc.), call "
            "record_fact exactly once with a short summary of that fact, "
            "then reply naturally."
        ),
        tools=[record_fact],
        checkpointer=checkpointer,
        reflexion=True,
    )

    thread_id = "inspect_thread"
    agent.run_sync("Hello, my name is Charlie.", thread_id=thread_id)
    agent.run_sync("I work as a data scientist.", thread_id=thread_id)

    state = await checkpointer.load(thread_id)
    if state:
        print(f"Thread ID: {thread_id}")
        print(f"Agent ID: {state.agent_id}")
        print(f"Iteration: {state.iteration}")
        print(f"Message count: {len(state.messages)}")
        print(f"Tool calls so far: {len(state.tool_history)}")
        print(f"Confidence: {state.confidence:.2f}")
        print(f"Confidence history: {[round(c, 2) for c in state.confidence_history]}")

        print("\nMessages:")
        for i, msg in enumerate(state.messages):
            content = msg.text[:50] + "..." if len(msg.text) > 50 else msg.text
            print(f"  {i}. [{msg.role.value}] {content}")

        print(f"\nFacts recorded by record_fact: {_facts}")
    print()


def _print_skip_banner(missing: list[str]) -> None:
    print("\n--- Notebook 10: Agent Memory & Checkpointing ---")
    print("These environment variables are not set, so there is no database to show this on:\n")
    for name in missing:
        print(f"  - {name}")
    print("\nSet them and run this again; or run agent_memory_sqlite.py, which needs none of them.")


def main() -> None:
    """Run all parts."""
    print("=" * 60)
    print("Notebook 10: Agent Memory & Checkpointing on Oracle 26ai")
    print("=" * 60)
    print()

    missing = _missing_env()
    if missing:
        _print_skip_banner(missing)
        return

    print_config()
    print()

    example_conversation_memory()
    example_checkpointing_with_tools()
    example_persistence_across_processes()
    example_multiple_threads()
    asyncio.run(example_inspect_checkpoint())

    print("=" * 60)
    print("Next: Notebook 11 — Agent Streaming")
    print("=" * 60)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
