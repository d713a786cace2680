"""`locus doctor`: examines a store, and repairs what can be repaired."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from locus.cli import commands
from locus.cli.commands import ExitCode, UsageError
from locus.cli.terminal import ProgressLine, Styled, Terminal
from locus.looking.formatting import visible
from locus.memory.model.spaces import KEY_SPACES

if TYPE_CHECKING:
    from locus.doctor import Examination
    from locus.memory.store import CheckpointStore
    from locus.repair import Repair

_DESCRIPTION = """\
Examine a store: can it be reached, is its format right, are rows damaged, is it set up so that nothing is lost. Each
finding says what to do. Nothing is changed, unless --repair and --apply are there.

  locus doctor
  locus doctor --quick             without reading every thread
  locus doctor --repair            what would be kept of damaged threads, and what is lost
  locus doctor --repair --apply    do it

A repair removes checkpoints that cannot be read, and creates missing indexes. Nothing that can be read is lost. Make a
backup first all the same.

The exit code is 0 if all is well, 1 if there is something to do, and 2 if the store cannot be used."""

_STYLES = {"error": "error", "warning": "warning", "note": "faint"}


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, writes=True, space="memory")
    command.add_argument("--quick", action="store_true", help="read no threads")
    command.add_argument("--repair", action="store_true", help="keep what can be read of what is damaged")
    commands.add_apply(command)
    begin = command.get_default("run")

    def checked(options: argparse.Namespace) -> int:
        if options.apply and not options.repair:
            raise UsageError("--apply goes with --repair")
        code: int = begin(options)
        return code

    command.set_defaults(run=checked)


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.doctor import examine
    from locus.repair import repair

    with ProgressLine(terminal.err, "threads read") as bar:

        def show(examination: Examination) -> None:
            bar.show(examination.threads)

        examination = await examine(store, read_all=not options.quick, progress=show)
    repairs = await repair(store, examination, apply=options.apply) if options.repair and examination.reached else []
    if terminal.json:
        terminal.document(_document(examination, repairs, options))
    else:
        _print(examination, options, terminal)
        _print_repairs(repairs, options, terminal)
    if not examination.reached:
        return ExitCode.UNUSABLE
    return None if examination.healthy else ExitCode.DIFFERS


def _document(examination: Examination, repairs: Sequence[Repair], options: argparse.Namespace) -> dict[str, object]:
    document = _found(examination)
    if options.repair:
        document["repairs"] = [
            {
                "what": repair.what,
                "thread_id": repair.thread_id,
                "lost": [list(each) for each in repair.lost],
                "statement": repair.statement,
                "left_alone": repair.left_alone,
            }
            for repair in repairs
        ]
        document["dry_run"] = not options.apply
    return document


def _found(examination: Examination) -> dict[str, object]:
    found: dict[str, object] = {
        "healthy": examination.healthy,
        "threads": examination.threads,
        "checkpoints": examination.checkpoints,
        "findings": [finding._asdict() for finding in examination.findings],
        "damaged": [
            {
                "thread_id": damage.thread_id,
                "error": str(damage.error),
                "checkpoints": [list(each) for each in damage.unreadable],
                "readable": damage.readable,
            }
            for damage in examination.damaged
        ],
    }
    if examination.spaces:
        found["spaces"] = {name: _found(space) for name, space in examination.spaces.items()}
    return found


def _print(examination: Examination, options: argparse.Namespace, terminal: Terminal) -> None:
    _print_findings(examination, options, terminal)
    if examination.reached and not options.quick and not examination.is_empty:
        terminal.line(f"{examination.threads:,} threads with {examination.checkpoints:,} checkpoints read")
    for name, space in examination.spaces.items():
        _print_findings(space, options, terminal)
        if not options.quick:
            terminal.line(f"{space.threads:,} {KEY_SPACES[name]} with {space.checkpoints:,} versions read")
    if examination.healthy:
        terminal.line(Styled("all is well", "added"))


def _print_findings(examination: Examination, options: argparse.Namespace, terminal: Terminal) -> None:
    for finding in examination.findings:
        terminal.text(f"{finding.severity}: {finding.what}", _STYLES[finding.severity])
        terminal.text(finding.advice, indent="    ")
        if finding.repair:
            terminal.text(f"{finding.repair};", indent="    ")
    for damage in examination.damaged:
        terminal.text(f"error: {damage.what} of {visible(damage.thread_id)} cannot be read: {damage.error}", "error")
        if not options.repair:
            terminal.text("`locus doctor --repair` shows what can be kept", indent="    ")


def _print_repairs(repairs: Sequence[Repair], options: argparse.Namespace, terminal: Terminal) -> None:
    for repair in repairs:
        where = "" if repair.thread_id is None else f" ({visible(repair.thread_id)})"
        if repair.left_alone:
            terminal.text(f"left alone: {repair.what}{where}", "warning")
            terminal.text(repair.left_alone, indent="    ")
        else:
            terminal.text(f"{'done' if options.apply else 'would do'}: {repair.what}{where}")
        for namespace, checkpoint_id in repair.lost:
            inside = "" if namespace == "default" else f" in {visible(namespace) or 'the empty namespace'}"
            terminal.text(f"lost: {visible(checkpoint_id)}{inside}", indent="    ")
        if repair.statement:
            terminal.text(f"{repair.statement};", indent="    ")
    if options.repair and not repairs:
        terminal.line("there is nothing that can be repaired")
    elif repairs and not options.apply:
        terminal.note("nothing was changed: --apply does it. Make a backup first: what is removed does not come back")
