"""What was measured: plain data, that goes to JSON as it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True)
class SaveCost:
    """Saves of one workload at one thread length; medians."""

    backend: str
    workload: str
    length: int
    save_ms: float
    floor_ms: float
    content_bytes: float
    """The new content of a save, as compact JSON: what the floor writes."""
    sent_bytes: float
    """The texts that a save hands to the engine."""
    grown_bytes: float
    """What a save adds to the store, on average over the window; the search index apart."""


@dataclass(frozen=True)
class ReadCost:
    """Reading a thread of one length; medians. And what it occupies."""

    backend: str
    length: int
    load_ms: float
    cold_load_ms: float
    validate_ms: float
    list_ms: float
    history_ms: float
    stored_bytes: int
    floor_bytes: int
    content_bytes: int
    read_ms: float | None = None
    """What the floor takes to read the same texts, where that is compared."""
    first_search_ms: float | None = None
    search_bytes: int = 0


@dataclass(frozen=True)
class TurnCost:
    """A turn of a worker that knows nothing yet, and loads, in a thread of one length; medians."""

    backend: str
    length: int
    turn_ms: float
    """A window is loaded, a turn appended, and saved."""
    warm_load_ms: float
    """All is loaded by a handle that has all but the last turn."""
    warm_dict_load_ms: float
    parse_ms: float
    """`json.loads` of the same dict."""
    cold_load_ms: float
    validate_ms: float
    """`model_validate_json` of the same state."""
    cold_save_ms: float
    """A state that does not know where it came from is saved by a handle that knows nothing."""
    encode_ms: float
    """Encoding that state item by item."""


@dataclass(frozen=True)
class Throughput:
    """Saves per second of many conversations at once."""

    backend: str
    ours: float
    floor: float


@dataclass(frozen=True)
class PeerCost:
    """A peer at one thread length, or at the turn where it was cut off. `None`: there is no such call."""

    peer: str
    length: int
    save_ms: float | None
    load_ms: float | None
    list_ms: float | None
    stored_bytes: int | None
    note: str = ""
    turn_ms: float | None = None
    """The latest state is loaded, a turn appended, and saved."""


@dataclass(frozen=True)
class SideCost:
    """A turn in one store of a framework, at one length; medians."""

    turn_ms: float
    newest_ms: float
    """Reading the newest messages."""
    added_bytes: float | None = None
    """What a turn adds to the store, on average. `None`: it is in memory."""
    stored_bytes: int | None = None
    """What all sessions of that length take, where they were made turn by turn."""


@dataclass(frozen=True)
class FrameworkCost:
    """A turn through a framework at one length of a session: on our store, on its own, and on one in memory."""

    framework: str
    call: str
    store: str
    """The database, and how durable a turn is in it: the same for both sides."""
    own: str | None
    """The framework's own store. `None`: it brings nothing that outlives the process."""
    in_memory: str | None
    """The framework's store in memory, which is the floor. `None`: it has none."""
    length: int
    content_bytes: int
    ours: SideCost | None
    theirs: SideCost | None
    floor: SideCost | None
    note: str = ""
    """Why a side is missing."""

    @property
    def subject(self) -> tuple[str, str, str, str | None]:
        """What the costs of all lengths have in common."""
        return self.framework, self.call, self.store, self.own

    def adds(self, side: SideCost | None) -> float | None:
        """The milliseconds by which a turn takes longer than with the framework's store in memory, if it has one."""
        if side is None or (self.in_memory is not None and self.floor is None):
            return None
        return side.turn_ms - (self.floor.turn_ms if self.floor else 0.0)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FrameworkCost:
        sides = {name: data[name] and SideCost(**data[name]) for name in ("ours", "theirs", "floor")}
        return cls(**{**data, **sides})


class Figure(NamedTuple):
    """One promise. `measured` has a value for each workload, or one."""

    what: str
    backend: str
    target: str
    measured: str
    ok: bool


@dataclass(frozen=True)
class Section:
    """What a topic has to say that is measured once, and not for each backend."""

    title: str
    figures: list[Figure]
    table: str


@dataclass(frozen=True)
class LoopCost:
    """The loop's own milliseconds per iteration, in a thread of that many turns."""

    length: int
    iteration_ms: float
    slow_ms: float
    """One in ten iterations takes longer than this."""
    store_ms: float
    """What the store took of an iteration, for comparison."""


@dataclass
class Report:
    """One run."""

    machine: dict[str, str]
    lengths: tuple[int, ...]
    seconds: float = 0.0
    saves: list[SaveCost] = field(default_factory=list)
    reads: list[ReadCost] = field(default_factory=list)
    turns: list[TurnCost] = field(default_factory=list)
    throughput: list[Throughput] = field(default_factory=list)
    peers: list[PeerCost] = field(default_factory=list)
    frameworks: list[FrameworkCost] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    """Of the libraries and servers that the turns through frameworks were measured with."""
    sections: dict[str, Section] = field(default_factory=dict)
    """By topic."""
    failed: dict[str, str] = field(default_factory=dict)
    """The parts of the run that came to no end, and why."""
    took: dict[str, float] = field(default_factory=dict)
    """How many seconds each part of the run took: what is here is done."""

    @property
    def backends(self) -> list[str]:
        return list(dict.fromkeys(cost.backend for cost in self.saves))

    def save(self, backend: str, workload: str, length: int) -> SaveCost:
        wanted = (backend, workload, length)
        return next(cost for cost in self.saves if (cost.backend, cost.workload, cost.length) == wanted)

    def read(self, backend: str, length: int) -> ReadCost:
        return next(cost for cost in self.reads if (cost.backend, cost.length) == (backend, length))

    def longest(self, backend: str, workload: str) -> SaveCost:
        """The saves of a workload in the longest threads that it was measured in."""
        found = [cost for cost in self.saves if (cost.backend, cost.workload) == (backend, workload)]
        return max(found, key=lambda cost: cost.length)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Report:
        """What `as_dict` gave, after it was JSON."""
        return cls(
            machine=data["machine"],
            lengths=tuple(data["lengths"]),
            seconds=data["seconds"],
            saves=[SaveCost(**cost) for cost in data["saves"]],
            reads=[ReadCost(**cost) for cost in data["reads"]],
            turns=[TurnCost(**cost) for cost in data["turns"]],
            throughput=[Throughput(**cost) for cost in data["throughput"]],
            peers=[PeerCost(**cost) for cost in data["peers"]],
            frameworks=[FrameworkCost.from_dict(cost) for cost in data.get("frameworks", ())],
            versions=data.get("versions", {}),
            sections={
                topic: Section(found["title"], [Figure(*figure) for figure in found["figures"]], found["table"])
                for topic, found in data["sections"].items()
            },
            failed=data["failed"],
            took=data["took"],
        )
