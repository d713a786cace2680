"""`python -m benchmarks.recall [--embed minilm]`: recall@10 of the facts, by each way of ranking them.

"words shared" is the fraction of the question's words that occur in a fact, as `LocusStore` ranks without an index.
Ties are broken by key, and a question counts by the fraction of its facts that are among the first ten.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from benchmarks.recall.facts import FACTS, QUESTIONS
from locus.memory import LongTermMemory
from locus.memory.long_term.ranking import By
from locus.memory.model.ids import words

USER = ("users", "1", "memories")
FIRST = 10

Way = Callable[[str], Awaitable[list[str]]]


async def recall(way: Way) -> float:
    """The mean fraction of the facts that answer a question among the first ten."""
    total = 0.0
    for question, wanted in QUESTIONS:
        total += len(set(wanted) & set(await way(question))) / len(wanted)
    return total / len(QUESTIONS)


async def shared(question: str) -> list[str]:
    asked = set(words(question))
    scores = {key: len(asked.intersection(words(fact))) for key, fact in FACTS.items()}
    return sorted((key for key in FACTS if scores[key]), key=lambda key: (-scores[key], key))[:FIRST]


async def measured(embeds: list[str]) -> dict[str, float]:
    """Recall by each way."""
    found = {"words shared": await recall(shared)}
    for embed in ["", *embeds]:
        memory = LongTermMemory("memory", embed=embed or None)
        await memory.put_batch((USER, key, {"text": fact}) for key, fact in FACTS.items())
        ways: tuple[By, ...] = ("vector", "hybrid") if embed else ("words",)
        for by in ways:

            async def way(question: str, by: By = by, memory: LongTermMemory = memory) -> list[str]:
                hits = await memory.search(USER, question, by=by, limit=FIRST)
                return [hit.key for hit in hits if hit.score is not None]

            found["BM25" if by == "words" else f"{by} ({embed})"] = await recall(way)
        await memory.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall", description=__doc__)
    parser.add_argument("--embed", action="append", help="a name of locus.embeddings; by default minilm and static")
    arguments = parser.parse_args()
    print(f"{len(FACTS)} facts, {len(QUESTIONS)} questions")
    for name, figure in asyncio.run(measured(arguments.embed or ["minilm", "static"])).items():
        print(f"{name:18} recall@{FIRST} {figure:.3f}")


if __name__ == "__main__":
    main()
