"""`LocusMemoryStore`: what is known about a user, as a memory store of Strands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strands.memory import AddMessagesContext, ExtractionConfig, MemoryEntry, SearchOptions
from strands.memory import MemoryStore as StrandsMemoryStore
from strands.types.content import Message

from locus.memory.long_term import Facts, LongTermMemory
from locus.memory.long_term.facts import LONGEST, MOST_RECALLED, text_of


class LocusMemoryStore(StrandsMemoryStore):
    """The facts about one user in a long-term memory, for Strands' `MemoryManager`.

    `add` keeps a fact, and one that is there already changes nothing. `add_messages` keeps the words of each message as
    facts: nothing asks a model what is worth keeping. `source` says who teaches, mostly the id of a session (see
    `LongTermMemory.erase`). The other parameters are those of Strands' stores.
    """

    def __init__(
        self,
        memory: LongTermMemory,
        user_id: str,
        *,
        name: str = "memories",
        description: str | None = "What is known about the user from earlier conversations.",
        max_search_results: int | None = None,
        writable: bool = True,
        extraction: ExtractionConfig | bool | None = None,
        source: str | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.max_search_results = max_search_results
        self.writable = writable
        self.extraction = extraction
        self._facts = Facts(memory, user_id)
        self._source = source

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        """The facts that fit a query best."""
        limit = (options or {}).get("max_search_results") or self.max_search_results or MOST_RECALLED
        return [
            MemoryEntry(text_of(fact), metadata={**fact.metadata, "key": fact.key, "score": fact.score})
            for fact in await self._facts.recall(query, limit=limit)
        ]

    async def add(self, content: str, metadata: dict[str, Any] | None = None) -> str:
        """Keep a fact, and return its key."""
        return await self._facts.remember(content, source=self._source, metadata=metadata)

    async def add_messages(self, messages: list[Message], context: AddMessagesContext | None = None) -> list[str]:
        """Keep what messages say, and return the keys."""
        said = [(message["role"], piece) for message in messages for piece in _pieces(message)]
        return [await self.add(piece, {"role": role}) for role, piece in said]


def _pieces(message: Message) -> Sequence[str]:
    """The texts of a message, in pieces that a fact may have."""
    texts = (block["text"].strip() for block in message["content"] if "text" in block)
    return [text[start : start + LONGEST] for text in texts for start in range(0, len(text), LONGEST)]
