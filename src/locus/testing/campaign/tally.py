"""The counts of a campaign by store and fault, in a file, so that a campaign can run in pieces."""

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
    """The counts of one fault on one store."""

    struck: int = 0
    rounds: int = 0
    findings: dict[str, int] = Field(default_factory=dict)
    """The number of findings by kind. A finding counts for each fault that struck in its round."""


class SiteTally(BaseModel):
    """The counts of one store."""

    versions: str = ""
    rounds: dict[int, int] = Field(default_factory=dict)
    """The number of rounds that are done, by seed."""
    faults: dict[str, FaultTally] = Field(default_factory=dict)
    told: dict[str, int] = Field(default_factory=dict)


class FailedRound(BaseModel):
    """A round with findings."""

    site: str
    seed: int
    round: int
    faults: list[str]
    findings: list[str]
    folder: str


class Tally(BaseModel):
    """The counts of a campaign on several stores, so far."""

    sites: dict[str, SiteTally] = Field(default_factory=dict)
    failures: list[FailedRound] = Field(default_factory=list)
    made_with: str = ""
    """The versions of Locus and Python in the last round."""
    first: datetime | None = None
    last: datetime | None = None
    seconds: float = 0.0

    @classmethod
    def read(cls, path: Path | None) -> Tally:
        if path is None or not path.exists():
            return cls()
        return cls.model_validate_json(path.read_bytes())

    def write(self, path: Path | None) -> None:
        """Write the file in one step, so that a process that is killed here does not damage it."""
        if path is not None:
            unfinished = path.with_name(f"{path.name}.new")
            unfinished.write_text(self.model_dump_json(indent=1))
            unfinished.replace(path)

    def part(self, site: str) -> Tally:
        """A tally with the rounds of one store, for another process to continue. `take` adds its result."""
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
        """Add all faults of a store, so that the report shows those that have not struck yet, too."""
        faults_of_site = self.site(site).faults
        for name in faults:
            faults_of_site.setdefault(name, FaultTally())

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
        """Add the counts of a round."""
        now = datetime.now(UTC)
        self.first, self.last = self.first or now, now
        self.made_with = f"Locus {version('locus-state')}; Python {platform.python_version()}"
        self.seconds += seconds
        site_tally = self.site(site)
        site_tally.versions = versions
        site_tally.rounds[seed] = site_tally.rounds.get(seed, 0) + 1
        for name, count in told.items():
            site_tally.told[name] = site_tally.told.get(name, 0) + count
        kinds = [finding.kind.value for finding in findings]
        for name, count in struck.items():
            fault = site_tally.faults.setdefault(name, FaultTally())
            fault.struck += count
            fault.rounds += 1
            for kind in kinds:
                fault.findings[kind] = fault.findings.get(kind, 0) + 1
