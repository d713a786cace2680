"""The counts of a campaign as a table."""

from __future__ import annotations

from typing import Final, NamedTuple

from locus.testing.campaign.faults import CLIENT_FAULTS, KILLED
from locus.testing.campaign.finding import Kind
from locus.testing.campaign.tally import FaultTally, Tally

COLUMNS: Final = (Kind.LOST, Kind.TORN, Kind.WRONG_LATEST)


NOT_RUN: Final = "No campaign has been run yet.\n"


class Total(NamedTuple):
    """The sums over all rounds of a campaign."""

    kills: int
    of_stores: int
    """Faults of servers, networks and disks."""
    rounds: int
    findings: int
    told: dict[str, int]

    @classmethod
    def of(cls, tally: Tally) -> Total:
        sites = tally.sites.values()
        faults = [each for site in sites for each in site.faults.items()]
        return cls(
            kills=sum(fault.struck for name, fault in faults if name == KILLED),
            of_stores=sum(fault.struck for name, fault in faults if name not in CLIENT_FAULTS),
            rounds=sum(sum(site.rounds.values()) for site in sites),
            findings=sum(len(failure.findings) for failure in tally.failures),
            told={
                name: sum(site.told.get(name, 0) for site in sites) for name in ("acknowledged", "refused", "unknown")
            },
        )


def report(tally: Tally) -> str:
    """The report in Markdown: dates and versions, the sums, and a table by store and fault."""
    if not tally.sites or tally.last is None or tally.first is None:
        return NOT_RUN
    days = sorted({f"{tally.first:%Y-%m-%d}", f"{tally.last:%Y-%m-%d}"})
    seeds = sorted({seed for site in tally.sites.values() for seed in site.rounds})
    versions = [tally.made_with, *sorted({site.versions for site in tally.sites.values() if site.versions})]
    total = Total.of(tally)
    told = total.told
    lines = [
        f"{' to '.join(days)}; {'; '.join(versions)}; {_seeds(seeds)}.",
        "",
        f"**{total.kills:,} kills of clients and {total.of_stores:,} faults of stores and networks** in"
        f" {total.rounds:,} rounds and {tally.seconds / 3600:,.1f} hours. {told['acknowledged']:,} operations that"
        f" change something were acknowledged, {told['refused']:,} were refused, and of {told['unknown']:,} the client"
        f" could not know. {'No violation was found.' if not total.findings else f'{total.findings:,} findings.'}",
        "",
        f"| backend | fault | struck | {' | '.join(COLUMNS)} | other |",
        "|---|---|--:|" + "--:|" * (len(COLUMNS) + 1),
    ]
    for name, site in sorted(tally.sites.items()):
        lines += [_row(name, fault, counts) for fault, counts in sorted(site.faults.items())]
    return "\n".join(lines) + "\n"


def _seeds(seeds: list[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}"


def _row(site: str, fault: str, tally: FaultTally) -> str:
    named = [tally.findings.get(kind, 0) for kind in COLUMNS]
    other = sum(tally.findings.values()) - sum(named)
    # A fault that never struck shows a dash rather than a zero.
    counts = [str(count) if tally.rounds else "–" for count in (*named, other)]
    return f"| {site} | {fault} | {tally.struck:,} | {' | '.join(counts)} |"
