"""What each token may save in a day: counted exactly, by all workers together, and also after a restart."""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from locus.cli import main
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, ConfigurationError
from locus.memory.backends import HTTPCheckpointer, MemoryCheckpointer
from locus.server import Quota, Token, create_app
from locus.server.auth import parse_tokens
from locus.server.quotas import KEPT_DAYS, QuotaLedger
from locus.wire.problems import Problem
from tests.server.running import ACME, READER, TOKENS, WRITER, asking, serving, threaded

SAVE: dict[str, Any] = {"state": {"n": 1}}


def size(body: Any) -> int:
    return len(httpx.Request("POST", "http://x", json=body).content)


async def statuses(client: httpx.AsyncClient, count: int, thread: str = "acme%2F1") -> list[int]:
    return [(await client.post(f"/threads/{thread}/checkpoints", json=SAVE)).status_code for _ in range(count)]


async def test_each_token_has_so_many_saves_a_day() -> None:
    app = create_app(MemoryCheckpointer(), TOKENS, quota=Quota(saves=3))
    async with asking(app, ACME) as acme, asking(app, WRITER) as writer:
        assert await statuses(acme, 4) == [201, 201, 201, 429]
        refused = await acme.post("/threads/acme%2F1/checkpoints", json=SAVE)
        said = refused.json()
        assert (said["code"], said["quota"]) == ("quota_exceeded", {"saves": 3, "bytes": None})
        assert "3 saves in a day" in said["detail"]
        assert 0 < int(refused.headers["retry-after"]) <= 24 * 60 * 60
        assert len((await acme.get("/threads/acme%2F1/checkpoints")).json()["checkpoints"]) == 3
        assert (await acme.get("/threads/acme%2F1/latest")).is_success, "it may still load"
        assert (await acme.delete("/threads/acme%2F1")).is_success, "and delete"
        assert await statuses(writer, 4) == [201, 201, 201, 429], "another token has its own"


async def test_each_token_has_so_many_bytes_a_day() -> None:
    small, large = size(SAVE), {"state": {"text": "é" * 1_000}}
    app = create_app(MemoryCheckpointer(), TOKENS, quota=Quota(bytes=2 * small + size(large)))
    async with asking(app, WRITER) as client:
        assert await statuses(client, 1) == [201]
        packed = gzip.compress(httpx.Request("POST", "http://x", json=large).content)
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        path = "/threads/t/checkpoints"
        assert (await client.post(path, content=packed, headers=headers)).status_code == 201
        assert (await client.post(path, content=packed, headers=headers)).status_code == 429, (
            "what it stands for counts"
        )
        assert await statuses(client, 2) == [201, 429], "to the last byte"


async def test_what_fails_is_not_counted() -> None:
    app = create_app(MemoryCheckpointer(), TOKENS, quota=Quota(saves=2))
    async with asking(app, WRITER) as client:
        assert await statuses(client, 1, "t") == [201]
        for headers, body in (({"If-Match": '"none"'}, SAVE), ({}, {**SAVE, "parent_id": "none"}), ({}, {"state": 1})):
            response = await client.post("/threads/t/checkpoints", json=body, headers=headers)
            assert response.status_code in (404, 412, 422)
        assert (await client.post("/threads/none/copy", json={"dest_thread_id": "x"})).status_code == 404
        assert await statuses(client, 2, "t") == [201, 429]


