"""`locus diff`: shows what changed between two checkpoints."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from locus.cli import commands
from locus.cli.commands import ExitCode
from locus.cli.terminal import Styled, Terminal
from locus.looking.formatting import dotted, one_line, visible

if TYPE_CHECKING:
    from locus.memory.model.changes import ListDiff, PayloadDiff
    from locus.memory.model.records import Entry, Path
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Show what changed from one checkpoint to another, of any two threads of the store: first what was said, in full, then
the rest. Fields with which frameworks count and number are left out: --all shows them. What they share is not read.

  locus diff THREAD@~1 THREAD
  locus diff THREAD@14:03 THREAD
  locus diff THREAD@#3 OTHER@#5 --stat"""

_PAGE = 200
_WIDE = 400
"""The most characters of one value on a line."""
_LONG = 20_000
"""The most characters of one message."""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "REV", "OTHER-REV")
    add = command.add_argument
    add("--stat", action="store_true", help="only count")
    add("--all", action="store_true", help="also show times, versions, counters and the like")
    add("--exit-code", action="store_true", help="end with 1 if they differ")
    add("--start", type=commands.number(0, 10**9), default=0, metavar="N", help="begin with this change, from 0 on")
    commands.add_limit(command, _PAGE)
    commands.add_namespace(command)


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.revisions import resolve
    from locus.memory.model.records import CheckpointKey

    old, new = [await resolve(store, text, namespace=options.ns) for text in (options.rev, options.other_rev)]
    keys = [CheckpointKey(entry.thread_id, entry.namespace, entry.checkpoint_id) for entry in (old, new)]
    diff = await store.diff(keys[0], keys[1], options.start, 0 if options.stat else options.limit)
    if terminal.json:
        terminal.document(diff_document(diff, old, new))
    else:
        _print(await _with_deltas(store, diff, old, new, options), old, new, options, terminal)
    return ExitCode.DIFFERS if options.exit_code and diff else None


def diff_document(diff: PayloadDiff, old: Entry, new: Entry) -> dict[str, Any]:
    """A page of a diff as JSON."""
    from dataclasses import asdict

    return {
        "old": {"thread_id": old.thread_id, "checkpoint_id": old.checkpoint_id, "seq": old.seq},
        "new": {"thread_id": new.thread_id, "checkpoint_id": new.checkpoint_id, "seq": new.seq},
        **asdict(diff),
    }


async def _with_deltas(
    store: CheckpointStore, diff: PayloadDiff, old: Entry, new: Entry, options: argparse.Namespace
) -> PayloadDiff:
    """The diff, with the messages of a LangGraph that keeps them as deltas: they are in neither payload."""
    from dataclasses import replace

    from locus.looking.deltas import MESSAGES, messages_of
    from locus.memory.model.changes import ItemChange, ListDiff

    before, after = [await messages_of(store, entry) for entry in (old, new)]
    if before is None or after is None or before == after:
        return diff
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    gone = [ItemChange("removed", at, None, item) for at, item in enumerate(before[same:], same)]
    come = [ItemChange("added", None, at, None, item) for at, item in enumerate(after[same:], same)]
    changes = () if options.stat else tuple([*gone, *come][: options.limit])
    messages = ListDiff(MESSAGES, len(before), len(after), len(come), len(gone), 0, changes)
    return replace(diff, lists=(messages, *diff.lists), total=diff.total + len(gone) + len(come))


def _is_folded(path: Path, options: argparse.Namespace) -> bool:
    from locus.looking.histories import is_bookkeeping

    return not options.all and is_bookkeeping(path)


def _print(diff: PayloadDiff, old: Entry, new: Entry, options: argparse.Namespace, terminal: Terminal) -> None:
    for sign, entry, style in (("---", old, "removed"), ("+++", new, "added")):
        terminal.line(
            Styled(f"{sign} {visible(entry.thread_id)}@#{entry.seq}", style), f"  {visible(entry.checkpoint_id)}"
        )
    if not diff:
        terminal.line("no difference")
        return
    from locus.memory.conversations import conversation_path

    conversations = {changed.path for changed in diff.lists if conversation_path([changed.path])}
    folded = 0
    for changed in sorted(diff.lists, key=lambda changed: changed.path not in conversations):
        if _is_folded(changed.path, options):
            folded += 1
        else:
            _list(changed, terminal)
    for change in diff.values:
        if _is_folded(change.path, options):
            folded += 1
        else:
            _values(dotted(change.path), change.kind, change.before, change.after, terminal)
    if folded:
        terminal.note(f"{folded:,} more of bookkeeping: --all")
    if options.stat:
        terminal.line(f"{diff.total:,} changes")
    elif diff.next is not None:
        terminal.note(f"{diff.total - diff.next:,} more changes: --start {diff.next}")


def _length(length: int | None) -> str:
    return "none" if length is None else f"{length:,}"


def _list(changed: ListDiff, terminal: Terminal) -> None:
    from locus.looking.tool_calls import changed_sides

    counts = ", ".join(
        f"{count:,} {name}"
        for name, count in (("added", changed.added), ("removed", changed.removed), ("changed", changed.changed))
        if count
    )
    lengths = f"{_length(changed.old_length)} → {_length(changed.new_length)}"
    terminal.line(Styled(visible(dotted(changed.path)), "strong"), f"  {lengths}  {counts}")
    for change in changed.changes:
        before, after = changed_sides(change)
        sides = (("-", change.old_index, before, "removed"), ("+", change.new_index, after, "added"))
        for sign, position, side, style in sides:
            if side is not None:
                role = f"{side.role}: " if side.role else ""
                more = "…" if len(side.text) > _LONG else ""
                terminal.text(f"{sign} [{position}] {role}{side.text[:_LONG]}{more}", style, indent="  ")


def _values(path: str, kind: str, before: Any, after: Any, terminal: Terminal) -> None:
    name = visible(path)
    if kind in ("removed", "changed"):
        terminal.line(Styled(f"- {name}: {one_line(json.dumps(before, ensure_ascii=False), _WIDE)}", "removed"))
    if kind in ("added", "changed"):
        terminal.line(Styled(f"+ {name}: {one_line(json.dumps(after, ensure_ascii=False), _WIDE)}", "added"))
