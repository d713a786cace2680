"""`python -m tests.soak`: campaigns on every store, with its real server and all that can be done to it.

`LOCUS_SOAK_SECONDS` is the time for all of `make soak`, 300 by default; the campaigns take half of it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from locus.testing.campaign.__main__ import add_arguments, again, options_from
from locus.testing.campaign.report import report
from locus.testing.campaign.rounds import Campaign
from locus.testing.campaign.tally import Tally
from tests.soak.pages import write_report, write_summary
from tests.soak.sites import SITES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
README = ROOT / "README.md"
PUBLISHED = ROOT / "benchmarks" / "results" / "campaign.json"
"""The campaign that the two pages show."""
SECONDS = float(os.environ.get("LOCUS_SOAK_SECONDS", "300")) / 2


async def _campaign(name: str, tally: Tally, given: argparse.Namespace, seconds: float) -> bool:
    """Rounds on one store. True if nothing was found."""
    with tempfile.TemporaryDirectory(prefix=f"locus-soak-{name}-", ignore_cleanup_errors=True) as folder:
        site = SITES[name](Path(folder))
        await site.start()
        try:
            options = options_from(given, ["python", "-m", "tests.soak", "--only", name], vacuums=True)
            campaign = Campaign(site, tally, options, given.state)
            outcomes = await campaign.run(given.seed, seconds, given.round)
        finally:
            await site.stop()
    return not any(outcome.findings for outcome in outcomes)


async def _at_once(names: Sequence[str], tally: Tally, given: argparse.Namespace) -> bool:
    """On some stores at a time, each in a process of its own, so that none waits for what is checked on another.

    Its counts are in a file beside that of the campaign until they are added up. If this process is stopped, the next
    one finds them there.
    """
    parts = (given.state or Path(tempfile.mkdtemp(prefix="locus-soak-")) / "state.json").with_suffix(".parts")
    parts.mkdir(exist_ok=True)
    for part in sorted(parts.glob("*.json")):
        _add(part, tally, given)
    turns = asyncio.Semaphore(given.at_once)
    seconds = given.seconds * min(given.at_once, len(names)) / len(names)

    async def in_its_turn(name: str) -> bool:
        part = parts / f"{name}.json"
        async with turns:
            tally.part(name).write(part)
            command = ["-m", "tests.soak", "--only", name, "--seconds", f"{seconds:g}", "--state", str(part)]
            command += ["--seed", str(given.seed), *again(given), *(["--keep", str(given.keep)] if given.keep else [])]
            process = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT)
            try:
                status = await process.wait()
            finally:
                if process.returncode is None:
                    process.terminate()
                    await process.wait()
        _add(part, tally, given)
        return status == 0

    async with asyncio.TaskGroup() as group:
        campaigns = [group.create_task(in_its_turn(name)) for name in names]
    parts.rmdir()
    return all(campaign.result() for campaign in campaigns)


def _add(part: Path, tally: Tally, given: argparse.Namespace) -> None:
    tally.take(Tally.read(part))
    tally.write(given.state)
    part.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--only", default=",".join(SITES), help="stores, separated by commas")
    parser.add_argument(
        "--report", action="store_true", help=f"write what --state has into {PAGE.name} and {README.name}, and end"
    )
    parser.add_argument("--at-once", type=int, default=1, help="stores at a time, each in a process (1)")
    add_arguments(parser)
    parser.set_defaults(seconds=SECONDS)
    given = parser.parse_args(arguments)
    tally = Tally.read(given.state)
    if given.report:
        tally.write(PUBLISHED)
        write_report(tally, PAGE)
        write_summary(tally, README)
        return 0
    names = given.only.split(",")
    if unknown := set(names) - set(SITES):
        parser.error(f"there is no store {', '.join(sorted(unknown))}; known are {', '.join(SITES)}")
    if given.at_once > 1 and len(names) > 1 and given.round is None:
        went_well = asyncio.run(_at_once(names, tally, given))
    else:
        went_well = True
        for name in names:
            went_well &= asyncio.run(_campaign(name, tally, given, given.seconds / len(names)))
    print(report(tally), end="")
    return 0 if went_well else 1


if __name__ == "__main__":
    sys.exit(main())
