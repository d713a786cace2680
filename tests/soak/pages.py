"""Writes what a campaign has counted into the pages of this project that show it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final

from locus.testing.campaign.report import NOT_RUN, Total, report
from locus.testing.campaign.tally import Tally

BEGIN: Final = "<!-- campaign -->"
END: Final = "<!-- /campaign -->"


def summary(tally: Tally) -> str:
    """The result of a campaign as a Markdown list item."""
    if not tally.sites:
        return NOT_RUN
    total = Total.of(tally)
    lost = "none was lost or torn" if not total.findings else f"there were {total.findings:,} findings"
    line = (
        f"- **What is acknowledged stays.** {total.kills:,} kills and {total.of_stores:,} faults of servers, networks"
        f" and disks: of {total.told['acknowledged']:,} acknowledged changes {lost}"
        " (see [Reliability](docs/reliability.md))."
    )
    return f"{textwrap.fill(line, 118, subsequent_indent='  ')}\n"


def write_report(tally: Tally, page: Path) -> None:
    """Write the report between its two marks in a page."""
    _write(page, report(tally))


def write_summary(tally: Tally, page: Path) -> None:
    """Write the summary between its two marks in a page."""
    _write(page, summary(tally))


def _write(page: Path, made: str) -> None:
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the report: {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n{made}{END}{after}", encoding="utf-8")
