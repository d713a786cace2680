"""A person decides: transfers wait for a yes, in a file, for as long as it takes.

    python examples/human_in_the_loop.py

Three customers ask for transfers. Each run stops before its transfer is made, and what it wants to do is saved. Later,
somebody who knows nothing but the file (here: a second process) lists what waits and decides: one transfer is
approved, one is made smaller, one is rejected.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from config import get_model, print_config  # type: ignore[import-not-found] # it lies beside this file

from locus.agent import Agent, HumanInTheLoop
from locus.memory.backends import sqlite_checkpointer
from locus.tools import tool

REQUESTS = {
    "alice": "Transfer money: amount=50 to=Carol",
    "bob": "Transfer money: amount=9000 to=Carol",
    "mallory": "Transfer money: amount=700 to=Mallory",
}


def bank_clerk(path: str) -> Agent:
    @tool
    def transfer_money(amount: int, to: str) -> str:
        """Transfer money to somebody."""
        return f"{amount} transferred to {to}"

    return Agent(
        model=get_model(),
        tools=[transfer_money],
        system_prompt="You are a bank clerk.",
        checkpointer=sqlite_checkpointer(path),
        middleware=[HumanInTheLoop(["transfer_money"])],
    )


def ask_for_transfers(path: str) -> None:
    """The customers' side. It ends with every transfer waiting."""
    clerk = bank_clerk(path)
    for name, request in REQUESTS.items():
        result = clerk.run_sync(request, thread_id=name)
        print(f"{name}: {request}\n  -> {result.stop_reason}")


def waiting(path: str) -> list[str]:
    """The threads whose latest checkpoint waits for a person."""
    store = sqlite_checkpointer(path).sync
    threads = store.list_threads()
    return [name for name in threads if (store.get_metadata(name) or {}).get("status") == "interrupted"]


def decide(path: str) -> None:
    """The other side, another day: look at what waits, and decide."""
    clerk = bank_clerk(path)
    for name in waiting(path):
        interrupt = clerk.resume_sync(name).interrupt  # without a decision it only says what it waits for
        assert interrupt is not None
        (call,) = interrupt.calls
        amount, to = call.arguments["amount"], call.arguments["to"]
        print(f"{name} waits: {call.name} {amount} to {to}")
        if to == "Mallory":
            decision: object = {"action": "reject", "reason": "the recipient is on our list"}
        elif amount > 1000:
            decision = {"action": "edit", "arguments": {"amount": 1000, "to": to}}
        else:
            decision = "approve"
        result = clerk.resume_sync(name, decision=decision)
        print(f"  {decision}\n  -> {result.message}")
    print(f"still waiting: {waiting(path) or 'nobody'}")


def main() -> None:
    print_config()
    with tempfile.TemporaryDirectory(prefix="locus-") as folder:
        path = str(Path(folder) / "bank.db")
        print("\n--- the customers ---")
        ask_for_transfers(path)
        print("\n--- another process, later ---")
        command = [sys.executable, __file__, "--decide", path]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--decide"]:
        decide(sys.argv[2])
    else:
        main()
