"""Search: words in what is stored, old items included; queries are only text."""

from __future__ import annotations

from typing import Any

import pytest

from locus.core.messages import ContentBlock, Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError, LocusError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import HOSTILE_IDS, HOSTILE_QUERIES, conversation, message
from locus.testing.laws.base import Laws, OpenHandle, dicts, snapshot


async def _places(handle: Checkpointer, query: str) -> set[tuple[str, str]]:
    found = await handle.search(query, 1_000)
    return {(hit["thread_id"], hit["checkpoint_id"]) for hit in found}


class SearchLaws(Laws):
    """`search` finds words in all text that is stored, and takes queries as text."""

    async def test_words_are_found_at_the_checkpoint_that_brought_them(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        state, saved = AgentState(), []
        for turn, word in enumerate(("xylophone", "quokka", "zeppelin")):
            state = state.with_messages([*conversation(3, turn), Message.user(f"I saw a {word}, you know")])
            saved.append(await checkpointer.save(state, "t"))
        for handle in (checkpointer, open_handle()):
            for word, checkpoint_id in zip(("xylophone", "quokka", "zeppelin"), saved, strict=True):
                assert await _places(handle, word) == {("t", checkpoint_id)}

    async def test_the_hit_says_where_how_well_and_what(self, checkpointer: Checkpointer) -> None:
        text = f"{'before ' * 80} the needle is here {'after ' * 80}"
        saved_as = await checkpointer.save(
            AgentState().with_message(Message.user(text)), "t", metadata={"user": "eve"}, namespace="n"
        )
        (hit,) = await checkpointer.search("needle")
        assert (hit["thread_id"], hit["checkpoint_id"], hit["namespace"]) == ("t", saved_as, "n")
        assert hit["metadata"] == {"user": "eve"}
        assert isinstance(hit["score"], float)
        assert "needle" in hit["snippet"]
        assert len(hit["snippet"]) < len(text) / 2

    async def test_all_kinds_of_text_are_found(self, checkpointer: Checkpointer) -> None:
        state = (
            AgentState(agent_id="agentname", free={"inner": ["freefield"]})  # type: ignore[call-arg]
            .with_messages([message(0), Message.user([ContentBlock.of_text("blocktext")])])
            .with_error("errorword")
            .with_metadata({"key": "metaword", "large": "largeword " * 300, "list": [["listword"]]})
        )
        await checkpointer.save(state, "t")
        await dicts(checkpointer).save("d", {"a": {"b": [{"c": "dictword"}]}, "text": "plainword"})
        for word in ("agentname", "freefield", "blocktext", "errorword", "metaword", "largeword", "listword"):
            assert {thread for thread, _ in await _places(checkpointer, word)} == {"t"}, word
        for word in ("dictword", "plainword"):
            assert {thread for thread, _ in await _places(checkpointer, word)} == {"d"}, word

    async def test_case_does_not_count(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {"m": ["The Örtliche ЖУК Naïve ÉTÉ"]})
        for query in ("the", "THE", "örtliche", "ÖRTLICHE", "жук", "Жук", "NAÏVE", "été"):
            assert {thread for thread, _ in await _places(checkpointer, query)} == {"t"}, query

    async def test_every_word_is_found_by_itself(self, checkpointer: Checkpointer) -> None:
        """Folding the case may change the letters of a word, or their number."""
        words = [
            "Größte",
            "Σίσυφος",
            "İstanbul",
            "ırmak",
            "ﬁsch",
            "ŉ",
            "ǅ",
            "e\u0301te\u0301",
            "日本語",
            "x1y2",
            "½",
            "٣",
        ]
        for index, word in enumerate(words):
            await dicts(checkpointer).save(f"t{index}", {"m": [f"about {word}, then"]})
        for index, word in enumerate(words):
            threads = {thread for thread, _ in await _places(checkpointer, word)}
            assert f"t{index}" in threads, word

    async def test_all_words_of_a_query_have_to_be_there(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("a", {"m": ["red apples and green pears"]})
        await dicts(checkpointer).save("b", {"m": ["red cars"]})
        assert {thread for thread, _ in await _places(checkpointer, "red")} == {"a", "b"}
        assert {thread for thread, _ in await _places(checkpointer, "pears red")} == {"a"}
        assert {thread for thread, _ in await _places(checkpointer, "red, cars!")} == {"b"}
        assert await _places(checkpointer, "red elephants") == set()

    async def test_words_are_matched_whole(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {"m": ["understanding"]})
        assert await _places(checkpointer, "stand") == set()
        assert len(await _places(checkpointer, "understanding")) == 1

    async def test_the_best_comes_first_and_the_limit_holds(self, checkpointer: Checkpointer) -> None:
        filler = "something else entirely " * 40
        for number in range(12):
            await dicts(checkpointer).save(f"t{number:02}", {"m": [f"{filler} rabbit {filler}"]})
        await dicts(checkpointer).save("best", {"m": ["rabbit rabbit rabbit"]})
        hits = await checkpointer.search("rabbit", 5)
        assert len(hits) == 5
        assert hits[0]["thread_id"] == "best"
        scores = [hit["score"] for hit in hits]
        assert scores == sorted(scores, reverse=True)
        assert len(await checkpointer.search("rabbit")) == 10
        assert len(await checkpointer.search("rabbit", 100)) == 13
        assert await checkpointer.search("rabbit", 0) == []

    async def test_a_checkpoint_is_found_once(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {"a": ["pelican"], "b": {"c": ["pelican"] * 20}, "d": "pelican"})
        assert len(await checkpointer.search("pelican")) == 1

    async def test_queries_are_data(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {"m": ["an ordinary sentence"]}, metadata={"k": "v"})
        before = await snapshot(checkpointer)
        for query in (*HOSTILE_QUERIES, *HOSTILE_IDS):
            found = await checkpointer.search(query)
            assert found == [], query
        assert await snapshot(checkpointer) == before
        for query in ('"ordinary"', "ordinary*", "-ordinary", "ordinary)", "(ordinary", "m:ordinary ordinary"):
            assert all(hit["thread_id"] == "t" for hit in await checkpointer.search(query))
        assert len(await checkpointer.search('"ordinary" sentence!')) == 1

    async def test_words_that_are_operators_elsewhere_are_words(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {"m": ["this and that or not near"]})
        await dicts(checkpointer).save("u", {"m": ["this that"]})
        for query in ("this AND that", "this OR that", "NOT", "near", "AND"):
            assert {thread for thread, _ in await _places(checkpointer, query)} == {"t"}, query

    async def test_deleted_text_is_found_no_more(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        backend = dicts(checkpointer)
        await backend.save("t", {"m": ["heron"], "head": "ostrich"}, "a")
        await backend.save("t", {"m": ["magpie"], "large": "albatross " * 200}, "b")
        await backend.save("u", {"m": ["kestrel"]}, "c")
        assert await backend.delete("t", "a")
        for handle in (checkpointer, open_handle()):
            assert await _places(handle, "heron") == set()
            assert await _places(handle, "ostrich") == set()
            assert await _places(handle, "magpie") == {("t", "b")}
        await backend.save("t", {"m": ["wren"]}, "b")
        assert await _places(checkpointer, "magpie") == set()
        assert await _places(checkpointer, "albatross") == set()
        assert await backend.delete("t")
        assert await _places(checkpointer, "wren") == set()
        assert await _places(checkpointer, "kestrel") == {("u", "c")}

    async def test_text_moves_on_when_the_checkpoint_that_brought_it_is_deleted(
        self, checkpointer: Checkpointer
    ) -> None:
        state = AgentState().with_message(Message.user("a cormorant"))
        first = await checkpointer.save(state, "t")
        later = {await checkpointer.save(state.with_messages(conversation(n + 1)), "t") for n in range(2)}
        assert await _places(checkpointer, "cormorant") == {("t", first)}
        assert await checkpointer.delete("t", first)
        places = await _places(checkpointer, "cormorant")
        assert places
        assert places <= {("t", name) for name in later}

    async def test_a_hit_is_a_checkpoint_that_has_the_text(self, checkpointer: Checkpointer) -> None:
        """A trimmed message may still be stored beside others, although no checkpoint shows it."""
        state = AgentState().with_messages([Message.user("a pangolin"), *conversation(3)])
        first = await checkpointer.save(state, "t")
        trimmed = await checkpointer.save(state.with_messages_replaced(state.messages[1:]), "t")
        assert await _places(checkpointer, "pangolin") == {("t", first)}
        assert await checkpointer.delete("t", first)
        assert await checkpointer.exists("t", trimmed)
        assert await _places(checkpointer, "pangolin") == set()

    async def test_keys_and_bookkeeping_are_not_text(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("threadname", {"keyname": ["x"]}, "checkpointname")
        for word in ("keyname", "threadname", "checkpointname", "default"):
            assert await _places(checkpointer, word) == set(), word

    async def test_a_word_counts_once_however_often_it_is_asked_for(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {"m": ["heron and stork"]})
        await dicts(checkpointer).save("u", {"m": ["heron"]})
        once = await checkpointer.search("heron stork")
        assert [hit["thread_id"] for hit in once] == ["t"]
        assert await checkpointer.search("heron stork " * 800) == once

    async def test_a_query_of_many_words_is_answered_or_refused(self, checkpointer: Checkpointer) -> None:
        spoken = [f"word{number}" for number in range(100)]
        await dicts(checkpointer).save("t", {"m": [" ".join(spoken)]})
        await dicts(checkpointer).save("u", {"m": [" ".join(spoken[1:])]})
        assert await _places(checkpointer, " ".join(spoken)) == {
            ("t", (await checkpointer.history("t"))[0].checkpoint_id)
        }
        for query in (" ".join([*spoken, "another"]), "x" * 20_000, "e\u0301\u0323" * 1_000_000):
            with pytest.raises(ConfigurationError, match="at most"):
                await checkpointer.search(query)

    async def test_terms_are_words_and_nothing_else(self, checkpointer: Checkpointer) -> None:
        """Terms reach an engine from a server's clients, and could otherwise be syntax of its database."""
        await dicts(checkpointer).save("t", {"m": ["İstanbul and x1y2"]})
        for words in (["i\u0307stanbul"], ["x1y2", "and"], ["and", "and"]):
            assert [hit.entry.thread_id for hit in await checkpointer.store.search_terms(words, 10)] == ["t"], words
        for term in ('"', "\\", "'", "a b", "x*", "-x", "a&b", "@words", "and|x", "AND", "", " ", "_", "\0", "i\u0301"):
            with pytest.raises(ConfigurationError):
                await checkpointer.store.search_terms([term], 10)

    async def test_a_query_that_is_no_text_is_refused(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {"m": ["word"]})
        bad: Any
        for bad in (None, 5, b"word", {"match_all": {}}, ["word"], "\ud800"):
            with pytest.raises(LocusError):
                await checkpointer.search(bad)

    async def test_a_limit_of_a_search_that_is_no_number_is_refused(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {"m": ["word"]})
        bad: Any
        for bad in (-1, "5", 1.5):
            with pytest.raises(ConfigurationError):
                await checkpointer.search("word", bad)

    async def test_a_search_without_a_limit_is_never_empty(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {"m": ["word"]})
        none: Any = None
        try:
            found = await checkpointer.search("word", none)
        except ConfigurationError:
            found = await checkpointer.search("word", 1)
        assert len(found) == 1

    async def test_a_search_has_a_deadline_and_says_when_it_stopped(self, checkpointer: Checkpointer) -> None:
        for number in range(3):
            await dicts(checkpointer).save(f"t{number}", {"messages": ["a wombat"]})
        whole = await checkpointer.search("wombat")
        assert (len(whole), whole.complete) == (3, True)
        cut = await checkpointer.search("wombat", timeout_seconds=1e-9)
        assert len(cut) == 3 or not cut.complete
        assert await checkpointer.search("wombat", timeout_seconds=60) == whole
        nothing = await checkpointer.search("kookaburra")
        assert (nothing, nothing.complete) == ([], True)
        bad: Any
        for bad in (0, -1, None, "1", True):
            with pytest.raises(ConfigurationError, match="timeout_seconds"):
                await checkpointer.search("wombat", timeout_seconds=bad)
