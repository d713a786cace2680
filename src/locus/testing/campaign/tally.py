"""What has been survived so far: counts by store and fault, in a file, so that a campaign may be done in pieces."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from locus.testing.campaign.finding import Finding


class FaultTally(BaseModel):
    """How one fault went on one store."""

    struck: int = 0
    rounds: int = 0
    findings: dict[str, int] = Field(default_factory=dict)
    """By kind. A finding counts for each fault that struck in its round."""


class SiteTally(BaseModel):
    """How one store did."""

    versions: str = ""
    rounds: dict[int, int] = Field(default_factory=dict)
    """How many rounds are done, by seed."""
    faults: dict[str, FaultTally] = Field(default_factory=dict)
    told: dict[str, int] = Field(default_factory=dict)


class Failure(BaseModel):
    """A round in which something was found."""

    site: str
    seed: int
    round: int
    faults: list[str]
    findings: list[str]
    folder: str


class Tally(BaseModel):
    """A campaign on some stores, as far as it has come."""

    sites: dict[str, SiteTally] = Field(default_factory=dict)
    failures: list[Failure] = Field(default_factory=list)
    made_with: str = ""
    """The versions of Locus and Python that the last round had."""
    first: datetime | None = None
    last: datetime | None = None
    seconds: float = 0.0

    @classmethod
    def read(cls, path: Path | None) -> Tally:
        if path is None or not path.exists():
            return cls()
        return cls.model_validate_json(path.read_bytes())

    def write(self, path: Path | None) -> None:
        """In one step: whoever is stopped here loses nothing of it."""
        if path is not None:
            unfinished = path.with_name(f"{path.name}.new")
            unfinished.write_text(self.model_dump_json(indent=1))
            unfinished.replace(path)

    def part(self, site: str) -> Tally:
        """The rounds of one store alone, for somebody who goes on with it; `take` adds what was done since then."""
        known = {site: self.sites[site]} if site in self.sites else {}
        return Tally(sites=known, made_with=self.made_with).model_copy(deep=True)

    def take(self, part: Tally) -> None:
        self.sites |= part.sites
        self.failures += part.failures
        self.made_with = part.made_with or self.made_with
        self.first = min(filter(None, (self.first, part.first)), default=None)
        self.last = max(filter(None, (self.last, part.last)), default=None)
        self.seconds += part.seconds

    def site(self, name: str) -> SiteTally:
        return self.sites.setdefault(name, SiteTally())

    def expect(self, site: str, faults: Iterable[str]) -> None:
        """All faults that a store may have, so that those that have not struck yet are seen, too."""
        kept = self.site(site).faults
        for name in faults:
            kept.setdefault(name, FaultTally())

    def add(
        self,
        site: str,
        versions: str,
        seed: int,
        struck: dict[str, int],
        told: dict[Any, int],
        findings: Iterable[Finding],
        seconds: float,
    ) -> None:
        """One more round."""
        now = datetime.now(UTC)
        self.first, self.last = self.first or now, now
        self.made_with = f"Locus {version('locus-state')}; Python {platform.python_version()}"
        self.seconds += seconds
        kept = self.site(site)
        kept.versions = versions
        kept.rounds[seed] = kept.rounds.get(seed, 0) + 1
        for name, count in told.items():
            kept.told[name] = kept.told.get(name, 0) + count
        kinds = [finding.kind.value for finding in findings]
        for name, count in struck.items():
            fault = kept.faults.setdefault(name, FaultTally())
            fault.struck += count
            fault.rounds += 1
            for kind in kinds:
                fault.findings[kind] = fault.findings.get(kind, 0) + 1
