"""The name that somebody most likely meant, for errors about names that do not exist."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'model'?)`, to follow the wrong name in an error; nothing where no known name is near."""
    from difflib import get_close_matches  # only errors need it

    near = get_close_matches(name[:80], list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