async def test_writes_and_copies_are_saves_too() -> None:
    app = create_app(MemoryCheckpointer(), TOKENS, quota=Quota(saves=9))
    async with asking(app, WRITER) as client:
        assert await statuses(client, 3, "t") == [201] * 3
        (latest, *_) = (await client.get("/threads/t/checkpoints")).json()["checkpoints"]
        writes = {"task_id": "x", "writes": [["c", 1]]}
        path = f"/threads/t/checkpoints/{latest['checkpoint_id']}/writes"
        assert (await client.put(path, json=writes)).is_success
        assert (await client.post("/threads/t/copy", json={"dest_thread_id": "u"})).is_success  # three checkpoints
        assert (await client.post("/threads/t/copy", json={"dest_thread_id": "v"})).status_code == 429
        one = {"dest_thread_id": "w", "checkpoint_ids": [latest["checkpoint_id"]]}
        assert (await client.post("/threads/t/copy", json=one)).is_success
        assert (await client.put(path, json=writes)).is_success
        assert (await client.put(path, json=writes)).status_code == 429


async def test_commits_of_the_client_are_counted_once_each() -> None:
    """Also where it has to send one again, because another writer was faster."""
    app = create_app(MemoryCheckpointer(), TOKENS, quota=Quota(saves=4))
    state = AgentState().with_message(Message.user("hi"))
    with threaded(app) as port:
        url = f"http://127.0.0.1:{port}"
        async with HTTPCheckpointer(url, token=WRITER) as one, HTTPCheckpointer(url, token=WRITER) as other:
            await one.save(state, "t")
            seen = await other.load("t")
            assert seen is not None
            await other.save(seen.with_message(Message.user("first")), "t")
            await one.save(state.with_message(Message.user("second")), "t")
            await one.save(state, "u")
            with pytest.raises(BackendUnavailableError, match="4 saves in a day") as refused:
                await one.save(state, "v")
            assert refused.value.code == "quota_exceeded"
            assert refused.value.retry_after is not None
            assert 0 < refused.value.retry_after <= 24 * 60 * 60
            assert await one.load("u") == state


async def test_a_token_can_have_a_quota_of_its_own() -> None:
    tokens = parse_tokens(f"{ACME} write acme/ saves=1\n{WRITER} saves=unlimited megabytes=1\n{READER} read")
    app = create_app(
        MemoryCheckpointer(), [*tokens, Token("a-token-made-in-python", quota=Quota(2))], quota=Quota(3, 9)
    )
    async with asking(app, ACME) as acme, asking(app, WRITER) as writer, asking(app, "a-token-made-in-python") as own:
        assert await statuses(acme, 1) == [429], "of the bytes there are as few as for all"
        assert await statuses(writer, 5) == [201] * 5
        assert await statuses(own, 3) == [201, 201, 429], "its own says all, and nothing of bytes"


