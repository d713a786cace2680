"""Shared by `locus copy` and `locus import`: options, the progress bar, the summary, and the exit code."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from locus.cli import commands, tokens
from locus.cli.terminal import ProgressLine

if TYPE_CHECKING:
    from locus.transfer.report import Problem, Report

_EPILOG = f"""\
Keep a URL that contains a password in an environment variable: env:NAME stands for the value of the variable NAME.

{tokens.HELP}

You can stop the command at any moment and run it again; it continues where it was. At the end it reads every checkpoint
back from the destination and compares it with the source. The exit code is 0 if all threads are there and equal, 1 if
some are not (they are listed), 2 if nothing could be done, and 130 if it was interrupted."""

WIDTH = 30


def describe(
    command: argparse.ArgumentParser, description: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Give a command the texts and the format of `locus copy` and `locus import`."""
    command.description, command.epilog = description, _EPILOG
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.set_defaults(run=run)
    return command


def add_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add(
        "--threads", default="*", metavar="PATTERN", help="only threads whose ids match: * is any text, ? one character"
    )
    add("--dry-run", action="store_true", help="read everything, write nothing, and report what would be done")
    add(
        "--jobs",
        type=commands.number(1, 64),
        default=4,
        metavar="N",
        help="how many threads are moved at the same time (4)",
    )
    add("--json", action="store_true", help="print the result as JSON")
    tokens.add_option(command)


def run(options: argparse.Namespace, work: Callable[..., Awaitable[Report]]) -> int:
    """Run a copy or an import with the options that both have, print the result, and return the exit code."""

    async def main() -> Report:
        return await work(
            options.source,
            options.destination,
            pattern=options.threads,
            dry_run=options.dry_run,
            jobs=options.jobs,
            progress=bar.report,
        )

    with ProgressBar(sys.stderr) as bar:
        report = asyncio.run(main())
    text = json.dumps(report.as_dict(), indent=2, ensure_ascii=False) if options.json else summary(report)
    sys.stdout.write(f"{text}\n")
    for part in (report, *report.spaces.values()):
        for line in told(part.problems):
            sys.stderr.write(f"locus: {line}\n")
    if report.missing and len(report.problems) > 1:  # else it has been said
        from locus.transfer.sources.langgraph_values import allow_options

        sys.stderr.write(f"locus: to allow all classes that are missing, add {allow_options(report.missing)}\n")
    return 0 if report.ok else 1


def told(problems: Sequence[Problem]) -> Iterator[str]:
    """Tell the problems of an import by kind, and for each kind only the first threads that have it."""
    alike: dict[str, list[Problem]] = {}
    for problem in problems:
        alike.setdefault(_NAMES.sub("…", problem.message), []).append(problem)
    for group in alike.values():
        for problem in group[:_SHOWN]:
            yield f"thread {problem.thread!r}: {problem.message}" if problem.thread else problem.message
        if len(group) > _SHOWN:
            yield f"the same is wrong with {len(group) - _SHOWN:,} more threads, which --json lists"


_SHOWN = 3
_NAMES = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\b[\da-f-]{8,}\b|\d+")
"""Names, ids and numbers: errors that differ in nothing else are of one kind."""


def summary(report: Report) -> str:
    """The result in two or three lines of text."""
    moved = f"{report.moved:,} {'would be moved' if report.dry_run else 'moved'}, {report.present:,} were there already"
    lines = [
        f"{report.source} -> {report.destination}",
        f"{report.done:,} of {report.threads:,} threads, {report.checkpoints:,} checkpoints: {moved}",
    ]
    for name, part in report.spaces.items():
        from locus.memory.model.spaces import KEY_SPACES

        versions = f"{part.moved:,} versions {'would be moved' if report.dry_run else 'moved'}"
        kept = f"{part.done:,} of {part.threads:,} {KEY_SPACES[name]}"
        lines.append(f"{kept}: {versions}, {part.present:,} were there already")
    verified = report.verified + sum(part.verified for part in report.spaces.values())
    if not report.dry_run:
        lines.append(f"{verified:,} checkpoints verified, in {report.seconds:.1f} s")
    return "\n".join(lines)


class ProgressBar(ProgressLine):
    """A bar of the threads that are done."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream, after=0.0)

    def report(self, report: Report) -> None:
        finished = report.done + len(report.problems)
        filled = "#" * (WIDTH * finished // max(1, report.threads))
        self.put(f"[{filled:.<{WIDTH}}] {finished:,}/{report.threads:,} threads, {report.checkpoints:,} checkpoints")
