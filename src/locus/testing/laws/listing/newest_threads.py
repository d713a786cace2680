"""The newest threads, each once, page by page."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError, InvalidIdError
from locus.memory.checkpointer import Checkpointer, RecentThreads, ThreadSummary
from locus.testing.laws.base import Clock, Laws, dicts, save_each

_MOST_PAGES = 100


def checked(page: RecentThreads, limit: int) -> RecentThreads:
    """The page, after asserting that it does not contradict itself."""
    assert len(page.threads) <= limit
    assert page.more == (page.next is not None)
    for thread in page.threads:
        assert thread.last.thread_id == thread.thread_id
        assert thread.count == thread.last.seq
    return page


async def all_pages(checkpointer: Checkpointer, limit: int, **options: Any) -> list[ThreadSummary]:
    """All threads, put together from pages."""
    page = checked(await checkpointer.recent_threads(limit, **options), limit)
    threads = list(page.threads)
    for _ in range(_MOST_PAGES):
        if not page.more:
            return threads
        page = checked(await checkpointer.recent_threads(limit, before=page.next, **options), limit)
        threads += page.threads
    raise AssertionError("the pages do not end")


class NewestThreadLaws(Laws):
    """`recent_threads` lists each thread once, the last saved first."""

    @pytest.mark.parametrize("seed", range(2))
    async def test_the_newest_threads_come_first_and_each_once(self, checkpointer: Checkpointer, seed: int) -> None:
        random, backend = Random(seed), dicts(checkpointer)
        names, places = ("a/1", "a/2", "A/1", "b", "b%", "b ", "😀"), ("default", "", "sub:1")
        checkpoints: dict[str, list[tuple[str, str]]] = {}
        """The checkpoints of each thread, and the threads in the order of their last saves."""
        moved: set[str] = set()
        """Threads whose newest checkpoint was deleted: they may still stand where that was."""
        for number in range(22):
            name, step = random.choice(names), random.random()
            known = checkpoints.get(name, [])
            if step < 0.7 or not known:
                checkpoint_id, place = f"c{number}", random.choice(places)
                options: dict[str, Any] = {}
                if known and step < 0.2:
                    options["parent"], place = random.choice(known)
                await backend.save(name, {}, checkpoint_id, {"n": number}, namespace=place, **options)
                checkpoints[name] = [*checkpoints.pop(name, []), (checkpoint_id, place)]
                moved.discard(name)
            elif step < 0.95:
                chosen = known[-1] if step < 0.85 else random.choice(known)
                await backend.delete(name, chosen[0], namespace=chosen[1])
                if chosen == known[-1]:
                    moved.add(name)
                known.remove(chosen)
            else:
                await backend.delete(name)
                known.clear()
            if not checkpoints[name]:
                del checkpoints[name]
        for prefix, limits in {"": (2, 50), "a/": (1,), "b": (2,), "nobody": (5,)}.items():
            expected = [name for name in reversed(checkpoints) if name.startswith(prefix)]
            for limit in limits:
                threads = await all_pages(checkpointer, limit, prefix=prefix)
                assert sorted(thread.thread_id for thread in threads) == sorted(expected), (prefix, limit)
                unmoved = [thread.thread_id for thread in threads if thread.thread_id not in moved]
                assert unmoved == [name for name in expected if name not in moved], (prefix, limit)
                for thread in threads:
                    assert (thread.last.checkpoint_id, thread.last.namespace) == checkpoints[thread.thread_id][-1]
                    assert thread.last.metadata == {"n": int(thread.last.checkpoint_id[1:])}
                    assert thread.title is None

    async def test_threads_of_the_same_time_are_listed_once(self, checkpointer: Checkpointer, clock: Clock) -> None:
        clock.stop(datetime(2026, 1, 1, tzinfo=UTC))
        names = [f"t{number}" for number in range(7)]
        await save_each(checkpointer, (*names, *names[:3]))
        for limit in (1, 2, 3):
            found = [one.thread_id for one in await all_pages(checkpointer, limit)]
            assert sorted(found) == names

    async def test_a_busy_thread_hides_no_other(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        quiet = ["q0", "q1", "q2"]
        await save_each(checkpointer, quiet)
        for number in range(25):
            await backend.save("busy", {"n": number})
        assert {thread["thread_id"] for thread in await checkpointer.list_with_metadata(10)} == {"busy"}
        threads = await all_pages(checkpointer, 10)
        assert [thread.thread_id for thread in threads] == ["busy", *reversed(quiet)]
        assert threads[0].count == 25
        assert [thread.thread_id for thread in await all_pages(checkpointer, 1, prefix="q")] == quiet[::-1]

    async def test_no_thread_is_on_two_pages_while_others_are_saved_to(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        names = [f"t{number}" for number in range(9)]
        await save_each(checkpointer, names)
        staying, active = {"t1", "t3", "t5", "t7"}, ["t8", "t0", "t6", "t2"]
        listed: list[str] = []
        page = await checkpointer.recent_threads(2)
        while True:
            listed += [thread.thread_id for thread in page.threads]
            if not page.more:
                break
            if active:
                await backend.save(active.pop(), {"again": True})
                await backend.delete(active.pop())
            await backend.save(f"new{len(listed)}", {})
            page = checked(await checkpointer.recent_threads(2, before=page.next), 2)
        assert len(listed) == len({*listed})
        assert staying <= {*listed}
        assert not any(name.startswith("new") for name in listed)

    async def test_a_title_is_what_a_user_said_first(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        state = (
            AgentState().with_message(Message.system("Be brief.")).with_message(Message.user("Where  is\nmy\tparcel?"))
        )
        for number in range(3):
            state = state.with_message(Message.assistant(f"Answer {number}"))
            await checkpointer.save(state, "agent")
        graph: dict[str, Any] = {"langgraph": 1, "channel_values": {"messages": []}}
        for text in ("Hello graph", "Hello again"):
            graph["channel_values"]["messages"].append({"$type": "HumanMessage", "content": text, "type": "human"})
            if checkpointer.store.keeps_writes:
                await backend.save("graph", graph, namespace="")
                await backend.save("graph", {"channel_values": {"x": 1}}, namespace="inner:1")
        content = [{"type": "input_text", "text": "x" * 300}, {"type": "input_image", "image_url": "data:…"}]
        items = [{"type": "reasoning"}, {"role": "user", "content": content}]
        await backend.save("session", {"items": items})
        await backend.save("none", {"n": 1})
        await backend.save("empty", {"messages": []})
        await backend.save("odd", {"messages": [1, None, {"role": 5}]})
        await backend.save("other", {"messages": {"user": "x"}, "items": "y"})
        page = await checkpointer.recent_threads(titles=True)
        expected = {"agent": "Where is my parcel?", "session": "x" * 200}
        if checkpointer.store.keeps_writes:
            expected["graph"] = "Hello graph"
        assert {thread.thread_id: thread.title for thread in page.threads if thread.title is not None} == expected
        assert {thread.title for thread in (await checkpointer.recent_threads()).threads} == {None}

    async def test_a_cursor_of_nobody_is_refused(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {})
        bad: Any
        for bad in ("", "x", "-1", "1.5", "1e9", "'; --", ":", "9" * 30, "x" * 10_000, 5, b"1", ["1"], "\ud800"):
            with pytest.raises((ConfigurationError, InvalidIdError)):
                await checkpointer.recent_threads(10, before=bad)
        for bad in (5, None, "\ud800"):
            with pytest.raises(InvalidIdError):
                await checkpointer.recent_threads(10, prefix=bad)
        with pytest.raises(ConfigurationError):
            await checkpointer.recent_threads(-1)
        assert await checkpointer.recent_threads(0) == RecentThreads((), False, None)
        assert (await checkpointer.recent_threads(prefix="x" * 300)).threads == ()

    async def test_every_list_takes_a_prefix(self, checkpointer: Checkpointer) -> None:
        await save_each(checkpointer, ("a/1", "a/2", "b/1"), {"m": ["a heron"]}, metadata={"k": "v"})
        for prefix, expected in {"a/": ["a/2", "a/1"], "b": ["b/1"], "%": [], "": ["b/1", "a/2", "a/1"]}.items():
            entries = await checkpointer.list_with_metadata(prefix=prefix)
            assert [entry["thread_id"] for entry in entries] == expected
            if self.required.metadata_query:
                entries = await checkpointer.query_by_metadata("k", "v", prefix=prefix)
                assert [entry["thread_id"] for entry in entries] == expected
            if self.required.search:
                hits = await checkpointer.search("heron", prefix=prefix)
                assert sorted(hit.thread_id for hit in hits) == sorted(expected)
