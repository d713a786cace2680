"""What the extra `vectors` brings: items that are found by the vectors of a function.

python -m tests.versions.smoke.vectors
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from locus.memory import get_long_term_memory

WORDS = ("tea", "coffee", "rain")


def embed(texts: Sequence[str]) -> list[list[float]]:
    """A vector of three words, which is enough to tell three facts apart."""
    return [[float(word in text) for word in WORDS] for text in texts]


async def main() -> None:
    async with get_long_term_memory("memory", embed=embed, embed_model="three words") as memory:
        for word in WORDS:
            await memory.put(("facts",), word, {"text": f"It is about {word}."})
        (found,) = await memory.search(("facts",), "coffee", by="vector", limit=1)
        assert (found.key, found.similarity) == ("coffee", 1.0)


if __name__ == "__main__":
    asyncio.run(main())