@pytest.mark.parametrize(
    "words", ["saves=x", "saves=-1", "saves=1 saves=2", "megabytes=1.5", "saves=1 write", "daily=3"]
)
def test_a_quota_that_is_none_is_refused(words: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_tokens(f"{WRITER} {words}")


async def test_without_tokens_all_share_a_quota() -> None:
    async with asking(create_app(MemoryCheckpointer(), quota=Quota(saves=2))) as client:
        assert await statuses(client, 3) == [201, 201, 429]


async def test_as_many_at_once_as_there_may_be() -> None:
    app = create_app(MemoryCheckpointer(), TOKENS, quota=Quota(saves=5))
    async with asking(app, WRITER) as client:
        sent = (client.post(f"/threads/t{number}/checkpoints", json=SAVE) for number in range(20))
        answers = [response.status_code for response in await asyncio.gather(*sent)]
    assert sorted(answers) == [201] * 5 + [429] * 15


class TestTheLedger:
    def test_a_day_begins_at_midnight_in_utc(self) -> None:
        now = datetime(2026, 1, 31, 23, 59, 58, tzinfo=UTC)
        ledger = QuotaLedger(clock=lambda: now)
        ledger.charge("t", Quota(2), 2, 10)
        with pytest.raises(Problem) as caught:
            ledger.charge("t", Quota(2), 1, 10)
        assert caught.value.headers["Retry-After"] == "3"
        now += timedelta(seconds=2)
        charge = ledger.charge("t", Quota(2), 2, 10)
        assert ledger.used("t") == Quota(2, 10)
        charge.refund()
        charge.refund()
        assert ledger.used("t") == Quota(0, 0), "once"
        ledger.close()

    def test_old_days_are_forgotten(self, tmp_path: Path) -> None:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        ledger = QuotaLedger(str(tmp_path / "q.db"), lambda: now)
        for _ in range(3):
            ledger.charge("t", Quota(2), 1, 1)
            now += timedelta(days=KEPT_DAYS)
        ledger.close()
        with closing(sqlite3.connect(tmp_path / "q.db")) as database:
            assert database.execute("SELECT count(*) FROM usage").fetchone() == (2,)

    def test_what_is_more_than_a_day_allows_is_refused_from_the_first(self) -> None:
        ledger = QuotaLedger()
        for quota, saves, size in ((Quota(3), 4, 1), (Quota(bytes=3), 1, 4), (Quota(0), 1, 0)):
            with pytest.raises(Problem):
                ledger.charge("t", quota, saves, size)
        ledger.close()

    def test_several_share_a_file_that_is_their_owners(self, tmp_path: Path) -> None:
        place = str(tmp_path / "q.db")
        one, other = QuotaLedger(place), QuotaLedger(place)
        one.charge("t", Quota(3), 2, 10)
        other.charge("t", Quota(3), 1, 10)
        for ledger in (one, other):
            assert ledger.used("t") == Quota(3, 20)
            with pytest.raises(Problem):
                ledger.charge("t", Quota(3), 1, 1)
            ledger.close()
        assert stat.S_IMODE(Path(place).stat().st_mode) == 0o600

    def test_a_file_that_cannot_be_used_is_told_at_once(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "text").write_text("no database, but quite a long text of something else " * 50)
        for place in (tmp_path, tmp_path / "none" / "q.db", tmp_path / "text"):
            assert main(["serve", "--store", "memory", "--daily-saves", "1", "--quota-file", str(place)]) == 2
            assert "cannot be used" in capsys.readouterr().err

    def test_counts_that_cannot_be_written_stop_nobody(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        ledger = QuotaLedger(str(tmp_path / "q.db"))
        with closing(sqlite3.connect(tmp_path / "q.db")) as database:
            database.execute("DROP TABLE usage")
        for _ in range(3):
            ledger.charge("t", Quota(1), 1, 1).refund()
        assert [record.getMessage() for record in caplog.records] == ["quotas cannot be counted"] * 3
        ledger.close()


@pytest.mark.parametrize(
    "options", [["--daily-saves", "0"], ["--daily-megabytes", "nan"], ["--daily-megabytes", "0"], ["--max-body", "inf"]]
)
def test_a_number_that_is_none_is_told(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--store", "memory", *options]) == 2
    assert options[0] in capsys.readouterr().err


def test_workers_count_together_and_a_file_is_kept(tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {WRITER}"}

    def save(url: str) -> int:
        return httpx.post(f"{url}/threads/t/checkpoints", json=SAVE, headers=headers).status_code

    options = ("--token", WRITER, "--daily-saves", "6", "--daily-megabytes", "1", "--quota-file", "quotas.db")
    with serving(tmp_path, "sqlite:///t.db", *options, "--workers", "2") as server:
        assert [save(server.url) for _ in range(5)] == [201] * 5
        assert server.terminate() in (0, -15)
    with serving(tmp_path, "sqlite:///t.db", *options) as server:
        assert [save(server.url) for _ in range(2)] == [201, 429]
        assert server.terminate() in (0, -15)
        log = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert [line["problem"] for line in log if line.get("status") == 429] == ["quota_exceeded"]
    with closing(sqlite3.connect(tmp_path / "quotas.db")) as database:
        ((token, saves, sent),) = database.execute("SELECT token, saves, bytes FROM usage").fetchall()
    assert (token, saves, sent) == (Token(WRITER).id, 6, 6 * size(SAVE))
