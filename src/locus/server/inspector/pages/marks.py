"""Words that somebody has searched or bisected stay marked on every page of a thread: its address holds them."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Final

from pydantic import Field

from locus.errors import ConfigurationError
from locus.looking.searching import marks_of
from locus.memory.model.ids import MAX_QUERY_LENGTH, query_terms
from locus.server.requests import Query, Text

MOST_TEXT: Final = 2_000


class MarksQuery(Query):
    """The query of a page that marks words."""

    text: Annotated[Text, Field(max_length=MOST_TEXT)] = ""
    """A text that was looked for as it is."""
    words: Annotated[Text, Field(max_length=MAX_QUERY_LENGTH)] = ""
    """The words of a search."""

    @property
    def terms(self) -> list[str]:
        """What is marked."""
        if self.text:
            return [self.text]
        with suppress(ConfigurationError):  # too many of them; nothing is marked then
            query_terms(self.words)
            return marks_of(self.words)
        return []

    @property
    def kept(self) -> dict[str, str]:
        """The parameters with which links carry the marks along."""
        return {name: value for name, value in (("text", self.text), ("words", self.words)) if value}
