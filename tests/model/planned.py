"""A store in a dict for what the planner plans: every version can be read back."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from locus.memory.model.codec import decode
from locus.memory.model.manifest import decode_manifest, wanted
from locus.memory.model.payloads import dict_from, payload_text, stored_trace
from locus.memory.model.plan import Payload, Plan, Planner
from locus.memory.model.records import Base, Entry, Run, Stored
from locus.memory.model.trace import Trace


@dataclass
class Plans:
    """Plans carried out one after another, as an engine would."""

    sort_keys: bool = False
    runs: dict[str, list[Run]] = field(default_factory=dict)
    versions: list[Stored] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    collisions: int = 0
    """How often a plan went on with a branch that had gone on without it."""

    def save(self, payload: Payload, base: int | None = None, *, cold: bool = False) -> Plan:
        """Plan a payload on the basis of a version, and keep what has to be written."""
        trace = None if base is None else self.traces[base]
        if cold and base is not None:
            trace = stored_trace(self.versions[base], self.sort_keys)
        rev = f"rev{len(self.versions):03}-"
        plan = Planner(rev, trace, sort_keys=self.sort_keys).plan(payload)
        if any(self._taken(run) for run in plan.runs):
            self.collisions += 1
            plan = Planner(rev, trace, own_branches=True, sort_keys=self.sort_keys).plan(payload)
        self._keep(rev, plan)
        return plan

    def _taken(self, run: Run) -> bool:
        kept = self.runs.get(run.branch)
        return kept is not None and run.number > 0 and kept[-1].number >= run.number

    def _keep(self, rev: str, plan: Plan) -> None:
        assert list(plan.extents) == wanted(plan.manifest)
        for run in plan.runs:
            kept = self.runs.setdefault(run.branch, [])
            assert run.number == len(kept), "a run must follow the one before it"
            assert len(decode(run.items)) == run.length
            kept.append(run)
        for run in plan.values:
            self.runs.setdefault(run.branch, [run])
        entry = Entry("thread", "default", rev, None, len(self.versions) + 1, rev, datetime.now(UTC), "{}")
        self.versions.append(Stored(entry, plan.head, plan.manifest, self.runs))
        self.traces.append(Trace(Base(rev, rev), plan.fields))

    def read(self, version: int) -> Any:
        value = decode(payload_text(self.versions[version]))
        assert dict_from(self.versions[version]) == value
        return value

    def most_extents(self) -> int:
        """How many pieces the most scattered list has, of all versions."""
        cuts = (cut for stored in self.versions for cut in decode_manifest(stored.manifest).values())
        return max((len(cut) for cut in cuts if not isinstance(cut, str)), default=0)
