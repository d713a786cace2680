"""How much a token may ask, and what is written down about it."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from locus.cli import main
from locus.errors import BackendUnavailableError, ConfigurationError, CorruptCheckpointError
from locus.memory.backends import MemoryCheckpointer
from locus.server import Token, create_app
from locus.server.logs import Digests
from locus.server.rates import Bucket, Rate
from locus.server.routes import operations
from tests.server.running import ACME, CORP, TOKENS, WRITER, asking, serving

KEY = "a key for the digests"


def test_a_rate_is_written_down_with_or_without_a_burst() -> None:
    assert Rate.parse("50") == Rate(50, 100)
    assert Rate.parse("0.5") == Rate(0.5, 1)
    assert Rate.parse("50/200") == Rate(50, 200)
    for wrong in ("", "0", "-1", "1/0", "x", "1/2/3", "nan", "inf", "1e9", "٣"):
        with pytest.raises(ConfigurationError, match="RATE or RATE/BURST"):
            Rate.parse(wrong)


def test_a_bucket_lets_through_a_burst_and_then_the_rate() -> None:
    now = 100.0
    bucket = Bucket(Rate(2, 3), lambda: now)
    assert [bucket.take() for _ in range(4)] == [0, 0, 0, 0.5]
    now += 0.5
    assert [bucket.take(), bucket.take()] == [0, 0.5]
    now += 1_000
    assert [bool(bucket.take()) for _ in range(4)] == [False, False, False, True]


async def test_each_token_has_a_rate_of_its_own() -> None:
    app = create_app(MemoryCheckpointer(), TOKENS, rate="0.001/3")
    async with asking(app, WRITER) as writer, asking(app, ACME) as acme, asking(app, "not-a-token-of-it") as stranger:
        assert [(await writer.get("/threads")).status_code for _ in range(4)] == [200, 200, 200, 429]
        refused = await writer.post("/threads/t/checkpoints", json={"state": {}})
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        assert 0 < int(refused.headers["retry-after"]) <= 1000
        assert [(await acme.get("/threads")).status_code for _ in range(4)] == [200, 200, 200, 429]
        assert [(await stranger.get("/threads")).status_code for _ in range(4)] == [401, 401, 401, 429]
        for _ in range(5):
            assert (await writer.get("/health")).is_success


async def test_without_tokens_all_share_a_rate() -> None:
    async with asking(create_app(MemoryCheckpointer(), rate="0.001/2")) as client:
        assert [(await client.get("/threads")).status_code for _ in range(3)] == [200, 200, 429]


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


async def test_the_audit_log_says_who_did_what_to_which_thread(audit: Path) -> None:
    app = create_app(MemoryCheckpointer(), TOKENS, audit=str(audit), log_key=KEY)
    async with asking(app, ACME) as acme, asking(app, WRITER) as writer, asking(app) as stranger:
        await acme.post(
            "/threads/acme%2F1/checkpoints", json={"state": {"a": "private"}}, headers={"X-Request-ID": "r1"}
        )
        await acme.get("/threads/other/latest")
        await acme.post("/threads/acme%2F1/copy", json={"dest_thread_id": "acme/2"})
        await acme.post("/threads/acme%2F1/copy", json={"dest_thread_id": "other"})
        await writer.request("DELETE", "/threads/acme%2F1")
        await writer.get("/threads/acme%2F1/latest")
        await writer.get("/threads")
        await stranger.get("/threads/acme%2F1/latest")
        await stranger.get("/health")
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    one, two, other = map(Digests(KEY).of, ("acme/1", "acme/2", "other"))
    tenant, operator = Token(ACME).id, Token(WRITER).id
    assert [(x["token"], x["operation"], x["threads"], x["status"], x.get("problem")) for x in lines] == [
        (tenant, "save", [one], 201, None),
        (tenant, "load_latest", [other], 403, "forbidden"),
        (tenant, "copy", [one, two], 200, None),
        (tenant, "copy", [one, other], 403, "forbidden"),
        (operator, "delete_thread", [one], 204, None),
        (operator, "load_latest", [one], 404, "not_found"),
        (operator, "list_threads", [], 200, None),
        (None, "none", [], 401, "unauthenticated"),
    ]
    assert lines[0]["request_id"] == "r1"
    assert stat.S_IMODE(audit.stat().st_mode) == 0o600
    for secret in ("private", "acme", "other", ACME, WRITER, KEY):
        assert secret not in audit.read_text()


async def test_an_audit_log_that_is_moved_away_is_begun_anew(audit: Path) -> None:
    async with asking(create_app(MemoryCheckpointer(), audit=str(audit))) as client:
        await client.get("/threads")
        audit.rename(audit.with_suffix(".1"))
        await client.get("/recent")
    assert json.loads(audit.read_text())["operation"] == "recent"


async def test_an_audit_log_that_cannot_be_written_is_reported_and_stops_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with asking(create_app(MemoryCheckpointer(), audit="/dev/full")) as client:
        assert (await client.get("/threads")).is_success
    assert "the audit log cannot be written" in [record.getMessage() for record in caplog.records]


def test_a_place_for_the_audit_log_that_cannot_be_used_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--store", "memory", "--audit", "/no/such/folder/audit"]) == 2
    assert "cannot be used" in capsys.readouterr().err
    assert main(["serve", "--store", "memory", "--rate-limit", "fast"]) == 2
    assert "RATE/BURST" in capsys.readouterr().err


def test_the_command_has_both(tmp_path: Path) -> None:
    options = ("--token", WRITER, "--audit", "-", "--rate-limit", "0.001/2")
    with serving(tmp_path, "memory", *options, LOCUS_SERVER_LOG_KEY=KEY) as server:
        headers = {"Authorization": f"Bearer {WRITER}"}
        statuses = [httpx.get(f"{server.url}/threads/t/latest", headers=headers).status_code for _ in range(3)]
        assert statuses == [404, 404, 429]
        assert server.terminate() in (0, -15)
        audited = [line for line in map(json.loads, server.log.read_text().splitlines()) if "token" in line]
    assert [line["status"] for line in audited] == statuses
    assert audited[0]["threads"] == [Digests(KEY).of("t")]
    assert audited[0]["token"] == Token(WRITER).id


def test_the_id_of_a_token_is_the_same_everywhere_and_not_the_token() -> None:
    assert Token(ACME).id == Token(ACME, "read", "x/").id == "3d5e8077de62"
    assert Token(ACME).id != Token(CORP).id


class TestReadiness:
    @pytest.fixture
    def looks(self) -> list[int]:
        return []

    def _app(self, monkeypatch: pytest.MonkeyPatch, look: Callable[[], Awaitable[None]]) -> Any:
        store = MemoryCheckpointer()

        async def entry(*_: object) -> None:
            await look()

        monkeypatch.setattr(store.store.engine, "entry", entry)
        monkeypatch.setattr(operations, "ANSWER_SECONDS", 60.0)
        return create_app(store, TOKENS)

    async def test_who_asks_often_gives_the_store_no_work(
        self, monkeypatch: pytest.MonkeyPatch, looks: list[int]
    ) -> None:
        monkeypatch.setattr(operations, "READY_RATE", Rate(0.0001, 5))

        async def look() -> None:
            looks.append(1)

        async with asking(self._app(monkeypatch, look)) as client:
            for _ in range(50):
                assert (await client.get("/ready")).json() == {"status": "ready"}
        assert len(looks) == 6

    async def test_who_asks_at_once_shares_a_look(self, monkeypatch: pytest.MonkeyPatch, looks: list[int]) -> None:
        answer = asyncio.Event()

        async def look() -> None:
            looks.append(1)
            await answer.wait()

        async with asking(self._app(monkeypatch, look)) as client:
            asking_now = [asyncio.ensure_future(client.get("/ready")) for _ in range(20)]
            for _ in range(1_000):  # until all of them wait: nothing but this loop takes part
                await asyncio.sleep(0)
            answer.set()
            assert all(response.is_success for response in await asyncio.gather(*asking_now))
        assert len(looks) == 1

    async def test_an_outage_is_told_without_a_reason(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def look() -> None:
            raise BackendUnavailableError("db.internal:5432 refused user locus")

        async with asking(self._app(monkeypatch, look)) as client:
            response = await client.get("/ready")
        assert (response.status_code, response.json()["code"]) == (503, "store_unavailable")
        assert "internal" not in response.text
        assert "locus" not in response.json()["detail"]

    async def test_a_store_that_takes_long_is_not_waited_for(
        self, monkeypatch: pytest.MonkeyPatch, looks: list[int]
    ) -> None:
        answer = asyncio.Event()

        async def look() -> None:
            looks.append(1)
            await answer.wait()

        app = self._app(monkeypatch, look)
        monkeypatch.setattr(operations, "ANSWER_SECONDS", 0.001)
        async with asking(app) as client:
            for _ in range(2):
                response = await client.get("/ready")
                assert response.status_code == 503
                assert response.json()["detail"].endswith(operations.SLOW)
            assert len(looks) == 1
            answer.set()
            monkeypatch.setattr(operations, "ANSWER_SECONDS", 60.0)
            assert (await client.get("/ready")).json() == {"status": "ready"}

    def test_an_answer_does_not_take_longer_than_a_probe_waits(self) -> None:
        assert operations.ANSWER_SECONDS < 2

    @pytest.mark.parametrize(
        ("error", "cause"),
        [
            (ConnectionRefusedError(111, "db.internal"), operations.REFUSED),
            (ValueError("connection to db.internal failed: Connection refused"), operations.REFUSED),
            (TimeoutError(), operations.SLOW),
            (ConfigurationError("internal"), operations.WRONG),
            (CorruptCheckpointError("internal"), operations.DAMAGED),
            (ValueError("internal"), operations.FAILED),
        ],
    )
    async def test_the_cause_of_an_outage_is_told_in_fixed_words(
        self, error: Exception, cause: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def look() -> None:
            raise BackendUnavailableError("db.internal:5432 refused user locus") from error

        async with asking(self._app(monkeypatch, look)) as client:
            detail = (await client.get("/ready")).json()["detail"]
        assert detail == f"the store of this server does not answer: {cause}"

    async def test_the_cause_is_known_while_the_store_is_tried_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def look() -> None:
            try:
                raise ConnectionRefusedError
            except ConnectionRefusedError:
                await asyncio.Event().wait()

        monkeypatch.setattr(operations, "READY_SECONDS", 0.001)
        async with asking(self._app(monkeypatch, look)) as client:
            assert (await client.get("/ready")).json()["detail"].endswith(operations.REFUSED)
