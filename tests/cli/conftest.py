"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.terminals import Commands, commands


@pytest.fixture(scope="session")
def _commands() -> Iterator[Commands]:
    with commands() as found:
        yield found


@pytest.fixture
def locus(_commands: Commands) -> Commands:
    """Runs commands, on a terminal or through pipes."""
    _commands.environment = {}
    return _commands
