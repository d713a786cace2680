"""Flows for the tests: one that counts, and one that asks a person."""

from __future__ import annotations

from typing import Any

from crewai.flow import Flow, human_feedback, listen, persist, start
from crewai.flow.async_feedback.types import HumanFeedbackPending, PendingFeedbackContext
from pydantic import BaseModel

from locus.integrations.crewai import LocusFlowPersistence

Kept = list[dict[str, str]]


class Talk(BaseModel):
    id: str = ""
    turns: int = 0
    messages: Kept = []


class Paper(BaseModel):
    """Pydantic would write its infinite numbers as null."""

    marks: list[Any] = []


def support(kept: LocusFlowPersistence) -> Flow[Talk]:
    """A flow of which each kickoff is a turn of two methods. It has a class of its own, because `persist` marks one."""

    @persist(kept)
    class Support(Flow[Talk]):
        suppress_flow_events: bool = True

        @start()
        def begin(self) -> None:
            self.state.turns += 1
            self.state.messages.append({"role": "user", "content": f"Question {self.state.turns}"})

        @listen(begin)
        def answer(self) -> None:
            self.state.messages.append({"role": "assistant", "content": f"Answer {self.state.turns}"})

    return Support()


class Absent:
    """A person who answers later, in another process."""

    def request_feedback(self, context: PendingFeedbackContext, flow: Flow[Any]) -> str:
        raise HumanFeedbackPending(context=context)


class Review(Flow[dict[str, Any]]):
    suppress_flow_events: bool = True

    @start()
    @human_feedback(message="Is it good?", provider=Absent(), metadata={"urgent": True})
    def draft(self) -> dict[str, Any]:
        self.state["draft"] = {"title": "Tea", "parts": [1, 2.5, None]}
        return {"shown": "Tea"}

    @listen(draft)
    def publish(self, result: Any) -> str:
        self.state["feedback"] = result.feedback
        return f"published: {result.feedback}"
