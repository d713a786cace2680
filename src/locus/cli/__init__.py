"""The command line, `locus`. Each command has a module of its own, listed in `_COMMANDS`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import locus
from locus.cli import copy, import_, serve, tokens
from locus.errors import LocusError

__all__ = ["main"]

_COMMANDS = (serve, copy, import_)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code."""
    options = parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except LocusError as error:
        sys.stderr.write(f"locus: {error}{tokens.hint(error)}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return code


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="locus", description="Keeps the state of AI agents.")
    made.add_argument("--version", action="version", version=f"locus {locus.__version__}")
    commands = made.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_to(commands)
    return made
