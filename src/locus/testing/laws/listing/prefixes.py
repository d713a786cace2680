"""Queries among the threads whose ids begin with a prefix, as a server makes them for a tenant."""

from __future__ import annotations

from locus.memory.checkpointer import Checkpointer
from locus.memory.model.ids import Pattern
from locus.testing.laws.base import Laws, dicts, save_each

_IDS = (
    "acme/1", "acme/2", "acme/", "acme", "acme-corp/1", "acme0", "Acme/1", "a*/1", "ab/1", "a?/1", "a%/1", "a_/1",
    "é:1", "é;1", "\ud7ff:1", "\ue000:1", "x\0:1", "x\x01:1", "\U0010ffff\U0010ffff",
)  # fmt: skip
_PREFIXES = (
    "acme/", "acme", "a*/", "a?/", "a%/", "a_/", "é:", "\ud7ff", "x\0", "x\x01", "\U0010ffff", "nobody/", "",
    "'; --:",
)  # fmt: skip


class PrefixLaws(Laws):
    """With a prefix, lists, metadata queries and searches show nothing of other threads."""

    async def test_a_prefix_limits_lists_and_is_no_syntax(self, checkpointer: Checkpointer) -> None:
        await save_each(checkpointer, _IDS, {"n": 1}, metadata={"k": "v"})
        store = checkpointer.store
        for prefix in _PREFIXES:
            expected = sorted(name for name in _IDS if name.startswith(prefix))
            newest_first = [name for name in reversed(_IDS) if name.startswith(prefix)]
            async with store.using() as engine:
                assert await engine.threads(Pattern("*", prefix), None) == expected, prefix
                assert (
                    await engine.threads(Pattern("*1", prefix), 1)
                    == [name for name in expected if name.endswith("1")][:1]
                ), prefix
            assert [entry.thread_id for entry in await store.recent(None, prefix)] == newest_first, prefix
            assert [entry.thread_id for entry in await store.recent(2, prefix)] == newest_first[:2], prefix

    async def test_a_list_goes_on_behind_an_id(self, checkpointer: Checkpointer) -> None:
        """The next page of a long list begins behind the last id of this one."""
        await save_each(checkpointer, _IDS, {"n": 1})
        async with checkpointer.store.using() as engine:
            for prefix in ("", _PREFIXES[0]):
                expected = sorted(name for name in _IDS if name.startswith(prefix))
                for after in (*_IDS, "a", "\U0010ffff"):
                    rest = [name for name in expected if name > after]
                    assert await engine.threads(Pattern("*", prefix, after), None) == rest, after
                    assert await engine.threads(Pattern("*", prefix, after), 2) == rest[:2], after

    async def test_a_prefix_limits_metadata_queries(self, checkpointer: Checkpointer) -> None:
        if not self.required.metadata_query:
            return
        for name in _IDS:
            await dicts(checkpointer).save(name, {"n": 1}, metadata={"k": "v"})
            await dicts(checkpointer).save(name, {"n": 2}, metadata={"k": "other"})
        for prefix in _PREFIXES:
            newest_first = [name for name in reversed(_IDS) if name.startswith(prefix)]
            for limit in (None, 1):
                entries = await checkpointer.store.find("k", "v", limit, prefix)
                assert [entry.thread_id for entry in entries] == newest_first[:limit], prefix

    async def test_a_prefix_limits_searches(self, checkpointer: Checkpointer) -> None:
        if not self.required.search:
            return
        await save_each(checkpointer, _IDS, {"m": ["a heron"], "head": "and a stork"})
        for prefix in _PREFIXES:
            expected = {name for name in _IDS if name.startswith(prefix)}
            for query in ("heron", "stork"):
                hits = await checkpointer.store.search(query, 100, prefix)
                assert {hit.entry.thread_id for hit in hits} == expected, prefix
                assert len(await checkpointer.store.search(query, 1, prefix)) == min(1, len(expected))

    async def test_scores_and_order_tell_nothing_of_other_threads(self, checkpointer: Checkpointer) -> None:
        if not self.required.search:
            return
        backend = dicts(checkpointer)
        filler = "something else entirely " * 10
        await backend.save("acme/1", {"m": [f"rabbit {filler} hare"]})
        await backend.save("acme/2", {"m": ["rabbit rabbit hare"]})
        await backend.save("acme/3", {"m": [f"{filler} hare hare"], "head": f"{filler} rabbit hare {filler}"})

        async def seen() -> list[tuple[str, float, str]]:
            hits = await checkpointer.store.search("rabbit hare", 10, "acme/")
            return [(hit.entry.thread_id, hit.score, hit.snippet) for hit in hits]

        before = await seen()
        assert before[0][0] == "acme/2"
        assert {thread_id for thread_id, _, _ in before} == {"acme/1", "acme/2", "acme/3"}
        for number in range(12):
            await backend.save(f"other/{number}", {"m": ["hare " * (number + 1)], "head": filler})
        assert await seen() == before
