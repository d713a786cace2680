"""What the tests of moves share."""

from tests.cli.conftest import _commands, locus

__all__ = ["_commands", "locus"]
