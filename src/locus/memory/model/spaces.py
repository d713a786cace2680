"""The key spaces that a store may have beside its threads (see `Engine.key_space`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KEY_SPACES: Final[Mapping[str, str]] = {"memory": "items of long-term memory", "effects": "effects"}
"""By its name, what each space has. Whatever is about a whole store is about these, too: copies, `locus doctor`, the
server. If what it keeps ends, it says so as the `expires_at` of its payload. A space that is not listed here, such as
that of a cache, is left alone."""

DATA_KEYS: Final = "keys"
"""The key space of wrapped data keys. It belongs to what they seal, so it is neither listed nor copied by itself."""
