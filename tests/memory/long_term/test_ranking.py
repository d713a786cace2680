"""How searches of long-term memory rank: by words, by vectors and by both, held or in portions."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from math import sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, get_args

import pytest

import locus.memory.long_term.held
import locus.memory.long_term.rows
from benchmarks.recall.facts import FACTS, QUESTIONS
from locus.errors import (
    ConfigurationError,
    EmbeddingError,
    EmbeddingMismatchError,
    MissingDependencyError,
    OwedVectorsWarning,
)
from locus.memory import LongTermMemory
from locus.memory.long_term.embedding import Embedder
from locus.memory.long_term.memory import Put
from locus.memory.long_term.ranking import By
from locus.memory.long_term.rows import KEPT_ITEMS
from locus.memory.long_term.vectors import HeldVectors, Vectors, cosine, read_vectors, stored_vectors, vectors_of
from locus.memory.long_term.words import question_terms, terms_of

USER = ("users", "1")
LETTERS = "abcdefghij"


def letters(texts: Sequence[str]) -> list[list[float]]:
    """A vector of how often each of some letters is in a text, and a constant."""
    return [[float(text.lower().count(letter)) for letter in LETTERS] + [0.5] for text in texts]


def found_keys(found: Iterable[Any]) -> list[str]:
    return [hit.key for hit in found if hit.score is not None]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("running", "runs"),
        ("allergies", "allergy"),
        ("Baked", "baking"),
        ("Häuser", "häusern"),
        ("Nüsse", "NÜSSEN"),
        ("مدرسة", "المدرسة"),
        ("كِتَاب", "كتاب"),
        ("café", "CAFE"),
        ("Straße", "strasse"),
    ],
)
def test_forms_of_a_word_are_one_term(one: str, other: str) -> None:
    assert terms_of(one) == terms_of(other)


def test_numbers_and_ids_stay_as_they_are() -> None:
    assert terms_of("INC-48213 1988s a_7") == ["inc", "48213", "1988s", "a", "7"]


def test_writing_without_spaces_is_found_by_pairs_of_characters() -> None:
    assert set(terms_of("寿司")) <= set(terms_of("納豆が苦手で、寿司が大好きです"))
    assert terms_of("東京x1") == ["東京", "x1"]


def test_a_question_is_what_it_asks_for() -> None:
    assert question_terms("What is the name of the dog?") == terms_of("name dog")
    assert question_terms("who is who") == terms_of("who is")  # there are no others


async def test_rare_words_count_more_and_long_texts_less() -> None:
    memory = LongTermMemory("memory")
    facts = {"long": "red " + "apple " * 40, "short": "red apple", "rare": "red heron", "none": "nothing"}
    await memory.put_batch((USER, key, {"text": text}) for key, text in facts.items())
    assert found_keys(await memory.search((), "red heron")) == ["rare", "short", "long"]
    assert (await memory.search((), "red heron"))[0].score == 1.0
    await memory.put(USER, "number", {"room": 4711, "on": True})
    assert found_keys(await memory.search((), "4711")) == ["number"]


def _question_of(rng: random.Random) -> str:
    return " ".join(rng.choice(["abba", "cab", "dig", "fig", "jade", "head", "bead"]) for _ in range(3))


@pytest.mark.parametrize("kept_items", [KEPT_ITEMS, 20])
@pytest.mark.parametrize("where", ["memory", "sqlite"])
async def test_every_way_gives_the_answer_of_comparing_everything(
    where: str, kept_items: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held or in portions, filtered or not, in pages or at once: the answer is that of exact cosines of everything."""
    for module in (locus.memory.long_term.rows, locus.memory.long_term.held):
        monkeypatch.setattr(module, "KEPT_ITEMS", kept_items)
    rng = random.Random(7)
    url = "memory" if where == "memory" else f"sqlite:{tmp_path / 'm.db'}"
    held = LongTermMemory(url, embed=letters)
    portions = LongTermMemory(held._opened, embed=letters, index_mb=0)
    names = [f"k{number:03}" for number in range(200)]
    await held.put_batch(_puts(rng, names[::2]))
    await _compare(rng, held, portions)
    # What came later is in its place, too, and what was replaced or removed is in none.
    await held.put_batch(_puts(rng, [*names[1::2], *names[:20:2]]))
    for number in range(30, 60):
        await held.delete((*USER, str(number % 3)), names[number])
    await _compare(rng, held, portions)
    await held.close()


