"""`locus vacuum`: removes old checkpoints."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from locus.cli import commands
from locus.cli.commands import ExitCode
from locus.cli.terminal import ProgressLine, Styled, Terminal
from locus.errors import ConfigurationError, CorruptCheckpointError, UnsupportedFormatError
from locus.looking.formatting import days
from locus.memory.model.spaces import KEY_SPACES

if TYPE_CHECKING:
    from locus.memory.model.retention import VacuumProgress
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Remove old checkpoints: by age, by number, or by both, and then both must hold. The latest of each line of history can
be kept with --keep-last. With --space it is about old versions of items, of which the newest always stays, and about
items that have ended. Shows what would be removed; --apply does it.

  locus vacuum --older-than 30d --keep-last 10
  locus vacuum --keep-last 50 --apply
  locus vacuum --space memory --keep-last 5"""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, writes=True, space="memory")
    add_retention(command)
    command.add_argument(
        "--space", choices=list(KEY_SPACES), help="what is kept beside the threads: long-term memory, effects"
    )
    commands.add_apply(command)


def add_retention(command: argparse.ArgumentParser) -> None:
    """Add the options that tell which checkpoints are old."""
    command.add_argument("--older-than", type=age, metavar="AGE", help="what is older: 30d, 12h, 2w (30d)")
    command.add_argument(
        "--keep-last", type=commands.number(0, 10**9), metavar="N", help="keep so many of each line of history"
    )


def age(text: str) -> float:
    """A type for argparse: an age such as `30d`, as a number of days."""
    try:
        return days(text)
    except ConfigurationError:
        raise argparse.ArgumentTypeError("an age, such as 30d, 12h or 2w") from None


def retention(options: argparse.Namespace) -> tuple[float | None, int | None]:
    """The age in days and the number to keep, as the options give them. Without either, the age is 30 days."""
    by_age = options.older_than
    return (30.0 if by_age is None and options.keep_last is None else by_age), options.keep_last


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.memory.model.retention import VacuumProgress

    older_than, keep_last = retention(options)
    threads = store if options.space is None else store.key_space(options.space)
    keep_last = keep_last if options.space is None else max(1, keep_last or 1)
    done, damage, ended = VacuumProgress(), None, 0
    with ProgressLine(terminal.err, "threads looked at") as bar:

        def show(progress: VacuumProgress) -> None:
            nonlocal done
            done = progress
            bar.show(progress.threads)

        try:
            await threads.vacuum(older_than, keep_last, not options.apply, show)
            ended = await _ended(store, options)
        except UnsupportedFormatError:
            raise
        except CorruptCheckpointError as error:
            damage = error
    if terminal.json:
        terminal.document(
            {
                "threads": done.threads,
                "checkpoints": done.checkpoints,
                "writes": done.writes,
                "damaged": done.damaged,
                **({} if options.space is None else {"ended": ended}),
                "dry_run": not options.apply,
            }
        )
    else:
        verb = Styled("removed " if options.apply else "would remove ", "" if options.apply else "warning")
        also = f" and {done.writes:,} pending writes whose checkpoint never came" if done.writes else ""
        also += f" and {ended:,} items that have ended" if ended else ""
        terminal.line(verb, f"{done.checkpoints:,} {'checkpoints' if options.space is None else 'versions'}{also}")
        if not options.apply:
            terminal.note("nothing was changed: --apply does it")
    if damage is not None:
        what = "threads" if options.space is None else "items"
        terminal.note(f"{done.damaged:,} {what} cannot be read, and were left alone: {damage}. Ask `locus doctor`")
        return ExitCode.DIFFERS
    return None


async def _ended(store: CheckpointStore, options: argparse.Namespace) -> int:
    """Remove the items that have ended, and what interrupted deletions have left, and return how many."""
    from locus.memory.long_term.store import ItemStore

    return await ItemStore(store, options.space).sweep() if options.space is not None and options.apply else 0
