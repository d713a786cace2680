"""`locus find`: finds checkpoints by a value in their metadata."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from locus.cli import commands
from locus.cli.terminal import Styled, Terminal
from locus.looking.formatting import ago, one_line, visible

if TYPE_CHECKING:
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Find checkpoints whose metadata have a value, newest first. The value is JSON, or plain text.

  locus find user=alice
  locus find turn=7"""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "K=V")
    command.add_argument("--prefix", default="", metavar="TEXT", help="only threads whose ids begin with this")
    commands.add_limit(command)


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.histories import about
    from locus.looking.revisions import checkpoints_by_metadata

    entries = await checkpoints_by_metadata(store, options.k_v, options.limit, options.prefix)
    if terminal.json:
        from locus.memory.checkpointer import entry_dict

        for entry in entries:
            terminal.record(entry_dict(entry))
        return None
    terminal.table(
        [
            [
                Styled(f"{visible(entry.thread_id)}@#{entry.seq}", "strong"),
                Styled(ago(entry.created_at), "faint"),
                one_line(about(entry)),
            ]
            for entry in entries
        ]
    )
    if not entries:
        terminal.note("nothing found")
    return None
