"""`locus fork`: continues a checkpoint as a new thread."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Literal

from locus.cli import commands
from locus.cli.terminal import Styled, Terminal
from locus.looking.formatting import visible

if TYPE_CHECKING:
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Copy a checkpoint and its ancestors to a new thread, where another attempt can begin. The plan and the files that the
agent had at that moment come along.

  locus fork THREAD@~3 another-attempt
  locus fork THREAD@#42 small --ancestors 0     without its history"""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "REV", "NEW-THREAD", writes=True)
    command.add_argument(
        "--ancestors", type=_ancestors, default="all", metavar="all|N|0", help="how many ancestors come along (all)"
    )
    commands.add_checkpoint(command)
    commands.add_namespace(command)


def _ancestors(text: str) -> int | Literal["all"]:
    return "all" if text == "all" else commands.number(0, 1_000_000)(text)


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.forking import fork
    from locus.looking.revisions import resolve

    entry = await resolve(store, options.rev, checkpoint=options.checkpoint, namespace=options.ns)
    latest = options.rev == entry.thread_id and options.checkpoint is None
    forked = await fork(store, entry, options.new_thread, options.ancestors, latest=latest)
    if terminal.json:
        terminal.document(
            {
                "thread_id": options.new_thread,
                "checkpoint_id": entry.checkpoint_id,
                "namespace": entry.namespace,
                "workspace": forked.workspace,
            }
        )
    else:
        also = ", with all its namespaces" if forked.whole else " with its workspace" if forked.workspace else ""
        terminal.line(
            Styled(visible(options.new_thread), "strong"),
            f" continues {visible(entry.thread_id)}@#{entry.seq}{also}",
        )
    if forked.left:
        names = ", ".join(repr(name) for name in forked.left[:5]) + (", …" if len(forked.left) > 5 else "")
        terminal.note(f"other namespaces of the thread stay behind, as those of subgraphs: {names}")
    return None