def _puts(rng: random.Random, names: Sequence[str]) -> Iterable[Put]:
    for name in names:
        number = int(name[1:])
        text = _question_of(rng) + " " + _question_of(rng)
        yield Put((*USER, str(number % 3)), name, {"text": text, "n": number % 10})


async def _compare(rng: random.Random, held: LongTermMemory, portions: LongTermMemory) -> None:
    filters: list[dict[str, Any]] = [{}, {"n": 3}, {"n": {"$gte": 8}}]
    for by, wanted in product(get_args(By), filters):
        query = _question_of(rng)
        vector = letters([query])[0]
        answer = await held.search(USER, query, by=by, filter=wanted, limit=40)
        assert [(hit.key, hit.score) for hit in answer] == [
            (hit.key, hit.score) for hit in await portions.search(USER, query, by=by, filter=wanted, limit=40)
        ]
        pages = [await held.search(USER, query, by=by, filter=wanted, limit=7, offset=at) for at in range(0, 40, 7)]
        assert [hit.key for page in pages for hit in page][:40] == [hit.key for hit in answer]
        if by == "vector":
            admitted = await held.search(USER, filter=wanted, limit=400)
            exact = {hit.key: _stored(letters([hit.value["text"]])[0]).similarity(vector) for hit in admitted}
            best = sorted(admitted, key=lambda hit: (-exact[hit.key], hit.namespace, hit.key))[:40]
            assert [(hit.key, hit.similarity) for hit in answer] == [(hit.key, exact[hit.key]) for hit in best]


async def test_hybrid_is_the_sum_of_both() -> None:
    memory = LongTermMemory("memory", embed=letters)
    await memory.put_batch((USER, f"k{n}", f"{'fig ' * n} cab jade") for n in range(1, 6))
    by_words = {hit.key: hit.score for hit in await memory.search((), "fig", by="words")}
    by_vector = {hit.key: hit.similarity for hit in await memory.search((), "fig", by="vector")}
    for hit in await memory.search((), "fig"):
        assert hit.score == (by_words[hit.key] or 0) + (by_vector[hit.key] or 0)
    least = sorted(by_vector.values(), key=lambda part: part or 0)[2]
    assert {hit.key for hit in await memory.search((), "fig", min_similarity=least)} == {
        key for key, part in by_vector.items() if (part or 0) >= (least or 0)
    }


def _stored(vector: Sequence[float]) -> Vectors:
    """A vector as it comes back from a store."""
    vectors = read_vectors(stored_vectors(vectors_of("m", len(vector), [vector])))
    assert vectors is not None
    return vectors


def _vectors_of_every_kind(rng: random.Random, dimension: int) -> list[list[float]]:
    """Even ones, ones with a few large numbers, short and long ones, and one without a length."""
    scales = [rng.choice([1e-30, 1e-3, 1, 3e30]) for _ in range(200)]
    vectors = [[rng.gauss(0, 1) * scale for _ in range(dimension)] for scale in scales]
    for vector, scale in zip(vectors[:50], scales, strict=False):
        vector[rng.randrange(dimension)] = 30.0 * scale
    return [*vectors, [0.0] * dimension]


