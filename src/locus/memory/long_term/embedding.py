"""`Embedder`: whatever makes vectors of texts, as long-term memory calls it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from locus.embeddings import get_embeddings
from locus.errors import ConfigurationError, EmbeddingError
from locus.memory.long_term.items import Item
from locus.memory.long_term.vectors import Model, checked_vector, vectors_of
from locus.memory.long_term.words import said_in, searched_parts

AT_ONCE = 256
"""The most texts that are embedded in one call."""


class Embedder:
    """Makes vectors of texts, and names their model.

    `embed` is the name of one of `locus.embeddings`; a function, async or not, of a list of texts; an `Embeddings` of
    LangChain; or an object with `embed_batch`, or with `embed` for one text. `model` names the model of all but the
    first; by default it is what the object calls its model, or its class or function.
    """

    def __init__(self, embed: Any, model: str | None = None) -> None:
        given = get_embeddings(embed) if isinstance(embed, str) else embed
        self._call = _call_of(given)
        self.model = Model(_checked_name(model or (embed if isinstance(embed, str) else _name_of(given))))

    async def embed(self, texts: Sequence[str], *, stored: bool = False) -> list[list[float]]:
        """The vectors of texts: of questions, or of what is `stored`, which some models treat differently.

        Raises EmbeddingError if the embedder fails, or returns something else than a vector for each text.
        """
        vectors: list[list[float]] = []
        for start in range(0, len(texts), AT_ONCE):
            portion = list(texts[start : start + AT_ONCE])
            try:
                made = list(await self._call(portion, stored))
            except ConfigurationError:
                raise
            except Exception as error:
                raise EmbeddingError(f"the embedder {self.model.name} failed with {type(error).__name__}") from error
            if len(made) != len(portion):
                raise EmbeddingError(
                    f"the embedder {self.model.name} made {len(made)} vectors of {len(portion)} texts: a function gets "
                    "a list of texts, and returns a list of vectors"
                )
            for vector in made:
                vectors.append(checked_vector(getattr(vector, "embedding", vector), self.model.dimension))
                self.model.dimension = len(vectors[-1])
        return vectors


def texts_to_embed(item: Item) -> list[str]:
    """The texts of an item that get a vector each: all that it says, or what is at each path of its `index`."""
    return [said for part in searched_parts(item) if (said := said_in(part)).strip()]


async def with_vectors(embedder: Embedder, items: Sequence[Item]) -> list[Item]:
    """These items with their vectors: made in one call for all, if the embedder can do that."""
    texts = [texts_to_embed(item) for item in items]
    vectors = iter(await embedder.embed([text for own in texts for text in own], stored=True))
    made: list[Item] = []
    for item, own in zip(items, texts, strict=True):
        rows = [next(vectors) for _ in own]
        model = embedder.model
        made.append(replace(item, vectors=vectors_of(model.name, len(rows[0]), rows) if rows else None))
    return made


def lacks_vectors(item: Item, model: Model) -> bool:
    """Whether an item should have vectors of a model, and has none."""
    if item.vectors is not None:
        return not model.made(item.vectors)
    return bool(texts_to_embed(item))


Call = Callable[[list[str], bool], Any]


def _call_of(given: Any) -> Call:
    """A call for texts, and whether they are to be stored, from what a caller has given."""
    if callable(getattr(given, "embed_documents", None)):
        return _langchain(given)
    if callable(getattr(given, "embed_batch", None)):
        return _of_batch(given.embed_batch)
    if callable(getattr(given, "embed", None)):
        return _one_by_one(given.embed)
    if callable(given):
        return _of_batch(given)
    raise ConfigurationError(
        "embed is a name such as 'minilm', a function of a list of texts, LangChain's Embeddings, or an object with "
        f"embed or embed_batch, got {type(given).__name__}"
    )


def _langchain(given: Any) -> Call:
    async def call(texts: list[str], stored: bool) -> Any:
        if stored:
            return await given.aembed_documents(texts)
        return [await given.aembed_query(text) for text in texts]

    return call


def _of_batch(function: Any) -> Call:
    async def call(texts: list[str], _stored: bool) -> Any:
        return await _called(function, texts)

    return call


def _one_by_one(function: Any) -> Call:
    async def call(texts: list[str], _stored: bool) -> Any:
        return [await _called(function, text) for text in texts]

    return call


async def _called(function: Any, given: Any) -> Any:
    """What a function returns that may be async. One that is not may take long, and gets a thread.

    Some return their vectors inside of a result, as its `embeddings` or `embedding`.
    """
    made = await function(given) if _is_async(function) else await asyncio.to_thread(function, given)
    made = await made if inspect.isawaitable(made) else made
    return getattr(made, "embeddings", getattr(made, "embedding", made))


def _is_async(function: Any) -> bool:
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


def _name_of(given: Any) -> str:
    for name in ("model_name", "model", "model_id"):
        if isinstance(found := getattr(given, name, None), str) and found:
            return found
    return str(getattr(given, "__qualname__", type(given).__qualname__))


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise ConfigurationError(f"the name of a model has 1 to 200 characters, got {name!r:.60}")
    return name
