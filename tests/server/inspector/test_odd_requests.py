"""Numbers, paths, times and names that no page has made: a mistake of the sender, and no failure of the server."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from locus.memory.backends import sqlite_checkpointer
from locus.memory.storage import StorageBackend
from tests.server.inspector.access import looking

NINES = "9" * 20
DEEP = "[" * 1_900


@pytest.mark.parametrize(
    "url",
    [
        f"/t/t?before={NINES}",
        f"/t/t?before={NINES[:18]}",
        "/t/t?ns=%00",
        "/t/t?at=9999-12-31T23:59:59-23:59",
        "/t/t?at=0001-01-01T00:00:00%2B23:59",
        f"/t/t/diff?a={NINES}&b=1",
        f"/t/t/diff/a/a?start={NINES[:12]}",
        f"/t/t/c/a?from={NINES}",
        "/t/t/c/a?ns=%00",
        "/t/t/c/a?at=9999-12-31T23:59:59-23:59",
        "/t/t/c/a?path=%5B%22%5Cud800%22%5D",
        "/t/t/c/a?path=%5B%22messages%22%2C%22a%22%5D",
        f"/t/t/c/a?path={DEEP}",
        "/t/t/c/a?view=value&path=%5B%22a%22%5D",
        "/t/t/follow?ns=%ff",
        f"/t/t/stats?keep_last={NINES[:10]}",
        "/t/t/stats?older_than=99999999999999999d",
        "/t/t/export?format=md&ns=%00",
        f"/t/t/bisect?path=n&equals={DEEP}",
        f"/t/t/bisect?path=n&equals={NINES * 99}",
        "/t/t/bisect?path=.....&equals=1e400",
        "/t/t/bisect?path=n&equals=NaN",
        f"/threads?after={NINES[:18]}",
        "/threads?meta=a%3DNaN",
        "/threads?meta=a%3D1e999",
        f"/threads?meta=a%3D{DEEP}",
        "/threads?q=%5B%5D*",
        "/search?q=a&start=999",
        f"/vacuum?older_than=1d&keep_last={NINES[:10]}",
    ],
    ids=lambda url: url[:60],
)
async def test_they_are_answered(tmp_path: Path, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with sqlite_checkpointer(tmp_path / "agents.db") as checkpointer:
        state = {"messages": [{"role": "user", "content": "x"}], "n": 1}
        await StorageBackend(checkpointer.store).save("t", state, checkpoint_id="a", metadata={"a": 1})
        async with looking(checkpointer.store, writes=True) as client:
            answer = await client.get(url)
    assert answer.status_code < 500, answer.text
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
