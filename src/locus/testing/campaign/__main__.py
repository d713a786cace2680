"""Runs a campaign on a store of your own: `python -m locus.testing.campaign URL --seconds 60 --seed 1`."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from locus.errors import LocusError
from locus.testing.campaign.report import report
from locus.testing.campaign.rounds import CLIENTS, ROUND_SECONDS, Campaign, CampaignOptions
from locus.testing.campaign.site import Fault
from locus.testing.campaign.tally import Tally
from locus.testing.processes.jobs import opened


def store_name(url: str) -> str:
    """A name for the store at a URL: the scheme, and a digest that reveals nothing of the rest."""
    parts = urlsplit(url)
    # Passwords and tokens may be in front of the host, or among the options.
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return f"{parts.scheme}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


class OwnStore:
    """A store that is already running. Faults strike only its clients."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = store_name(url)

    def url(self) -> str:
        return self._url

    def direct_url(self) -> str:
        return self._url

    def versions(self) -> str:
        return ""

    def faults(self) -> Sequence[Fault]:
        return ()

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that all campaigns have."""
    parser.add_argument("--seconds", type=float, default=60, help="how long it may take (60)")
    parser.add_argument("--seed", type=int, default=1, help="decides faults, their order and what clients do (1)")
    parser.add_argument("--fault", action="append", default=[], help="one to choose from, if not all; may be repeated")
    parser.add_argument("--kills", action="store_true", help="kill clients besides, in three of four rounds")
    parser.add_argument("--round", type=int, default=None, help="only this round of the seed, again")
    parser.add_argument("--state", type=Path, default=None, help="a file with the counts; goes on where it was left")
    parser.add_argument("--keep", type=Path, default=None, help="where histories of failed rounds are kept")
    parser.add_argument("--clients", type=int, default=CLIENTS, help=f"processes at work ({CLIENTS})")
    parser.add_argument(
        "--round-seconds",
        type=float,
        default=ROUND_SECONDS,
        help=f"how long faults strike in a round ({ROUND_SECONDS:g})",
    )
    parser.add_argument("--module", action="append", default=[], help="to import first: one that registers the backend")


def again(given: argparse.Namespace) -> list[str]:
    """The command-line options that decide the course of a round, besides its seed and number."""
    words = ["--clients", str(given.clients), "--round-seconds", f"{given.round_seconds:g}"]
    words += ["--kills"] if given.kills else []
    for name in ("fault", "module"):
        words += [word for value in getattr(given, name) for word in (f"--{name}", value)]
    return words


def options_from(given: argparse.Namespace, command: Sequence[str], *, vacuums: bool) -> CampaignOptions:
    """Make the options of a campaign from parsed arguments. `command` is the command line without them."""
    return CampaignOptions(
        folder=given.keep or Path(tempfile.mkdtemp(prefix="locus-campaign-")),
        clients=given.clients,
        round_seconds=given.round_seconds,
        vacuums=vacuums,
        modules=tuple(given.module),
        only=tuple(given.fault),
        kills=given.kills,
        command=shlex.join([*command, *again(given)]),
    )


async def _run(given: argparse.Namespace) -> int:
    site = OwnStore(given.url)
    async with opened(given.url) as checkpointer:
        is_empty = not await checkpointer.list_threads(1)
    if not is_empty:
        print("The store is in use: no vacuum is tried. Threads of others are left alone.")
    tally = Tally.read(given.state)
    # A URL may hold a password, and output ends up in logs.
    options = options_from(given, ["python", "-m", "locus.testing.campaign", "URL"], vacuums=is_empty)
    campaign = Campaign(site, tally, options, given.state)
    outcomes = await campaign.run(given.seed, given.seconds, given.round)
    print()
    print(report(tally), end="")
    return 1 if any(outcome.findings for outcome in outcomes) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m locus.testing.campaign",
        description="Let clients use a store, hurt them, and hold what they were told against what is stored. All "
        "threads begin with 'campaign/', and are removed in the end.",
    )
    parser.add_argument("url", help="the store: what get_checkpointer takes")
    add_arguments(parser)
    given = parser.parse_args(arguments)
    for module in given.module:
        importlib.import_module(module)
    try:
        return asyncio.run(_run(given))
    except LocusError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
