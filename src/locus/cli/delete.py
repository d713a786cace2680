"""`locus delete`: deletes a checkpoint, or a thread."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from locus.cli import commands
from locus.cli.terminal import Styled, Terminal
from locus.looking.formatting import ago, visible

if TYPE_CHECKING:
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Delete a checkpoint (THREAD@…) or a whole thread (THREAD). Shows what would be deleted; --apply does it.

  locus delete THREAD@#42
  locus delete THREAD --apply"""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "REV", writes=True)
    commands.add_apply(command)
    commands.add_checkpoint(command)
    commands.add_namespace(command)


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.revisions import is_thread, resolve, resolve_thread

    whole = options.checkpoint is None and await is_thread(store, options.rev, options.ns)
    if whole:
        newest = await store.history(options.rev, 1, None, options.ns)
        entry = newest[0] if newest else await resolve_thread(store, options.rev, options.ns)
        what = f"the thread {visible(entry.thread_id)}, with all its checkpoints"
        if options.ns is not None:
            what += f" in the namespace {visible(options.ns) or '(root)'}"
    else:
        entry = await resolve(store, options.rev, checkpoint=options.checkpoint, namespace=options.ns)
        what = f"checkpoint {visible(entry.checkpoint_id)} (#{entry.seq}) of the thread {visible(entry.thread_id)}"
    done = False
    if options.apply and whole:
        done = await store.delete(entry.thread_id, None, options.ns)
    elif options.apply:
        # What was saved under the same id in the meantime is another checkpoint, and stays.
        done = await store.delete_found(entry.thread_id, entry.namespace, {entry.seq: entry.rev}) > 0
    if terminal.json:
        terminal.document(
            {
                "thread_id": entry.thread_id,
                "checkpoint_id": None if whole else entry.checkpoint_id,
                "deleted": done,
                "dry_run": not options.apply,
            }
        )
    elif options.apply:
        terminal.line("deleted " if done else "somebody else has deleted or replaced ", what)
    else:
        terminal.line(Styled("would delete ", "warning"), what, f", last saved {ago(entry.created_at)}")
        terminal.note("nothing was changed: --apply does it")
    return None
