"""Shared by all commands: exit codes, the options of those that look at a store, and how they are run."""

from __future__ import annotations

import argparse
import asyncio
import re
import warnings
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import TYPE_CHECKING

from locus.cli import stores
from locus.cli.terminal import Terminal
from locus.errors import (
    CapabilityError,
    CheckpointNotFoundError,
    ConfigurationError,
    ConflictError,
    DamagedThreadsWarning,
    EffectBusyError,
    LocusError,
)

if TYPE_CHECKING:
    from locus.memory.store import CheckpointStore


class ExitCode(IntEnum):
    """The exit codes of `locus`."""

    DONE = 0
    DIFFERS = 1
    """Two checkpoints differ, `bisect` found nothing, or not everything could be done."""
    UNUSABLE = 2
    """The command line is wrong, or the store cannot be used."""
    NO_SUCH_THREAD = 3
    CONFLICT = 4
    NOT_CAPABLE = 5
    """This kind of store cannot do it."""
    INTERRUPTED = 130


def exit_code(error: LocusError) -> ExitCode:
    """The exit code of a command that failed with this error."""
    if isinstance(error, ConflictError | EffectBusyError):
        return ExitCode.CONFLICT
    if isinstance(error, CapabilityError):
        return ExitCode.NOT_CAPABLE
    if isinstance(error, CheckpointNotFoundError):
        return ExitCode.NO_SUCH_THREAD
    return ExitCode.UNUSABLE


class UsageError(ConfigurationError):
    """The command line has words that the command does not take, or lacks some."""


Looking = Callable[["CheckpointStore", argparse.Namespace, Terminal], Awaitable[int | None]]
"""The function that runs a command on a store. It returns an exit code, or None for `DONE`."""


def configure(
    command: argparse.ArgumentParser,
    run: Looking,
    *words: str,
    optional: int = 0,
    many: bool = False,
    writes: bool = False,
    space: str | None = None,
) -> None:
    """Set up a command that looks at a store.

    `words` are its positional arguments; each is stored in `options` under its name, in lower case. The last `optional`
    ones may be missing (None). With `many`, the last one is a list of all words that are left. With `space`, the
    command is about that key space of the store.
    """
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = stores.HELP
    shown = [f"[{word}]" if at >= len(words) - optional else word for at, word in enumerate(words)]
    named = " ".join([*shown[:-1], f"{shown[-1]}…" if many else shown[-1]] if shown else [])
    command.usage = f"{command.prog} [-s STORE] {named} [OPTIONS]".replace("  ", " ")
    command.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    stores.add_options(command)
    command.add_argument("--json", action="store_true", help="print JSON: one document, or a line for each of a list")

    def begin(options: argparse.Namespace) -> int:
        url, rest = stores.take_store(options, options.words)
        options.url = url
        _assign(options, command, rest, words, optional, many)
        terminal = Terminal.of_process(json=options.json)

        async def main() -> int | None:
            async with stores.opened(
                url, options, to_write=writes and getattr(options, "apply", True), space=space
            ) as store:
                return await run(store, options, terminal)

        try:
            return asyncio.run(main()) or ExitCode.DONE
        finally:
            terminal.flush()

    command.set_defaults(run=begin)


def guarded(run: Looking, nothing: str) -> Looking:
    """A command about a key space: it tells warnings in a line each, and says `nothing` if there is no such space."""

    async def guarded_run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
        from locus.memory.engine import NothingThereError

        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                code = await run(store, options, terminal)
            except NothingThereError:
                async with store.using():  # raises if there is no store at all
                    pass
                terminal.note(nothing)
                return None
        for warning in told:
            terminal.note(str(warning.message))
            if issubclass(warning.category, DamagedThreadsWarning):
                code = code or ExitCode.DIFFERS
        return code

    return guarded_run


def _assign(
    options: argparse.Namespace,
    command: argparse.ArgumentParser,
    given: list[str],
    words: tuple[str, ...],
    optional: int,
    many: bool,
) -> None:
    if len(given) < len(words) - optional or (len(given) > len(words) and not many):
        said = "too few words" if len(given) < len(words) - optional else "too many words"
        taken = getattr(options, "taken_for_store", None)
        hint = f" ({taken!r:.80} was taken for a store: if it is a thread, name the store with -s)" if taken else ""
        raise UsageError(f"{said}: {command.usage}{hint}")
    for at, word in enumerate(words):
        name = re.sub(r"\W", "_", word.lower())
        if many and at == len(words) - 1:
            setattr(options, name, given[at:])
        else:
            setattr(options, name, given[at] if at < len(given) else None)


def number(least: int, most: int) -> Callable[[str], int]:
    """A type for argparse: a number from `least` to `most`."""

    def parse(text: str) -> int:
        if not text.lstrip("-").isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"a number from {least:,} to {most:,}")
        return int(text)

    return parse


def add_limit(command: argparse.ArgumentParser, default: int = 50) -> None:
    command.add_argument(
        "-n", "--limit", type=number(1, 100_000), default=default, metavar="N", help=f"how many are shown ({default})"
    )


def add_namespace(command: argparse.ArgumentParser) -> None:
    command.add_argument("--ns", metavar="NS", help="the namespace of the thread, if it has several")


def add_utc(command: argparse.ArgumentParser) -> None:
    command.add_argument("--utc", action="store_true", help="show times in UTC, and not in the zone of this machine")


def add_checkpoint(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--checkpoint", metavar="ID", help="the checkpoint, where the id of a thread contains @: ID, #NUMBER or ~STEPS"
    )


def add_apply(command: argparse.ArgumentParser) -> None:
    either = command.add_mutually_exclusive_group()
    either.add_argument("--apply", action="store_true", help="do it; without this, only show what would be done")
    either.add_argument("--dry-run", action="store_true", help="only show what would be done, as without --apply")
