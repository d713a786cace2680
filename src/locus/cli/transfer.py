"""What `locus copy` and `locus import` have in common: their options, the progress, and how they end."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from locus.transfer.report import Report

WIDTH = 30
PAUSE = 0.1

EPILOG = """\
A URL that holds a password is better kept in a variable: env:NAME stands for what the variable NAME holds.

Killed at any moment and run again, it goes on where it was. At the end every checkpoint is read again at the
destination and held against the source. The exit code is 0 if all threads are there and equal, 1 if some are not
(they are named), 2 if nothing could be done, and 130 if it was interrupted."""


def add_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--threads", default="*", metavar="PATTERN", help="only threads whose ids match: * any text, ? one character")
    add("--dry-run", action="store_true", help="read everything, write nothing, and say what would be done")
    add("--jobs", type=_jobs, default=4, metavar="N", help="threads that are moved at the same time (4)")
    add("--json", action="store_true", help="print the result as JSON")


def _jobs(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError("a number from 1 to 64")
    return int(text)


def run(options: argparse.Namespace, work: Callable[[Callable[[Report], None]], Awaitable[Report]]) -> int:
    """Carry out a move, and tell what came of it."""

    async def all_of_it() -> Report:
        return await work(bar.show)

    with Bar(sys.stderr) as bar:
        report = asyncio.run(all_of_it())
    text = json.dumps(report.as_dict(), indent=2, ensure_ascii=False) if options.json else told(report)
    sys.stdout.write(f"{text}\n")
    for problem in report.problems:
        sys.stderr.write(f"locus: thread {problem.thread!r}: {problem.message}\n")
    return 0 if report.ok else 1


def told(report: Report) -> str:
    """The result in two or three lines."""
    moved = f"{report.moved:,} {'would be moved' if report.dry_run else 'moved'}, {report.present:,} were there already"
    lines = [
        f"{report.source} -> {report.destination}",
        f"{report.done:,} of {report.threads:,} threads, {report.checkpoints:,} checkpoints: {moved}",
    ]
    if not report.dry_run:
        lines.append(f"{report.verified:,} checkpoints verified, in {report.seconds:.1f} s")
    return "\n".join(lines)


class Bar:
    """A line that says how far it is, where somebody is watching; elsewhere nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._watched = stream.isatty()
        self._next = 0.0

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._next:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def show(self, report: Report) -> None:
        now = time.monotonic()
        if not self._watched or now < self._next:
            return
        self._next = now + PAUSE
        finished = report.done + len(report.problems)
        filled = "#" * (WIDTH * finished // max(1, report.threads))
        text = f"[{filled:.<{WIDTH}}] {finished:,}/{report.threads:,} threads, {report.checkpoints:,} checkpoints"
        self._stream.write(f"\r{text}\x1b[K")
        self._stream.flush()
