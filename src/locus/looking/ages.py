"""Ages as people write them: `30d`, `12h`, `2w`. Pure functions."""

from __future__ import annotations

import re
from typing import Final

from locus.errors import ConfigurationError

_DAYS: Final = {"s": 1 / 86_400, "m": 1 / 1440, "min": 1 / 1440, "h": 1 / 24, "d": 1, "w": 7}
_AGE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(s|m|min|h|d|w)?")


def days(text: str) -> float:
    """A number of days: `30d`, `12h`, `2w`, or a plain number."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise ConfigurationError("give an age, such as 30d, 12h or 2w")
    return float(found[1]) * _DAYS[found[2] or "d"]
