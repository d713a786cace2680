"""The completion scripts, as shtab makes them from the parser. `python -m tests.cli.completions` writes them."""

from __future__ import annotations

from pathlib import Path

import shtab

import locus.cli
from locus.cli.completion import SHELLS

FOLDER = Path(locus.cli.__file__).parent / "completions"


def generated(shell: str) -> str:
    made: str = shtab.complete(locus.cli.parser(), shell)
    return made.rstrip() + "\n"


def main() -> None:
    for shell in SHELLS:
        (FOLDER / f"locus.{shell}").write_text(generated(shell), encoding="utf-8")


if __name__ == "__main__":
    main()
