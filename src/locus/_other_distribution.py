"""Refuses to run mixed with `locus-sdk`, Oracle's agent framework, which is imported as `locus` as well.

Both distributions install into the folder `locus`, and the one that comes last overwrites files of the other. The
mixture behaves partly like one and partly like the other. It shows by modules that only `locus-sdk` has; looking for
two of them is cheap enough for every import.
"""

from __future__ import annotations

from pathlib import Path

THEIRS = ("core/reducers.py", "a2a/__init__.py")
"""Files of `locus-sdk`, from its first release to 3.0.1, that Locus does not have."""


def refuse_mixture() -> None:
    folder = Path(__file__).parent
    if any((folder / name).exists() for name in THEIRS):
        raise ImportError(
            "locus-state and locus-sdk are both installed in this environment. Both are imported as `locus`, so they "
            "have overwritten each other's files. Remove both with `pip uninstall locus-state locus-sdk`, then install "
            "the one you need: they cannot share an environment"
        )
