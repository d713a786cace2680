"""`locus migrate`: brings a store to the newest stored format."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from locus.cli import commands
from locus.cli.terminal import Styled, Terminal
from locus.memory.model.spaces import KEY_SPACES

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
    commands.configure(command, run, writes=True, space="memory")
    commands.add_apply(command)


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.spaces import spaces_of, stored_format

    before = await stored_format(store)
    spaces = {name: (space, await stored_format(space)) for name, space in (await spaces_of(store)).items()}
    is_empty = before is not None and not before.found
    if is_empty and not spaces:
        async with store.using():  # which knows whether it is another framework's
            pass
        raise store.engine.nothing_there()
    if options.apply:
        for each in [*([] if is_empty else [store]), *(space for space, _found in spaces.values())]:
            async with each.using():  # which migrates it
                pass
    if terminal.json:
        now = before if before is None or not options.apply else await stored_format(store)
        formats = {name: await stored_format(space) for name, (space, _before) in spaces.items()}
        shown = {"format": None if now is None else now._asdict(), "dry_run": not options.apply}
        kept = {name: None if found is None else found._asdict() for name, found in formats.items()}
        terminal.document({**shown, "spaces": kept} if spaces else shown)
    else:
        if not is_empty:
            _print(before, options, terminal)
        for name, (_space, found) in spaces.items():
            if found is not None:
                _print(found, options, terminal, f"{KEY_SPACES[name]}: ")
    return None


def _print(before: StoredFormat | None, options: argparse.Namespace, terminal: Terminal, of: str = "") -> None:
    if before is None:
        terminal.line("this kind of store has nothing to migrate: each save writes the newest format")
    elif before.found > before.newest:
        terminal.line(
            f"{of}the store has format {before.found}, and this version of Locus knows {before.newest}: upgrade Locus"
        )
    elif before.found == before.newest:
        terminal.line(f"{of}the store has the newest format, {before.found}")
    elif options.apply:
        terminal.line(Styled(f"{of}migrated from format {before.found} to {before.newest}", "added"))
    else:
        terminal.line(Styled(f"{of}would migrate from format {before.found} to {before.newest}", "warning"))
        if before.migration:
            terminal.line("")
            terminal.text(before.migration.rstrip())
        terminal.note("nothing was changed: --apply does it")
