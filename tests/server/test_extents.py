"""A commit from elsewhere names what it brings and what its base has, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from locus.memory.backends import MemoryCheckpointer
from locus.server import create_app
from tests.server.running import asking

MOST = 2**53 - 1
NOW = "2026-01-01T00:00:00+00:00"
VALUE = "#" + "0" * 32


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with asking(create_app(MemoryCheckpointer())) as client:
        yield client


def _body(name: str, extents: Any, runs: Any = (), base: str | None = None, **more: Any) -> dict[str, Any]:
    body = {
        "checkpoint_id": name,
        "rev": f"{name}-revision",
        "created_at": NOW,
        "metadata": {},
        "head": {"m": [], "v": None},
        "manifest": [[["m"], list(extents)]],
        "runs": list(runs),
        **more,
    }
    return body if base is None else {**body, "base": [base, f"{base}-revision"]}


async def _commit(client: httpx.AsyncClient, body: dict[str, Any]) -> httpx.Response:
    return await client.post("/threads/t/commits", json=body)


async def _committed(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    response = await _commit(client, body)
    assert response.json()["verdict"] == "committed", response.text


A, B = "c1-revision0", "c2-revision0"


@pytest.fixture
async def begun(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """A list of 4 and one of 6 items: the second is the first with a run of 3 in place of its last item."""
    await _committed(client, _body("c1", [[A, 0, 0, 4]], [[A, 0, 0, [1, 2, 3, 4]]]))
    await _committed(client, _body("c2", [[A, 1, 0, 6]], [[A, 1, 3, [5, 6, 7]]], "c1"))
    return client


OPENED = [B.replace("c2", "c3"), 0, 0, [8]]


@pytest.mark.parametrize(
    ("extents", "runs"),
    [
        ([[A, 1, 0, 6]], []),
        ([[A, 1, 2, 3]], []),
        ([[A, 1, 0, 2], [A, 1, 4, 2]], []),
        ([[A, 2, 0, 7]], [[A, 2, 6, [8]]]),
        ([[A, 2, 0, 3]], [[A, 2, 2, [8]]]),
        ([[A, 2, 1, 2]], [[A, 2, 2, [8]]]),
        ([[A, 3, 0, 8]], [[A, 2, 6, [8]], [A, 3, 7, [9]]]),
        ([[A, 1, 0, 6], [OPENED[0], 0, 0, 1]], [OPENED]),
        ([[A, 1, 0, 3], [A, 2, 0, 7]], [[A, 2, 6, [8]]]),
    ],
)
async def test_what_lies_inside_is_accepted(begun: httpx.AsyncClient, extents: Any, runs: Any) -> None:
    await _committed(begun, _body("c3", extents, runs, "c2"))
    assert (await begun.get("/threads/t/latest")).status_code == 200


@pytest.mark.parametrize(
    ("extents", "runs"),
    [
        ([[A, MOST, 0, 6]], []),
        ([[A, MOST, 0, 0]], []),
        ([[A, 1, 0, MOST]], []),
        ([[A, 1, 0, 7]], []),
        ([[A, 1, 6, 1]], []),
        ([[A, 0, 0, 4]], []),
        ([[B, 0, 0, 1]], []),
        ([["elsewhere", MOST, 0, 1]], []),
        ([[A, MOST, 0, 7]], [[A, MOST, 6, [8]]]),
        ([[A, 3, 0, 7]], [[A, 3, 6, [8]]]),
        ([[A, 1, 0, 6]], [[A, 1, 6, [8]]]),
        ([["elsewhere", 5, 0, 1]], [["elsewhere", 5, 0, [8]]]),
        ([[A, 2, 0, 8]], [[A, 2, 6, [8]]]),
        ([[A, 2, 0, 10]], [[A, 2, 9, [8]]]),
        ([[A, MOST, 0, 7]], [[A, 2, 6, [8]]]),
        ([[A, 4, 0, 8]], [[A, 2, 6, [8]], [A, 4, 7, [9]]]),
        ([[A, 3, 0, 11]], [[A, 2, 6, [8]], [A, 3, 10, [9]]]),
    ],
)
@pytest.mark.parametrize("based", [True, False])
async def test_what_does_not_is_refused(begun: httpx.AsyncClient, extents: Any, runs: Any, based: bool) -> None:
    response = await _commit(begun, _body("c3", extents, runs, "c2" if based else None))
    assert (response.status_code, response.json()["code"]) == (422, "invalid_request"), response.text
    assert (await begun.get("/threads/t/checkpoints/c3")).status_code == 404


@pytest.fixture
async def forked(begun: httpx.AsyncClient) -> httpx.AsyncClient:
    """Another line from the first list on, with a branch of its own, and a checkpoint that dropped the oldest items."""
    fork = FORK[0]
    await _committed(begun, _body("c3", [[A, 0, 0, 4], [fork, 0, 0, 2]], [[fork, 0, 0, [8, 9]]], "c1"))
    await _committed(begun, _body("c4", [[A, 1, 3, 3]], [], "c2"))
    return begun


FORK = ["c3-revision0", 0, 0]
OWN = "c5-revision0"


@pytest.mark.parametrize(
    ("base", "extents", "runs", "accepted"),
    [
        # A client that has seen the last two items keeps the ones before, whatever it does with those two.
        ("c2", [[A, 2, 0, 7]], [[A, 2, 6, [8]]], True),
        ("c2", [[A, 2, 0, 6]], [[A, 2, 5, [8]]], True),
        ("c2", [[A, 1, 0, 4], [OWN, 0, 0, 2]], [[OWN, 0, 0, [8, 9]]], True),
        ("c2", [[A, 1, 0, 4], [OWN, 0, 0, 1], [A, 1, 5, 1]], [[OWN, 0, 0, [8]]], True),
        ("c3", [[A, 0, 0, 4], [*FORK, 1], [OWN, 0, 0, 1]], [[OWN, 0, 0, [7]]], True),
        ("c3", [[A, 0, 0, 4], [FORK[0], 1, 0, 3]], [[FORK[0], 1, 2, [7]]], True),
        ("c4", [[A, 2, 3, 4]], [[A, 2, 6, [8]]], True),
        # What only another line has, what its base has dropped, and other versions of the same branch are not its own.
        ("c2", [[A, 1, 0, 4], [*FORK, 2]], [], False),
        ("c3", [[A, 1, 0, 4], [*FORK, 2]], [], False),
        ("c3", [[A, 1, 0, 6]], [], False),
        ("c4", [[A, 1, 0, 6]], [], False),
        ("c4", [[A, 1, 2, 4]], [], False),
        ("c4", [[A, 2, 2, 5]], [[A, 2, 6, [8]]], False),
        ("c4", [[A, 2, 0, 7]], [[A, 2, 6, [8]]], False),
        ("c4", [[A, 0, 3, 1], [OWN, 0, 0, 1]], [[OWN, 0, 0, [8]]], False),
        ("c2", [[A, 1, 0, 4], [OWN, 0, 0, 3]], [[OWN, 0, 0, [8, 9]]], False),
    ],
)
async def test_items_that_a_client_has_not_seen_are_kept_if_its_base_has_them(
    forked: httpx.AsyncClient, base: str, extents: Any, runs: Any, accepted: bool
) -> None:
    response = await _commit(forked, _body("c5", extents, runs, base))
    if accepted:
        assert response.json()["verdict"] == "committed", response.text
        items = (await forked.get("/threads/t/latest")).json()["state"]["m"]
        assert len(items) == sum(extent[3] for extent in extents)
    else:
        assert (response.status_code, response.json()["code"]) == (422, "invalid_request"), response.text
        assert (await forked.get("/threads/t/checkpoints/c5")).status_code == 404


async def test_a_value_is_brought_or_there(begun: httpx.AsyncClient) -> None:
    named = {"manifest": [[["v"], VALUE]]}
    response = await _commit(begun, _body("c3", [], [], "c2", **named))
    assert (response.status_code, response.json()["code"]) == (422, "invalid_request")


async def test_a_base_that_is_gone_is_said_so(begun: httpx.AsyncClient) -> None:
    body = _body("c3", [[A, MOST, 0, 6]], [], "c0")
    assert (await _commit(begun, body)).json()["verdict"] == "stale_base"
    other = {**_body("c3", [[A, 1, 0, 6]], [], "c2"), "base": ["c2", "another-rev"]}
    assert (await _commit(begun, other)).json()["verdict"] == "stale_base"


async def test_a_commit_that_was_sent_twice_is_known_though_its_base_is_gone(begun: httpx.AsyncClient) -> None:
    body = _body("c3", [[A, 1, 0, 6]], [], "c2")
    await _committed(begun, body)
    assert (await begun.delete("/threads/t/checkpoints/c2")).status_code == 204
    assert (await _commit(begun, body)).json()["repeated"] is True


async def test_another_server_process_looks_the_base_up() -> None:
    store = MemoryCheckpointer()
    async with asking(create_app(store)) as one, asking(create_app(store)) as other:
        await _committed(one, _body("c1", [[A, 0, 0, 4]], [[A, 0, 0, [1, 2, 3, 4]]]))
        assert (await _commit(other, _body("c2", [[A, 7, 0, 4]], [], "c1"))).status_code == 422
        await _committed(other, _body("c2", [[A, 0, 1, 2]], [], "c1"))
        latest = (await one.get("/threads/t/latest")).json()
    assert latest["state"] == {"m": [2, 3], "v": None}
