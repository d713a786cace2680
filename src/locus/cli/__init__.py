"""The command line, `locus`. Each command has a module of its own, listed in `COMMANDS`.

Only the module of the command that is run is imported, so that help and completion come at once.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

import locus
from locus.cli import tokens
from locus.errors import LocusError

__all__ = ["COMMANDS", "main", "parser"]

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "threads": ("threads", "list threads, newest or by id"),
    "log": ("log", "list the checkpoints of a thread"),
    "show": ("show", "show a checkpoint: messages, state, pending writes, metadata"),
    "diff": ("diff", "show what changed between two checkpoints"),
    "bisect": ("bisect", "find the checkpoint with which something came"),
    "search": ("search", "find checkpoints by the words in them"),
    "find": ("find", "find checkpoints by a value in their metadata"),
    "fork": ("fork", "continue a checkpoint as a new thread"),
    "delete": ("delete", "delete a checkpoint or a thread"),
    "erase": ("erase", "delete everything of a tenant"),
    "stats": ("stats", "say where the bytes are, and what a vacuum would free"),
    "vacuum": ("vacuum", "remove old checkpoints"),
    "export": ("export", "write threads to a file: JSON Lines, JSON, Markdown, HTML"),
    "doctor": ("doctor", "examine a store, and say what to do"),
    "migrate": ("migrate", "bring a store to the newest stored format"),
    "inspect": ("inspect", "show the threads of a store in the browser"),
    "memory": ("memory", "show, search, forget and move what agents remember"),
    "effects": ("effects", "show and settle what tools have done once"),
    "serve": ("serve", "serve the threads of a store over HTTP"),
    "copy": ("copy", "copy threads from one store to another"),
    "import": ("import_", "import threads of other libraries into a store"),
    "token": ("token", "make a bearer token for a server"),
    "completion": ("completion", "print the completion script for a shell"),
}
"""By the name of each command: its module, and its line in `locus --help`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code."""
    words = _joined(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None or sys.stderr is None:  # closed by whoever started this
        return 2
    made = parser(_named(words) or "")
    first = next((word for word in words if not word.startswith("-")), None)
    if first is not None and _named(words) is None and "-s" not in words and "--store" not in words:
        from locus.hints import did_you_mean

        made.error(f"there is no command {first!r:.80}{did_you_mean(first, COMMANDS)}; `locus --help` lists them")
    if not words:
        made.print_help()
        return 0
    options, more = made.parse_known_args(words)
    if not hasattr(options, "run"):  # another command was meant than the first word that is the name of one
        options, more = parser().parse_known_args(words)
    if more:
        # argparse takes the words of a command in one piece only; options may stand between them.
        if not hasattr(options, "words") or any(word.startswith("-") and word != "-" for word in more):
            _refuse(made, words, more)
        options.words += more
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except LocusError as error:
        from locus.cli.commands import exit_code
        from locus.looking.formatting import visible

        sys.stderr.write(f"locus: {visible(str(error), keep=chr(10))}{tokens.hint(error)}\n")
        return exit_code(error)
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"locus: {error.strerror or error}\n")
            return 2
        # Whoever read it has seen enough. What is still buffered must not fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _refuse(made: argparse.ArgumentParser, words: Sequence[str], more: Sequence[str]) -> None:
    """End with an error that names what the command does not take, and what was most likely meant."""
    from locus.hints import did_you_mean

    command = made
    for word in words:
        subparsers = next(
            (action for action in command._actions if isinstance(action, argparse._SubParsersAction)), None
        )
        command = command if subparsers is None else subparsers.choices.get(word, command)
    unknown = next((word for word in more if word.startswith("-") and word != "-"), more[0]).partition("=")[0]
    options = [option for action in command._actions for option in action.option_strings if option.startswith("--")]
    command.error(f"there is no option {unknown!r:.80}{did_you_mean(unknown, options)}")


def _joined(words: Sequence[str]) -> list[str]:
    """The words, with a range that begins with a minus joined to its option: argparse would take it for another."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] == "--messages" and _RANGE.fullmatch(word):
            joined[-1] = f"--messages={word}"
        else:
            joined.append(word)
    return joined


def _named(words: Sequence[str]) -> str | None:
    """The command that is named, if it can be told before anything is parsed."""
    return next((word for word in words if word in COMMANDS), None)


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of the command line. With `only`, no other command has its options, which costs less time."""
    made = argparse.ArgumentParser(
        prog="locus",
        description="Look at, compare, move and serve the threads of AI agents, in any store.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"locus {locus.__version__}")
    made.add_argument("-s", "--store", metavar="URL", help="the store, for every command")
    commands = made.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (module, about) in COMMANDS.items():
        command = commands.add_parser(name, help=about)
        if only in (None, name):
            import_module(f"locus.cli.{module}").configure(command)
    return made


_RANGE: Final = re.compile(r"-[0-9]+:(-?[0-9]+)?")

_EXAMPLES: Final = """\
  locus threads -s sqlite:///agents.db      what threads are there
  locus log THREAD --graph                  its checkpoints and forks
  locus show THREAD@~3                      what it knew three checkpoints ago
  locus COMMAND --help                      everything else

Put the URL of your store into LOCUS_STORE, and leave out -s."""
