"""A worker that is killed while it charges a card, and another one that goes on.

    python examples/durable_worker.py

The worker is an agent in a process of its own, with three tools. Reserving and sending may be repeated, charging may
not. This process watches it, and kills it (SIGKILL, for real) as soon as it has begun to charge. A second worker takes
the thread up: what was done is not done again; whether the card was charged nobody can know from the thread alone, so
with `unknown_outcome="ask"` it stops and asks. The answer is in the ledger, where this process looks it up.

The second worker cannot know that the first one is dead, and not just slow: it waits until the first one has said
nothing for three seconds (`lease_seconds`).
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from config import get_model, print_config  # type: ignore[import-not-found] # it lies beside this file

from locus.agent import Agent
from locus.core.events import Event, InterruptEvent, ToolCompleteEvent, ToolStartEvent
from locus.memory.backends import sqlite_checkpointer
from locus.tools import tool

THREAD = "order-7"
REQUEST = "Reserve the items of order 7, then charge the card for order 7, then send the receipt of order 7."


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def worker(path: str, ledger: str, decision: str) -> None:
    """The worker's process: it begins the order, or goes on with it, and tells what happens in JSON lines."""

    @tool(idempotent=True)
    def reserve_items(order: int) -> str:
        """Reserve the items of an order."""
        return f"The items of order {order} are reserved."

    @tool
    def charge_card(order: int) -> str:
        """Charge the card for an order."""
        time.sleep(0.3)  # the bank takes its time
        with Path(ledger).open("a") as lines:
            lines.write(f"order {order} charged\n")
        time.sleep(1.0)
        return f"The card was charged for order {order}."

    @tool(idempotent=True)
    def send_receipt(order: int) -> str:
        """Send the receipt of an order."""
        return f"The receipt of order {order} is sent."

    def listen(event: Event) -> None:
        if isinstance(event, ToolStartEvent):
            say(began=event.call.name)
        elif isinstance(event, ToolCompleteEvent):
            say(done=event.call.name, result=event.result.content, recovered=event.recovered)
        elif isinstance(event, InterruptEvent):
            say(asks=event.interrupt.kind, about=[call.name for call in event.interrupt.calls])

    checkpointer = sqlite_checkpointer(path)
    agent = Agent(
        model=get_model(),
        tools=[reserve_items, charge_card, send_receipt],
        system_prompt="You handle orders.",
        checkpointer=checkpointer,
        unknown_outcome="ask",
        lease_seconds=3,
    )
    if checkpointer.sync.exists(THREAD):
        result = agent.resume_sync(THREAD, json.loads(decision), on_event=listen)
    else:
        result = agent.run_sync(REQUEST, THREAD, on_event=listen)
    say(ended=result.stop_reason, answer=result.message)


class Worker:
    """A worker, as this process sees it."""

    def __init__(self, path: Path, ledger: Path, decision: Any = None) -> None:
        command = [sys.executable, __file__, "--worker", str(path), str(ledger), json.dumps(decision)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        print(f"\nworker {self.process.pid} starts")

    def told(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            print(f"  {line.strip()}")
            yield told
        self.process.wait()
        self.process.stdout.close()

    def run(self) -> dict[str, Any]:
        """Let it work to its end, and return the last thing that it told."""
        *_, last = self.told()
        if self.process.returncode:
            raise SystemExit(f"worker {self.process.pid} failed with return code {self.process.returncode}")
        return last


def kill_while_it_charges(path: Path, ledger: Path, delay: float) -> None:
    first = Worker(path, ledger)
    for told in first.told():
        if told.get("began") == "charge_card":
            time.sleep(delay)
            os.kill(first.process.pid, signal.SIGKILL)
    print(f"worker {first.process.pid} is gone: return code {first.process.returncode}")


def main(delay: float) -> None:
    print_config()
    with tempfile.TemporaryDirectory(prefix="locus-") as folder:
        path, ledger = Path(folder) / "orders.db", Path(folder) / "ledger.txt"
        kill_while_it_charges(path, ledger, delay)
        last = Worker(path, ledger).run()
        while last["ended"] == "interrupt":
            charged = ledger.exists() and "order 7 charged" in ledger.read_text()
            decision = {"action": "result", "content": "The ledger says: charged."} if charged else "retry"
            print(f"\nthe ledger says: {'charged' if charged else 'not charged'}; so the decision is {decision}")
            last = Worker(path, ledger, decision).run()
        print(f"\nledger:\n  {ledger.read_text().strip()}")
        print(f"\n{last['answer']}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:])
    else:
        # Half of the time it is killed before the card was charged, and half of the time after.
        main(float(sys.argv[1]) if sys.argv[1:] else random.choice([0.1, 0.45]))
