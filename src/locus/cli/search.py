"""`locus search`: finds checkpoints by the words in them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from locus.cli import commands
from locus.cli.terminal import Styled, Terminal
from locus.looking.formatting import ago, one_line, visible

if TYPE_CHECKING:
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Find checkpoints that contain all words, best first, with a piece of the text.

  locus search refund order
  locus search --prefix acme/ refund

Some databases index what was saved when somebody searches. A search that only reads finds what is in the index."""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "WORDS", many=True, writes=True)
    # Whatever is written, an old format is migrated first. So a search writes only if it is told to.
    command.add_argument("--index", dest="apply", action="store_true", help="bring the store's index up to date first")
    command.add_argument("--prefix", default="", metavar="TEXT", help="only threads whose ids begin with this")
    commands.add_limit(command, 20)


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    hits = await store.search(" ".join(options.words), options.limit, options.prefix)
    if terminal.json:
        from locus.memory.checkpointer import entry_dict

        for hit in hits:
            terminal.record({**entry_dict(hit.entry), "score": hit.score, "snippet": hit.snippet})
        return None
    terminal.table(
        [
            [
                Styled(f"{visible(hit.entry.thread_id)}@#{hit.entry.seq}", "strong"),
                Styled(ago(hit.entry.created_at), "faint"),
                one_line(hit.snippet),
            ]
            for hit in hits
        ]
    )
    if not hits and hits.complete:
        terminal.note("nothing found")
    if not hits.complete:
        terminal.note("not everything was looked at: --index brings the store's index up to date first")
    return None
