"""`locus migrate`: brings a store to the newest stored format."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from locus.cli import commands
from locus.cli.terminal import Styled, Terminal

if TYPE_CHECKING:
    from locus.memory.model.records import StoredFormat
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Bring a store to the newest stored format. Shows what would be done, and for a SQL database the script that a DBA can
run instead; --apply does it. Everything that was stored stays readable.

  locus migrate
  locus migrate --apply"""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, writes=True)
    commands.add_apply(command)


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.doctor import stored_format

    before = await stored_format(store)
    if options.apply:
        async with store.using():  # which migrates it
            pass
    elif before is not None and not before.found:
        async with store.using():  # which knows whether it is another framework's
            pass
        raise store.engine.nothing_there()
    if terminal.json:
        now = before if before is None or not options.apply else await stored_format(store)
        terminal.document({"format": None if now is None else now._asdict(), "dry_run": not options.apply})
    else:
        _print(before, options, terminal)
    return None


def _print(before: StoredFormat | None, options: argparse.Namespace, terminal: Terminal) -> None:
    if before is None:
        terminal.line("this kind of store has nothing to migrate: each save writes the newest format")
    elif before.found > before.newest:
        terminal.line(
            f"the store has format {before.found}, and this version of Locus knows {before.newest}: upgrade Locus"
        )
    elif before.found == before.newest:
        terminal.line(f"the store has the newest format, {before.found}")
    elif options.apply:
        terminal.line(Styled(f"migrated from format {before.found} to {before.newest}", "added"))
    else:
        terminal.line(Styled(f"would migrate from format {before.found} to {before.newest}", "warning"))
        if before.migration:
            terminal.line("")
            terminal.text(before.migration.rstrip())
        terminal.note("nothing was changed: --apply does it")
