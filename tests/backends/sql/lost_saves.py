"""What a handle that remembers a thread does if the server has lost saves: in a failover, or with an older backup."""

from __future__ import annotations

from typing import Any

import pytest

from locus.memory.backends.sql.engine import SQLServerEngine
from locus.memory.model.records import Commit, Outcome, Run, Verdict
from tests.backends.sql.grouped import after, first


async def alter(engine: SQLServerEngine[Any], statement: str, *texts: str) -> None:
    """Behind the back of the engine."""
    connection = await engine._connect()
    try:
        await connection.begin(writing=True)
        await connection.execute(statement, [engine.sql.text(text) for text in texts])
        await connection.commit()
    finally:
        connection.close()


class LostSaveLaws:
    """Inherit, and provide the fixtures `engine` and `other`: two handles on tables that are set up, and empty."""

    async def save(self, engine: SQLServerEngine[Any], commit: Commit) -> Outcome:
        return await engine.commit(commit)

    async def ids(self, engine: SQLServerEngine[Any], thread_id: str) -> list[str]:
        return [entry.checkpoint_id for entry in await engine.history(thread_id, None, None, None)]

    async def test_another_thread_has_the_key_of_the_one_that_was_lost(self, engine: SQLServerEngine[Any]) -> None:
        """Even if it has the same checkpoint, as a copy has."""
        await engine.commit(first("lost"))
        threads = engine.sql.threads
        await alter(engine, f"UPDATE {threads} SET thread_id = ? WHERE thread_id = ?", "another", "lost")
        assert (await self.save(engine, after("a", "lost", "b"))).verdict is Verdict.STALE_BASE
        assert await self.ids(engine, "another") == ["a"]
        assert await self.ids(engine, "lost") == []

    @pytest.mark.parametrize(
        ("saved", "rev"), [("c", "rev-c"), ("b", "another rev")], ids=["another id", "the same id"]
    )
    async def test_others_have_saved_as_many_as_were_lost(
        self, engine: SQLServerEngine[Any], other: SQLServerEngine[Any], saved: str, rev: str
    ) -> None:
        """The thread has the number that the handle remembers, and what that was given to is another checkpoint."""
        await self.save(engine, first("t"))
        await self.save(engine, after("a", "t", "b"))
        await self._lose_the_last(engine)
        assert await other.commit(after("a", "t", saved, rev=rev)) == Outcome(Verdict.COMMITTED, 2, "a")
        theirs = await other.read("t", "default", None)
        assert (await self.save(engine, _third())).verdict is Verdict.STALE_BASE
        assert await self.ids(engine, "t") == [saved, "a"]
        assert await other.read("t", "default", None) == theirs

    async def test_a_copy_has_what_was_lost(self, engine: SQLServerEngine[Any], other: SQLServerEngine[Any]) -> None:
        """It does not stand for it."""
        await self.save(engine, first("t"))
        await self.save(engine, after("a", "t", "b"))
        assert await engine.copy("t", "copy", None) == 2
        await self._lose_the_last(engine)
        await other.commit(after("a", "t", "c"))
        assert (await self.save(engine, _third())).verdict is Verdict.STALE_BASE
        assert await self.ids(engine, "t") == ["c", "a"]
        assert await self.ids(engine, "copy") == ["b", "a"]

    async def _lose_the_last(self, engine: SQLServerEngine[Any]) -> None:
        """The second checkpoint of the thread."""
        sql = engine.sql
        of_thread = f"thread = (SELECT id FROM {sql.threads} WHERE thread_id = ?)"
        await alter(engine, f"DELETE FROM {sql.checkpoints} WHERE seq = 2 AND {of_thread}", "t")
        await alter(engine, f"DELETE FROM {sql.runs} WHERE seq = 2 AND {of_thread}", "t")
        await alter(engine, f"UPDATE {sql.threads} SET last_seq = 1 WHERE thread_id = ?", "t")


def _third() -> Commit:
    """Goes on from the checkpoint b, with the branch that a has begun."""
    manifest = '[[["messages"],[["of-a",2,0,3]]]]'
    return after("b", "t", "d", runs=(Run("of-a", 2, 2, 1, '["d"]'),), manifest=manifest)
