"""A LangGraph agent on a saver of ours: it asks a person, is stopped, goes on, and is taken back.

    python examples/langgraph_agent.py [PATH]

It runs offline: a function plays the travel clerk. With a chat model in its place the rest stays as it is.
"""

import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from locus.integrations.langgraph.saver import LocusSaver


@dataclass(frozen=True)
class Offer:
    """A class of our own in the state: the saver is told that it is allowed."""

    city: str
    euros: int
    day: date


class Trip(MessagesState, total=False):
    offer: Offer
    booked: bool


def look_up(state: Trip) -> dict[str, Any]:
    """What a model with a tool would do."""
    city = str(state["messages"][-1].content).rstrip(".?!").split()[-1]
    offer = Offer(city, 10 * len(city), date(2026, 7, 1))
    return {"offer": offer, "messages": [AIMessage(f"{offer.city} on {offer.day} is {offer.euros} euros.")]}


def confirm(state: Trip) -> dict[str, Any]:
    """Stops the run until a person has answered, however long that takes."""
    answer = interrupt(f"Book {state['offer'].city} for {state['offer'].euros} euros?")
    return {"booked": answer == "yes", "messages": [AIMessage("Booked." if answer == "yes" else "Not booked.")]}


def clerk(saver: LocusSaver) -> Any:
    builder = StateGraph(Trip).add_node(look_up).add_node(confirm)
    builder.add_edge(START, "look_up").add_edge("look_up", "confirm").add_edge("confirm", END)
    return builder.compile(checkpointer=saver)


def main(path: Path) -> None:
    url = f"sqlite:{path}"
    alice: RunnableConfig = {"configurable": {"thread_id": "alice"}}
    with LocusSaver(url, allowed_types=[Offer]) as saver:
        stopped = clerk(saver).invoke({"messages": [("user", "I want to go to Rome.")]}, alice)
        print(f"The clerk asks: {stopped['__interrupt__'][0].value}")

    # Another process, a day later: nothing but the database is left.
    with LocusSaver(url, allowed_types=[Offer]) as saver:
        graph = clerk(saver)
        found = graph.invoke(Command(resume="yes"), alice)
        print(f"Alice says yes: {found['messages'][-1].content} {found['offer']}")

        before = next(state for state in graph.get_state_history(alice) if state.next == ("look_up",))
        graph.update_state(before.config, {"messages": [("user", "Make that Oslo.")]}, as_node="__start__")
        graph.invoke(None, alice)
        found = graph.invoke(Command(resume="no"), alice)
        print(f"Taken back, and asked for Oslo: {found['messages'][-1].content} {found['offer']}")

        checkpoints = list(saver.list(alice))
        cities = {
            one.checkpoint["channel_values"]["offer"].city for one in checkpoints if one.metadata.get("step", 0) > 1
        }
        print(f"{len(checkpoints)} checkpoints are kept, of {' and '.join(sorted(cities))}")
        saver.prune(["alice"])
        print(f"After a prune: {len(list(saver.list(alice)))}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "trips.db")
