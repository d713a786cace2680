"""`locus threads`: lists threads."""

from __future__ import annotations

import argparse
import asyncio
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from locus.cli import commands
from locus.cli.log import beginning, moment
from locus.cli.terminal import Cell, Styled, Terminal
from locus.errors import ConfigurationError, CorruptCheckpointError, LocusError, UnsupportedFormatError
from locus.looking.formatting import ago, clock, one_line, visible

if TYPE_CHECKING:
    from locus.memory.model.records import Entry
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
List threads by id, or the newest first, each with its last checkpoint and what the conversation began with.

  locus threads
  locus threads 'acme/*' --recent
  locus threads --since yesterday      saved since then, the newest first
  locus threads --meta user=alice"""

_AT_ONCE = 8
_MOST_PAGES = 20
"""The number of pages of newest threads that are searched for a pattern."""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "GLOB", optional=1)
    add = command.add_argument
    add("--recent", action="store_true", help="those that were saved last come first")
    add("--meta", metavar="K=V", help="only threads with a checkpoint whose metadata have this value (JSON or text)")
    add("--before", metavar="CURSOR", help="with --recent: go on where another page ended")
    add("--since", type=beginning, metavar="TIME", help="only threads saved since then: 14:03, 2026-11-18, 90min")
    add("--until", type=moment, metavar="TIME", help="only threads that were saved last by then")
    commands.add_limit(command)
    commands.add_utc(command)
    add("--after", metavar="ID", help="only threads that follow this id in the order of ids")


def _check_options(options: argparse.Namespace) -> None:
    if options.meta is not None and (options.recent or options.after or options.before):
        raise ConfigurationError("--meta lists the newest first; it goes with neither --recent, --after nor --before")
    if options.since is not None or options.until is not None:
        if options.meta is not None or options.after is not None:
            raise ConfigurationError(
                "--since and --until list the newest first; they go with neither --meta nor --after"
            )
        options.recent = True
    if options.before is not None and not options.recent:
        raise ConfigurationError("--before is for --recent; threads in the order of ids go on with --after")


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.revisions import threads_by_metadata
    from locus.memory.model.ids import check_pattern

    glob = options.glob or "*"
    _check_options(options)
    if options.meta is not None:
        entries, complete = await threads_by_metadata(store, options.meta, options.limit, check_pattern(glob))
        more = None if complete else "there may be more: only the newest checkpoints were looked at"
    elif options.recent:
        entries, more = await _recent(store, options)
    else:
        ids = await store.list_threads(options.limit + 1, glob, after=options.after)
        more = f"more: --after {shlex.quote(ids[options.limit - 1])}" if len(ids) > options.limit else None
        entries = await _latest(store, ids[: options.limit], terminal)
    titles = await _titles(store, entries)
    if terminal.json:
        from locus.memory.checkpointer import entry_dict

        for entry, title in zip(entries, titles, strict=True):
            terminal.record({**entry_dict(entry), "title": title})
    else:
        terminal.table([_row(entry, title, options) for entry, title in zip(entries, titles, strict=True)])
        if not entries:
            terminal.note("no threads" if glob == "*" and options.meta is None else "no threads match")
    if more is not None:
        terminal.note(visible(more))
    return None


def _row(entry: Entry, title: str | None, options: argparse.Namespace) -> list[Cell]:
    by_time = options.utc or options.since is not None or options.until is not None
    return [
        Styled(visible(entry.thread_id), "strong"),
        Styled(clock(entry.created_at, utc=options.utc) if by_time else ago(entry.created_at), "faint"),
        f"#{entry.seq}",
        one_line(title) if title else Styled(visible(entry.namespace), "faint"),
    ]


async def _latest(store: CheckpointStore, ids: Sequence[str], terminal: Terminal) -> list[Entry]:
    """The newest checkpoint of each thread. A thread that was deleted meanwhile is left out."""

    async def newest(thread_id: str) -> list[Entry]:
        try:
            return await store.history(thread_id, 1, None, None)
        except UnsupportedFormatError:
            raise
        except CorruptCheckpointError as error:
            terminal.note(f"thread {thread_id!r} cannot be read: {error}. Ask `locus doctor`")
            return []

    return [entry for entries in await _each(newest, ids) for entry in entries]


async def _titles(store: CheckpointStore, entries: Sequence[Entry]) -> list[str | None]:
    from locus.memory.titles import title_of

    async def read(entry: Entry) -> str | None:
        try:
            return await title_of(store, entry)
        except LocusError as error:
            return f"({type(error).__name__}: locus show says more)"

    return await _each(read, entries)


async def _each(work: Any, of: Sequence[Any]) -> list[Any]:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def gated(value: Any) -> Any:
        async with gate:
            return await work(value)

    return list(await asyncio.gather(*map(gated, of)))


def _is_within(entry: Entry, options: argparse.Namespace) -> bool:
    """Whether a thread was saved last between the times that were asked for."""
    if options.since is not None and entry.created_at < options.since:
        return False
    return options.until is None or entry.created_at <= options.until


async def _recent(store: CheckpointStore, options: argparse.Namespace) -> tuple[list[Entry], str | None]:
    """The newest threads that match the pattern, and how to go on. The query has the pattern's plain beginning."""
    from locus.looking.recency import newest_by_time
    from locus.memory.model.ids import check_pattern

    if options.after is not None:
        raise ConfigurationError("--after is for threads in the order of ids; --recent goes on with --before")
    pattern = check_pattern(options.glob or "*")
    entries: list[Entry] = []
    before = options.before
    for _page in range(_MOST_PAGES):
        page = await newest_by_time(store, options.limit - len(entries), before, pattern.prefix)
        entries += [entry for entry in page.entries if pattern.matches(entry.thread_id) and _is_within(entry, options)]
        before = page.next
        if before is None or len(entries) >= options.limit:
            break
        if options.since is not None and page.entries and page.entries[-1].created_at < options.since:
            return entries, None  # the rest is older
    return entries, None if before is None else f"there may be more: --before {shlex.quote(before)}"