def test_the_bounds_of_held_vectors_hold() -> None:
    rng = random.Random(3)
    for dimension in (1, 3, 384):
        held, exact = HeldVectors(dimension), list[float]()
        asked = [rng.gauss(0, 1) for _ in range(dimension)]
        for row, vector in enumerate(_vectors_of_every_kind(rng, dimension)):
            stored = _stored(vector)
            held.add(row, stored)
            exact.append(stored.similarity(asked))
        near, far = held.bounds(asked, len(exact))
        assert all(abs(near[row] - exact[row]) <= far[row] for row in range(len(exact)))
        assert max(far) < 0.1
        assert sorted(far)[len(far) // 2] < (0.1 if dimension < 100 else 1e-4)  # what has bytes, too, is held as it is


def test_a_stored_vector_keeps_every_cosine() -> None:
    rng = random.Random(4)
    for dimension in (1, 3, 256, 384, 1_536):
        asked = [rng.gauss(0, 1) for _ in range(dimension)]
        widths = set()
        for vector in _vectors_of_every_kind(rng, dimension):
            stored = _stored(vector)
            width = stored.numbers[0].itemsize
            error = abs(stored.similarity(asked) - cosine(vector, asked))
            assert error <= sqrt(dimension) / (1_016 if width == 1 else 2 * 32_767) + 1e-12
            widths.add(width)
        assert widths == {1, 2} or dimension == 1 or dimension == 3


async def test_stored_vectors_find_what_exact_ones_find() -> None:
    """recall@10 against single precision, of a model's vectors of facts among texts of the same words."""
    try:
        embedder = Embedder("static")
    except MissingDependencyError as error:
        pytest.skip(str(error))
    import numpy as np

    rng, spoken = random.Random(5), " ".join(FACTS.values()).split()
    others = [" ".join(rng.sample(spoken, 8)) for _ in range(2_000)]
    made = await embedder.embed([*FACTS.values(), *others], stored=True)
    asked = np.array(await embedder.embed([question for question, _ in QUESTIONS]))
    exact = np.array(made)
    kept = np.array([_stored(vector).numbers[0] for vector in made], np.float64)
    first = [np.argsort(-(asked @ some.T) / np.linalg.norm(some, axis=1), axis=1)[:, :10] for some in (exact, kept)]
    shared = [len(set(one) & set(other)) / 10 for one, other in zip(*first, strict=True)]
    assert np.mean(shared) >= 0.99


async def test_an_item_with_a_vector_takes_less_than_a_thousand_bytes(tmp_path: Path) -> None:
    rng, url, sizes = random.Random(6), f"sqlite:{tmp_path / 'm.db'}", list[int]()

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[rng.gauss(0, 1) for _ in range(384)] for _ in texts]

    for numbers in (range(1), range(1, 1_001)):
        memory = LongTermMemory(url, embed=embed, embed_model="minilm")
        await memory.put_batch(
            (("users", str(number // 10), "memories"), f"fact-{number}", {"text": "Drinks green tea in the morning."})
            for number in numbers
        )
        await memory.close()
        database = sqlite3.connect(tmp_path / "m.db")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
        sizes.append((tmp_path / "m.db").stat().st_size)
    assert (sizes[1] - sizes[0]) / 1_000 <= 1_000


async def test_what_others_change_is_seen_at_once(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'm.db'}"
    memory, other = LongTermMemory(url, embed=letters), LongTermMemory(url, embed=letters)
    for by in ("words", "vector", "hybrid"):
        await memory.put(USER, "a", "fig")
        assert found_keys(await memory.search((), "fig", by=by)) == ["a"]
        await other.put(USER, "b", "fig fig")
        assert set(found_keys(await memory.search((), "fig", by=by))) == {"a", "b"}
        await other.put(USER, "a", "cab")
        assert {hit.key: hit.value for hit in await memory.search((), "fig", by=by)} == {"a": "cab", "b": "fig fig"}
        await other.erase(())
        assert await memory.search((), "fig", by=by) == []
    await memory.close()
    await other.close()


async def test_a_search_reads_only_what_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:{tmp_path / 'm.db'}"
    memory, other = LongTermMemory(url), LongTermMemory(url)
    names = [f"k{number:02}" for number in range(40)]
    await memory.put_batch((USER, name, "fig") for name in names)
    assert found_keys(await memory.search((), "fig", limit=50)) == names

    async def unread(*_args: object) -> Any:
        raise AssertionError("all items are read again")

    monkeypatch.setattr(memory.engine, "newest", unread)
    await other.put(USER, names[0], "cab")
    await other.put((*USER, "x"), "new", "fig")
    assert found_keys(await memory.search((), "fig", limit=50)) == [*names[1:], "new"]
    await other.delete(USER, names[1])
    await other.put(USER, names[1], "cab")
    await other.delete(USER, names[2])
    await other.put((*USER, "x"), "newer", "fig", source="t")
    assert found_keys(await memory.search((), "fig", limit=50)) == [*names[3:], "new", "newer"]
    await other.erase(source="t")
    await other.delete(USER, names[3], if_version=1)
    assert found_keys(await memory.search((), "fig", limit=50)) == [*names[4:], "new"]
    await memory.close()
    await other.close()


@pytest.mark.parametrize("where", ["memory", "sqlite"])
async def test_an_item_that_was_let_live_longer_is_found_after_its_first_end(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = LongTermMemory("memory" if where == "memory" else f"sqlite:{tmp_path / 'm.db'}")
    await memory.put(USER, "ends", "fig", ttl_seconds=3_600)
    item = await memory.put(USER, "stays", "fig", ttl_seconds=3_600)
    assert found_keys(await memory.search((), "fig")) == ["ends", "stays"]
    await memory._items.refresh(replace(item, ttl_seconds=3 * 3_600))
    await memory._items.delete(USER, "ends")
    await memory.put(USER, "ends", "fig", ttl_seconds=3_600)
    assert found_keys(await memory.search((), "fig")) == ["ends", "stays"]

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Self:
            return super().now(tz) + timedelta(hours=2)

    for module in (locus.memory.long_term.held, locus.memory.long_term.store):
        monkeypatch.setattr(module, "datetime", Later)
    assert found_keys(await memory.search((), "fig")) == ["stays"]
    await memory.close()


async def test_vectors_of_another_model_are_an_error_until_they_are_made_anew(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'm.db'}"
    old = LongTermMemory(url, embed=letters, embed_model="old")
    first = await old.put(USER, "a", "fig", {"m": 1}, source="thread")
    await old.put(USER, "b", "cab")
    await old.put(USER, "none", "cab", index=False)
    new = LongTermMemory(url, embed=lambda texts: [[1.0, float(len(text))] for text in texts], embed_model="new")
    with pytest.raises(EmbeddingMismatchError, match=r"2 items .*reindex") as caught:
        await new.search(USER, "fig")
    assert caught.value.count == await new.owed() == 2
    assert found_keys(await new.search(USER, "fig", by="words")) == ["a"]

    assert await new.reindex((*USER, "x")) == 0
    assert await new.reindex() == 2
    assert await new.reindex() == 0
    again = await new.get_item(USER, "a")
    assert again is not None
    assert (again.value, again.metadata, again.source, again.created_at) == (
        "fig",
        {"m": 1},
        "thread",
        first.created_at,
    )
    assert again.vectors is not None
    assert (again.vectors.model, again.vectors.dimension) == ("new", 2)
    assert len(await new.search(USER, "fig", by="vector")) == 3
    await old.close()
    await new.close()


async def test_an_embedder_that_fails_loses_no_item() -> None:
    works = False

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        if not works:
            raise ConnectionError("no network")
        return letters(texts)

    memory = LongTermMemory("memory", embed=embed)
    with pytest.warns(OwedVectorsWarning, match="reindex"):
        await memory.put(USER, "a", "fig")
    with pytest.warns(OwedVectorsWarning):
        await memory.put_batch([(USER, "b", "cab"), (USER, "c", "jade")])
    assert await memory.owed() == 3
    assert found_keys(await memory.search((), "fig", by="words")) == ["a"]
    with pytest.raises(EmbeddingError, match="ConnectionError"):
        await memory.search((), "fig")
    works = True
    assert [(hit.key, hit.similarity) for hit in await memory.search((), "fig", limit=1)] == [("a", None)]
    assert await memory.reindex() == 3
    assert await memory.owed() == 0
    assert (await memory.search((), "fig", limit=1))[0].similarity == pytest.approx(1)


@pytest.mark.parametrize(
    "vectors", [[], [[]], [["x"]], [[float("nan")]], [[1.0], [2.0]], None, [[1e300]], [None]], ids=str
)
async def test_what_is_no_vector_is_refused(vectors: Any) -> None:
    memory = LongTermMemory("memory", embed=lambda _texts: vectors)
    with pytest.warns(OwedVectorsWarning):
        await memory.put(USER, "a", "fig")
    with pytest.raises(EmbeddingError):
        await memory.search((), "fig")
    with pytest.raises(EmbeddingError):
        await LongTermMemory("memory", embed=letters).search((), vector=[])


class WithEmbed:
    """An embedder for one text at a time, which returns results with their vectors inside."""

    model = "one-by-one"

    async def embed(self, text: str) -> Any:
        return SimpleNamespace(embedding=letters([text])[0])


class WithBatch(WithEmbed):
    model = "in-batches"

    async def embed_batch(self, texts: list[str]) -> Any:
        return [await self.embed(text) for text in texts]


def _langchain() -> Any:
    from langchain_core.embeddings import Embeddings

    class LettersOfLangChain(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return letters(texts)

        def embed_query(self, text: str) -> list[float]:
            return letters([text])[0]

    return LettersOfLangChain()


@pytest.mark.parametrize("make", [WithEmbed, WithBatch, _langchain, lambda: letters])
async def test_embedders_of_every_kind_are_called_as_they_want_it(make: Any) -> None:
    memory = LongTermMemory("memory", embed=make())
    item = await memory.put(USER, "a", {"one": "fig", "two": ["cab", 7]})
    await memory.put(USER, "b", {"one": "abc", "two": "jig"}, index=["one", "two"])
    assert item.vectors is not None
    assert item.vectors.model in ("one-by-one", "in-batches", "_langchain.<locals>.LettersOfLangChain", "letters")
    hits = await memory.search((), "jig", by="vector")
    assert [(hit.key, hit.similarity == pytest.approx(1)) for hit in hits] == [("b", True), ("a", False)]
    assert memory.sync.search((), vector=letters(["cab"])[0], limit=1)[0].similarity is not None


def test_what_cannot_work_is_refused_with_what_to_do() -> None:
    for bad in (7, object(), "nothing", "openai:", ""):
        with pytest.raises(ConfigurationError, match=r"embed|minilm"):
            LongTermMemory("memory", embed=bad)
    with pytest.raises(ConfigurationError, match="index_mb"):
        LongTermMemory("memory", index_mb=-1)


def test_numpy_is_imported_only_when_vectors_are_searched() -> None:
    code = (
        "import sys, asyncio, locus, locus.memory.long_term.memory as m\n"
        "memory = m.LongTermMemory('memory', embed=lambda texts: [[1.0] for _ in texts])\n"
        "async def main():\n"
        "    await memory.put(('u',), 'k', 'fig')\n"
        "    assert len(await memory.search((), 'fig', by='words')) == 1\n"
        "asyncio.run(main())\n"
        "assert 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("name", "dimension"), [("minilm", 384), ("static", 256)])
async def test_models_from_wheels_know_what_is_similar(name: str, dimension: int) -> None:
    try:
        memory = LongTermMemory("memory", embed=name)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    facts = {"dog": "has a border collie named Pixel", "tea": "drinks green tea", "car": "drives an old Skoda"}
    await memory.put_batch((USER, key, text) for key, text in facts.items())
    best = (await memory.search((), "which beverage does she like", by="vector"))[0]
    assert (best.key, best.vectors and best.vectors.dimension) == ("tea", dimension)
