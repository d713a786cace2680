"""`locus log`: lists the checkpoints of a thread."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

from locus.cli import commands
from locus.cli.terminal import Cell, Styled, Terminal
from locus.errors import ConfigurationError
from locus.looking.formatting import ago, dotted, one_line, visible

if TYPE_CHECKING:
    from locus.memory.model.records import Entry, Path
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
List the checkpoints of a thread, newest first: number, id, time, and what their metadata say.

  locus log THREAD --graph             with its forks, as git draws them
  locus log THREAD --stat              with what each checkpoint added
  locus log THREAD --follow            and wait for new ones
  locus log THREAD --until 14:03 -n 1  the checkpoint that was the latest at that time"""

_MADE, _SHORT = 20, 10
"""The length of the ids that Locus makes, and the part of them that is shown. Other ids are shown whole."""
_PAGE = 500


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "THREAD")
    add = command.add_argument
    add("--graph", action="store_true", help="draw the lines of the history and its forks")
    add("--stat", action="store_true", help="show by how many items each list became longer")
    commands.add_namespace(command)
    add("--all-ns", action="store_true", help="list the checkpoints of all namespaces")
    commands.add_limit(command)
    add("--before", metavar="REV", help="only checkpoints older than this one: its id, #NUMBER or ~STEPS")
    add("--until", type=moment, metavar="TIME", help="only what was saved by then: 14:03, '2026-11-16 14:03', 90min")
    add("--follow", action="store_true", help="wait for new checkpoints, and list them as they come")


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.revisions import checkpoint_of, namespace_of, resolve, resolve_thread

    if options.follow and (options.before is not None or options.until is not None):
        raise ConfigurationError("--follow waits for what comes next; it goes with neither --before nor --until")
    thread_id = options.thread
    namespace = None
    if options.all_ns:
        if not await store.history(thread_id, 1, None, None):
            await resolve_thread(store, thread_id)  # which says that there is none
    else:
        namespace = await namespace_of(store, thread_id, options.ns)
        if options.ns is not None:
            await resolve_thread(store, thread_id, namespace)
    before_seq = None
    if options.before is not None:
        meant = checkpoint_of(thread_id, options.before.removeprefix(f"{thread_id}@"))
        before_seq = meant.number
        if before_seq is None:
            before = await resolve(
                store, thread_id, checkpoint=options.before.removeprefix(f"{thread_id}@"), namespace=namespace
            )
            before_seq = before.seq
    if options.until is not None:
        if options.until > datetime.now(UTC):
            terminal.note("that time is still to come: for an earlier day, say '2026-11-16 14:03'")
        before_seq = await _first_after(store, thread_id, namespace, before_seq, options.until)
    async with store.using() as engine:
        page = await engine.history(thread_id, namespace, options.limit + 1, before_seq)
    entries = page[: options.limit]
    if not entries:
        terminal.note("no checkpoints by then" if options.until is not None else "no checkpoints before that")
    await _print(store, options, terminal, entries, latest=before_seq is None)
    if len(page) > options.limit and not terminal.json and not options.follow:
        terminal.note(f"older ones: --before '#{entries[-1].seq}'")
    if options.follow:
        terminal.flush()
        await _follow(store, options, terminal, namespace, entries[0].seq if entries else 0)
    return None


async def _first_after(
    store: CheckpointStore, thread_id: str, namespace: str | None, before_seq: int | None, until: datetime
) -> int | None:
    """The number of the first checkpoint after a moment: the oldest in an unbroken series of newest ones."""
    while True:
        async with store.using() as engine:
            page = await engine.history(thread_id, namespace, _PAGE, before_seq)
        for entry in page:
            if entry.created_at <= until:
                return before_seq
            before_seq = entry.seq
        if len(page) < _PAGE:
            return before_seq


def moment(text: str) -> datetime:
    """A type for argparse: a time of today or a date and time, both local, or an age such as `90min`.

    `locus show` tells times to the second, so a time without a fraction is the end of its second.
    """
    from locus.cli.vacuum import age
    from locus.looking.revisions import end_of_second

    now = datetime.now().astimezone()
    with suppress(argparse.ArgumentTypeError, OverflowError):
        return now - timedelta(days=age(text))
    with suppress(ValueError):
        given = time.fromisoformat(text)
        return end_of_second(datetime.combine(now.date(), given).astimezone(), text)
    with suppress(ValueError, OverflowError):
        return end_of_second(datetime.fromisoformat(text).astimezone(), text)
    raise argparse.ArgumentTypeError("a time: 14:03, '2026-11-16 14:03', or how long ago: 90min, 2h, 3d")


async def _print(
    store: CheckpointStore, options: argparse.Namespace, terminal: Terminal, entries: Sequence[Entry], *, latest: bool
) -> None:
    from locus.looking.graph import Node, drawn
    from locus.looking.histories import growths

    stats = await growths(store, entries) if options.stat else {}
    if terminal.json:
        from locus.memory.checkpointer import entry_dict

        for entry in entries:
            added = {"added": {dotted(path): by for path, by in stats[entry.seq].items()}} if options.stat else {}
            terminal.record({**entry_dict(entry), **added})
        return
    rows: list[list[Cell]] = []
    if options.graph:
        nodes = {Node.of(entry): entry for entry in entries}
        for row in drawn(list(nodes)):
            drawn_entry = nodes[row.node] if row.node else None
            cells = [] if drawn_entry is None else _cells(options, drawn_entry, stats, entries, latest)
            rows.append([row.lanes, *cells])
    else:
        rows = [_cells(options, entry, stats, entries, latest) for entry in entries]
    terminal.table(rows)


def _cells(
    options: argparse.Namespace,
    entry: Entry,
    stats: Mapping[int, Mapping[Path, int]],
    entries: Sequence[Entry],
    latest: bool,
) -> list[Cell]:
    from locus.looking.histories import about

    newest = latest and entry is entries[0]
    words = [f"{by:+} {dotted(path)}" for path, by in stats.get(entry.seq, {}).items()]
    said = ", ".join([*words, *filter(None, [about(entry)])])
    cells: list[Cell] = [
        Styled(f"#{entry.seq}", "latest" if newest else "strong"),
        Styled(visible(short_id(entry.checkpoint_id, entries)), "id"),
        Styled(ago(entry.created_at), "faint"),
    ]
    if options.all_ns:
        cells.append(visible(entry.namespace) or "(root)")
    return [*cells, one_line(f"latest {said}" if newest else said)]


def short_id(checkpoint_id: str, entries: Sequence[Entry]) -> str:
    """The beginning of an id that tells it from the others on the page."""
    short = checkpoint_id[:_SHORT]
    alone = sum(entry.checkpoint_id.startswith(short) for entry in entries) == 1
    return short if alone and len(checkpoint_id) == _MADE and checkpoint_id.isalnum() else checkpoint_id


async def _follow(
    store: CheckpointStore, options: argparse.Namespace, terminal: Terminal, namespace: str | None, seen: int
) -> None:
    from locus.looking.histories import Following

    following = Following(store, options.thread, namespace, seen)
    while True:
        await asyncio.sleep(following.pause)
        fresh = await following.look()
        for entry in fresh:
            await _print(store, options, terminal, [entry], latest=entry is fresh[-1])
        terminal.flush()
