"""The completion scripts are those that shtab makes of the parser, and they are shipped."""

from __future__ import annotations

import pytest

from locus.cli import main
from locus.cli.completion import SHELLS
from tests.cli.completions import FOLDER, generated


@pytest.mark.parametrize("shell", SHELLS)
def test_they_are_current(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    again = "write them anew with `python -m tests.cli.completions`"
    assert (FOLDER / f"locus.{shell}").read_text(encoding="utf-8") == generated(shell), again
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == generated(shell)
