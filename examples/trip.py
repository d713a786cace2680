"""The conversation of the demo: a journey is planned, message by message. The tools really calculate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import asin, cos, radians, sin, sqrt
from typing import Any

from locus.core.messages import Message, ToolCall, ToolResult
from locus.core.state import AgentState

CITIES = {
    "Lisbon": (38.72, -9.14),
    "Paris": (48.86, 2.35),
    "Berlin": (52.52, 13.40),
    "Vienna": (48.21, 16.37),
    "Helsinki": (60.17, 24.94),
}


def route(cities: list[str]) -> dict[str, Any]:
    """The lengths of the legs between cities, as the crow flies."""
    legs = {f"{a}–{b}": _kilometres(CITIES[a], CITIES[b]) for a, b in pairwise(cities)}
    return {**legs, "total_km": sum(legs.values())}


def _kilometres(a: tuple[float, float], b: tuple[float, float]) -> int:
    (lat1, lon1), (lat2, lon2) = (map(radians, place) for place in (a, b))
    haversine = sin((lat2 - lat1) / 2) ** 2 + cos(lat1) * cos(lat2) * sin((lon2 - lon1) / 2) ** 2
    return round(2 * 6371 * asin(sqrt(haversine)))


def budget(nights: int, room: int, meals: int, persons: int) -> dict[str, Any]:
    return {"rooms": nights * room, "meals": nights * meals * persons, "total": nights * (room + meals * persons)}


def note(text: str) -> dict[str, Any]:
    return {"noted": text, "characters": len(text)}


TOOLS: Mapping[str, Callable[..., dict[str, Any]]] = {"route": route, "budget": budget, "note": note}


@dataclass(frozen=True)
class Turn:
    """A question, the tool that answers it, and how the answer is put."""

    question: str
    tool: str
    arguments: dict[str, Any]
    answer: str

    def messages(self, number: int) -> list[Callable[[], Message]]:
        """Four steps, each of them a message; the tool is called when its step is."""
        call = ToolCall(id=f"call_{number}", name=self.tool, arguments=self.arguments)
        outcome = partial(TOOLS[self.tool], **self.arguments)
        return [
            lambda: Message.user(self.question),
            lambda: Message.assistant(None, tool_calls=[call]),
            lambda: Message.tool(ToolResult(tool_call_id=call.id, name=call.name, content=_shown(outcome()))),
            lambda: Message.assistant(self.answer.format(**outcome())),
        ]


def _shown(result: dict[str, Any]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in result.items())


TURNS = (
    Turn(
        "Nine days, a rail pass, Lisbon to Helsinki. How far is that?",
        "route",
        {"cities": ["Lisbon", "Helsinki"]},
        "{total_km} km as the crow flies. With nine days that is easily done.",
    ),
    Turn(
        "Before I forget: Ada is allergic to hazelnuts. Every hotel must know.",
        "note",
        {"text": "Ada: allergic to hazelnuts; tell every hotel"},
        "Noted, in {characters} characters. I will put it into each booking.",
    ),
    Turn(
        "Let's stop in Paris and in Berlin.",
        "route",
        {"cities": ["Lisbon", "Paris", "Berlin", "Helsinki"]},
        "Then it is {total_km} km; the longest leg is the first.",
    ),
    Turn(
        "There are two of us. Rooms at 84, meals at 31 each. What will it cost?",
        "budget",
        {"nights": 8, "room": 84, "meals": 31, "persons": 2},
        "{total} euros for eight nights: {rooms} for rooms, and {meals} for meals.",
    ),
    Turn(
        "And back again over Vienna?",
        "route",
        {"cities": ["Helsinki", "Vienna", "Lisbon"]},
        "{total_km} km for the way back. Bring a long book.",
    ),
)

OTHER_WAY = Turn(
    "Wait. What if we take Vienna instead of Paris and Berlin?",
    "route",
    {"cities": ["Lisbon", "Vienna", "Helsinki"]},
    "Then it is {total_km} km, with one change of trains less.",
)

STEPS = tuple(step for number, turn in enumerate(TURNS, 1) for step in turn.messages(number))


def next_step(state: AgentState) -> Callable[[], Message] | None:
    """What the agent does next: the state says how far it is, so any process can go on with it."""
    return STEPS[len(state.messages)] if len(state.messages) < len(STEPS) else None


def about(state: AgentState) -> dict[str, Any]:
    """The metadata of a checkpoint."""
    number, step = divmod(len(state.messages) - 1, 4)
    return {"turn": number + 1, "step": ("question", "tool call", "tool result", "answer")[step]}
