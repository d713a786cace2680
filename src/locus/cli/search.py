"""`locus search`: finds checkpoints by the words in them."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import TYPE_CHECKING

from locus.cli import commands, stores
from locus.cli.log import beginning, moment
from locus.cli.terminal import Styled, Terminal
from locus.errors import LocusError
from locus.looking.formatting import clock, one_line, visible

if TYPE_CHECKING:
    from locus.looking.searching import FoundPage
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Find checkpoints that contain all words, best first, with who said them, and the text around them.

  locus search refund order
  locus search 8.99 --role tool --since yesterday
  locus search --thread 'acme/*' refund

Some databases index what was saved when somebody searches. If something is not in the index yet, it is brought up to
date first, unless the store has an older format or may only be read."""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "WORDS", many=True, writes=True)
    # Whatever is written, an old format is migrated first. So a search of such a store writes only if it is told to.
    command.add_argument(
        "--index", dest="apply", action="store_true", help="bring the store's index up to date, and an older format"
    )
    command.add_argument("--prefix", default="", metavar="TEXT", help="only threads whose ids begin with this")
    command.add_argument("--thread", metavar="GLOB", help="only threads whose ids match")
    command.add_argument(
        "--role", metavar="ROLE", help="only what was said by user, assistant, tool, system, reasoning"
    )
    command.add_argument("--since", type=beginning, metavar="TIME", help="only what was saved since: 14:03, 90min")
    command.add_argument("--until", type=moment, metavar="TIME", help="only what was saved by then")
    commands.add_utc(command)
    commands.add_limit(command, 20)


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.searching import Wanted, search_said
    from locus.memory.model.ids import check_pattern

    query = " ".join(options.words)
    pattern = check_pattern(options.thread or "*")
    wanted = Wanted(pattern, options.role, options.since, options.until)
    page = await search_said(store, query, options.limit, options.prefix, wanted)
    if not page.complete and not options.apply and await _may_index(store):
        with suppress(LocusError):  # who may only read has found what is in the index
            async with stores.opened(options.url, options, to_write=True) as indexing:
                page = await search_said(indexing, query, options.limit, options.prefix, wanted)
    _print(page, query, options, terminal)
    return None


async def _may_index(store: CheckpointStore) -> bool:
    """Whether the store has an index of its own that may be brought up to date without a migration."""
    from locus.memory.engine import Maintains

    async with store.using() as engine:
        found = await engine.stored_format() if isinstance(engine, Maintains) else None
    return found is not None and found.found == found.newest


def _print(page: FoundPage, query: str, options: argparse.Namespace, terminal: Terminal) -> None:
    from locus.looking.searching import mark_pattern, marks_of

    if terminal.json:
        from locus.memory.checkpointer import entry_dict

        for one in page.found:
            said = {"role": one.role, "name": one.name, "position": one.position, "excerpt": one.excerpt}
            terminal.record({**entry_dict(one.hit.entry), "score": one.hit.score, "snippet": one.hit.snippet, **said})
        return
    marks = mark_pattern(marks_of(query))
    for one in page.found:
        entry = one.hit.entry
        speaker = one_line(f"{one.role} {one.name}" if one.name else one.role, 40)
        terminal.line(
            Styled(f"{visible(entry.thread_id)}@#{entry.seq}", "strong"),
            Styled(f"  {clock(entry.created_at, utc=options.utc)}", "faint"),
            Styled(f"  {speaker}" if speaker else "", one.role),
        )
        terminal.text(" ".join(one.excerpt.split()), indent="    ", mark=marks)
    if not page.found and page.complete:
        terminal.note("nothing found")
    if not page.complete:
        terminal.note("not everything was looked at: --index brings the store's index up to date first")
