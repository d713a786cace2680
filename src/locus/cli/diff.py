"""`locus diff`: shows what changed between two checkpoints."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from locus.cli import commands
from locus.cli.commands import ExitCode
from locus.cli.terminal import Styled, Terminal
from locus.looking.formatting import one_line, visible

if TYPE_CHECKING:
    from locus.memory.model.changes import ListDiff, PayloadDiff
    from locus.memory.model.records import Entry
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Show what changed from one checkpoint to another, of any two threads of the store. What they share is not read.

  locus diff THREAD@~1 THREAD
  locus diff THREAD@#3 OTHER@#5 --stat"""

_PAGE = 200
_WIDE = 400
"""Characters of one value that are shown."""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "REV", "OTHER-REV")
    add = command.add_argument
    add("--stat", action="store_true", help="only count")
    add("--exit-code", action="store_true", help="end with 1 if they differ")
    add("--start", type=commands.number(0, 10**9), default=0, metavar="N", help="begin with this change, from 0 on")
    commands.add_limit(command, _PAGE)
    commands.add_namespace(command)


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.revisions import resolve
    from locus.memory.model.records import CheckpointKey

    old, new = [await resolve(store, text, namespace=options.ns) for text in (options.rev, options.other_rev)]
    keys = [CheckpointKey(entry.thread_id, entry.namespace, entry.checkpoint_id) for entry in (old, new)]
    found = await store.diff(keys[0], keys[1], options.start, 0 if options.stat else options.limit)
    if terminal.json:
        terminal.document(diff_document(found, old, new))
    else:
        _print(found, old, new, options, terminal)
    return ExitCode.DIFFERS if options.exit_code and found else None


def diff_document(found: PayloadDiff, old: Entry, new: Entry) -> dict[str, Any]:
    """A page of a diff as JSON."""
    from dataclasses import asdict

    return {
        "old": {"thread_id": old.thread_id, "checkpoint_id": old.checkpoint_id, "seq": old.seq},
        "new": {"thread_id": new.thread_id, "checkpoint_id": new.checkpoint_id, "seq": new.seq},
        **asdict(found),
    }


def _print(found: PayloadDiff, old: Entry, new: Entry, options: argparse.Namespace, terminal: Terminal) -> None:
    for sign, entry, style in (("---", old, "removed"), ("+++", new, "added")):
        terminal.line(
            Styled(f"{sign} {visible(entry.thread_id)}@#{entry.seq}", style), f"  {visible(entry.checkpoint_id)}"
        )
    if not found:
        terminal.line("no difference")
        return
    for change in found.values:
        _values(".".join(change.path), change.kind, change.before, change.after, terminal)
    for each in found.lists:
        counts = ", ".join(
            f"{count:,} {name}"
            for name, count in (("added", each.added), ("removed", each.removed), ("changed", each.changed))
            if count
        )
        lengths = f"{_length(each.old_length)} → {_length(each.new_length)}"
        terminal.line(Styled(visible(".".join(each.path)), "strong"), f"  {lengths}  {counts}")
        _items(each, terminal)
    if options.stat:
        terminal.line(f"{found.total:,} changes")
    elif found.next is not None:
        terminal.note(f"{found.total - found.next:,} more changes: --start {found.next}")


def _length(length: int | None) -> str:
    return "none" if length is None else f"{length:,}"


def _items(diff: ListDiff, terminal: Terminal) -> None:
    from locus.looking.tool_calls import changed_sides

    for change in diff.changes:
        before, after = changed_sides(change)
        sides = (("-", change.old_index, before, "removed"), ("+", change.new_index, after, "added"))
        for sign, position, side, style in sides:
            if side is not None:
                role = f"{visible(side.role)}: " if side.role else ""
                terminal.line(Styled(f"  {sign} [{position}] {role}{one_line(side.text, _WIDE)}", style))


def _values(path: str, kind: str, before: Any, after: Any, terminal: Terminal) -> None:
    name = visible(path)
    if kind in ("removed", "changed"):
        terminal.line(Styled(f"- {name}: {one_line(json.dumps(before, ensure_ascii=False), _WIDE)}", "removed"))
    if kind in ("added", "changed"):
        terminal.line(Styled(f"+ {name}: {one_line(json.dumps(after, ensure_ascii=False), _WIDE)}", "added"))
