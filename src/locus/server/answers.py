"""Models of answers that several routes give. The answer of a single route is declared beside it.

The models only describe answers, for the OpenAPI document. `locus.wire.format` writes the text, and tests compare both.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field

from locus.server.requests import Number
from locus.wire import problems

T = TypeVar("T")

Count = Annotated[int, Field(ge=0)]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
JSONText = Annotated[str, Field(json_schema_extra={"contentMediaType": "application/json"})]
Several2 = Annotated[list[Any], Field(min_length=2, max_length=2)]
Several3 = Annotated[list[Any], Field(min_length=3, max_length=3)]
Several4 = Annotated[list[Any], Field(min_length=4, max_length=4)]
Several5 = Annotated[list[Any], Field(min_length=5, max_length=5)]


class Answer(BaseModel):
    """A JSON object in an answer. Fields without a default are always present."""


class Problem(Answer):
    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str


class Entry(Answer):
    thread_id: str
    namespace: str
    checkpoint_id: str
    parent_id: str | None
    seq: Number
    rev: str
    created_at: Time
    metadata: dict[str, Any]


class Entries(Answer):
    checkpoints: list[Entry]


class Checkpoint(Entry):
    state: dict[str, Any]


class Hit(Entry):
    score: float
    snippet: str


class Stored(Answer):
    entry: Entry
    head: JSONText
    manifest: JSONText
    runs: list[Several5]
    before: list[str | None]
    passed: bool
    since: Annotated[Several2 | None, Field(description="`held`, if its runs were left out")] = None


class Contents(Answer):
    stored: list[Stored]
    next: Annotated[str | None, Field(description="Send it as `after` to go on; null if there are no more")]
    damaged: Annotated[int, Field(ge=0, description="How many threads cannot be read, and are left out")]


class Exported(Answer):
    checkpoints: list[tuple[str, str, Entry]]
    runs: list[Several5]
    before: list[str | None]
    writes: list[Several3]
    more: bool = False


class Outcome(Answer):
    verdict: Literal["committed", "exists", "stale_base", "branch_taken"]
    seq: Number = 0
    parent_id: str | None = None
    repeated: bool = False
    replaced: Several4 = []


NO_THREAD = "this thread does not exist"


def missing(elsewhere: str = "") -> problems.Problem:
    """The problem for a checkpoint that does not exist. `elsewhere` says in which namespaces its thread has others."""
    return problems.Problem(404, problems.NOT_FOUND, f"this checkpoint does not exist{elsewhere and '; '}{elsewhere}")


def existing(record: T | None) -> T:
    """Return a record, or raise the problem for a missing checkpoint if it is None or empty."""
    if not record:
        raise missing()
    return record
