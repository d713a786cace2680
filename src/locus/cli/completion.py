"""`locus completion`: prints the script that completes commands and options in a shell.

The scripts are made by shtab from the parser, and are part of the package, so that a user needs no shtab. A test holds
the two together; `python -m tests.cli.completions` writes them anew.
"""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from typing import Final

SHELLS: Final = ("bash", "zsh", "fish")

_DESCRIPTION = """\
Print the completion script for a shell.

  source <(locus completion bash)                                       bash, in ~/.bashrc
  locus completion zsh > "${fpath[1]}/_locus"                           zsh
  locus completion fish > ~/.config/fish/completions/locus.fish         fish"""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.add_argument("shell", choices=SHELLS, help="the shell: %(choices)s")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    sys.stdout.write(files("locus.cli").joinpath("completions", f"locus.{options.shell}").read_text(encoding="utf-8"))
    return 0
