"""The numbers of stored formats, which say whether this version of Locus may use a store.

A store has the number of its format. From a version that knows that number, or a higher one, everything is possible.
Beside it stands, for those that know only lower numbers, from which on they may still read and write: so that workers
can be upgraded one at a time, if a new format allows that. Where nothing stands there, none of them may.
"""

from __future__ import annotations

from locus.errors import UnsupportedFormatError

OLDEST_READER, OLDEST_WRITER = "min_reader", "min_writer"
"""What stands beside the number of a format: the lowest number that a reader, or a writer, has to know."""


def oldest(reading: bool) -> str:
    return OLDEST_READER if reading else OLDEST_WRITER


def check_format(found: int, known: int, least: object, subject: str) -> None:
    """Refuse a store whose format is newer. `least` is the lowest format that a version must know to use it.

    `subject` is the store with its verb: "the tables have".
    """
    if found <= known or (isinstance(least, int) and least <= known):
        return
    raise UnsupportedFormatError(
        f"{subject} format {found}, and this version of Locus knows up to {known}: upgrade locus-state"
    )
