"""A commit from elsewhere costs its readers no more than it may, and so does a save onto what is stored."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from locus.memory import get_checkpointer
from locus.memory.backends import MemoryCheckpointer
from locus.memory.model.ids import digest
from locus.memory.model.records import Commit, Run
from locus.server import Limits, create_app
from tests.server.running import asking

NOW = "2026-01-01T00:00:00+00:00"
MOST = 2**53 - 1
LIMITS = Limits(state_bytes=100_000, body_bytes=1_000_000)
LARGE = ["x" * 20_000]


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with asking(create_app(MemoryCheckpointer(), limits=LIMITS)) as client:
        yield client


@pytest.fixture
def threads_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[threading.Thread]]:
    def watched(place: str) -> list[threading.Thread]:
        module, _, name = place.rpartition(".")
        work, seen = getattr(importlib.import_module(module), name), list[threading.Thread]()

        def noted(*args: Any, **kwargs: Any) -> Any:
            seen.append(threading.current_thread())
            return work(*args, **kwargs)

        monkeypatch.setattr(place, noted)
        return seen

    return watched


def _named(value: Any) -> tuple[str, str]:
    text = json.dumps(value)
    return f"#{digest(text)}", text


def _body(name: str, cuts: Any, head: Any, runs: Any = (), values: Any = (), base: str | None = None) -> dict[str, Any]:
    body = {
        "checkpoint_id": name,
        "rev": f"{name}-revision",
        "created_at": NOW,
        "metadata": {},
        "head": head,
        "manifest": [[list(path), cut] for path, cut in cuts],
        "runs": list(runs),
        "values": list(values),
    }
    return body if base is None else {**body, "base": [base, f"{base}-revision"]}


async def _accepted(client: httpx.AsyncClient, body: dict[str, Any]) -> Any:
    response = await client.post("/threads/t/commits", json=body)
    assert response.json().get("verdict") == "committed", response.text
    loaded = await client.get(f"/threads/t/checkpoints/{body['checkpoint_id']}")
    assert loaded.status_code == 200, loaded.text
    return loaded.json()["state"]


async def _refused(client: httpx.AsyncClient, body: dict[str, Any], what: str = "") -> None:
    response = await client.post("/threads/t/commits", json=body)
    assert response.status_code == 422, response.text
    assert what in response.json()["detail"]
    assert (await client.get(f"/threads/t/checkpoints/{body['checkpoint_id']}")).status_code == 404


A, B = "c1-revision0", "c2-revision0"


class TestRepeatedItems:
    async def test_in_one_commit(self, client: httpx.AsyncClient) -> None:
        runs = [[A, 0, 0, LARGE]]
        await _refused(client, _body("c1", [(["m"], [[A, 0, 0, 1]] * 64)], {"m": []}, runs), "again and again")
        assert await _accepted(client, _body("c1", [(["m"], [[A, 0, 0, 1]] * 3)], {"m": []}, runs)) == {"m": LARGE * 3}

    async def test_of_the_base(self, client: httpx.AsyncClient) -> None:
        await _accepted(client, _body("c1", [(["m"], [[A, 0, 0, 1]])], {"m": []}, [[A, 0, 0, LARGE]]))
        await _refused(client, _body("c2", [(["m"], [[A, 0, 0, 1]] * 64)], {"m": []}, base="c1"), "again and again")
        twice = _body("c2", [(["m"], [[A, 0, 0, 1]] * 2)], {"m": []}, base="c1")
        assert await _accepted(client, twice) == {"m": LARGE * 2}

    async def test_that_the_base_repeats_and_that_grow(self, client: httpx.AsyncClient) -> None:
        await _accepted(client, _body("c1", [(["m"], [[A, 0, 0, 1]] * 60)], {"m": []}, [[A, 0, 0, [1]]]))
        grown = _body("c2", [(["m"], [[A, 1, 0, 2]] * 60)], {"m": []}, [[A, 1, 1, LARGE]], base="c1")
        await _refused(client, grown, "again and again")

    async def test_what_is_repeated_in_the_base_may_stay(self, client: httpx.AsyncClient) -> None:
        repeated = [(["m"], [[A, 0, 0, 1]] * 3)]
        await _accepted(client, _body("c1", repeated, {"m": []}, [[A, 0, 0, LARGE]]))
        cuts = [*repeated, (["n"], [[B, 0, 0, 1]])]
        assert await _accepted(client, _body("c2", cuts, {"m": [], "n": []}, [[B, 0, 0, [1]]], base="c1"))

    async def test_the_base_is_read_within_the_limits(self) -> None:
        checkpointer = MemoryCheckpointer()
        async with asking(create_app(checkpointer)) as large, asking(create_app(checkpointer, limits=LIMITS)) as small:
            await _accepted(large, _body("c1", [(["m"], [[A, 0, 0, 1]])], {"m": []}, [[A, 0, 0, ["x" * 200_000]]]))
            twice = _body("c2", [(["m"], [[A, 0, 0, 1]] * 2)], {"m": []}, base="c1")
            answer = await small.post("/threads/t/commits", json=twice)
            assert (answer.status_code, answer.json()["code"]) == (507, "state_too_large")

    async def test_many_small_values(self) -> None:
        """They take much more memory than text of the same length."""
        runs = [[A, 0, 0, [[[] for _ in range(20_000)]]]]
        async with asking(create_app(MemoryCheckpointer())) as roomy:
            await _refused(roomy, _body("c1", [(["m"], [[A, 0, 0, 1]] * 64)], {"m": []}, runs), "again and again")
            await _accepted(roomy, _body("c1", [(["m"], [[A, 0, 0, 1]] * 3)], {"m": []}, runs))


class TestRepeatedValues:
    NAME, TEXT = _named(LARGE)

    def _of(self, count: int, name: str, **more: Any) -> dict[str, Any]:
        keys = [f"k{number}" for number in range(count)]
        return _body(name, [([key], self.NAME) for key in keys], dict.fromkeys(keys), **more)

    async def test_in_one_commit(self, client: httpx.AsyncClient) -> None:
        await _refused(client, self._of(600, "c1", values=[[self.NAME, self.TEXT]]), "again and again")
        await _accepted(client, self._of(3, "c1", values=[[self.NAME, self.TEXT]]))

    async def test_of_the_base(self, client: httpx.AsyncClient) -> None:
        await _accepted(client, self._of(1, "c1", values=[[self.NAME, self.TEXT]]))
        await _refused(client, self._of(600, "c2", base="c1"), "again and again")
        assert await _accepted(client, self._of(2, "c2", base="c1")) == {"k0": LARGE, "k1": LARGE}
        await _accepted(client, self._of(2, "c3", base="c2"))


async def test_lists_are_not_without_number(client: httpx.AsyncClient) -> None:
    for count, accepted in ((5_001, False), (5_000, True)):
        keys = [f"k{number}" for number in range(count)]
        cuts = [([key], [[f"c1-revision{key}", 0, 0, 1]]) for key in keys]
        runs = [[f"c1-revision{key}", 0, 0, [1]] for key in keys]
        body = _body("c1", cuts, {key: [] for key in keys}, runs)
        await (_accepted(client, body) if accepted else _refused(client, body, "one list of objects"))


async def test_many_lists_are_looked_at_by_another_thread(client: httpx.AsyncClient, threads_of: Any) -> None:
    """Their names and places take ten times as long to decode as other texts."""
    routes, extents = "locus.server.routes.threads", "locus.server.extents"
    names = (f"{extents}._check", f"{extents}.proved", f"{routes}._items_text", f"{routes}._state_text")
    seen = [threads_of(name) for name in names]
    keys = [f"k{number}" for number in range(2_000)]
    cuts = [([key], [[f"c1-revision{key}", 0, 0, 1]]) for key in keys]
    runs = [[f"c1-revision{key}", 0, 0, [1]] for key in keys]
    await _accepted(client, _body("c1", cuts, {key: [] for key in keys}, runs))
    assert (await client.get('/threads/t/items?path=["k1"]&count=2')).json()["items"] == [1]
    assert all(seen)
    assert threading.main_thread() not in [thread for threads in seen for thread in threads]


async def test_runs_are_not_much_smaller_than_those_of_a_client(client: httpx.AsyncClient) -> None:
    runs = [[A, number, number, [number]] for number in range(100)]
    await _refused(client, _body("c1", [(["m"], [[A, 99, 0, 100]])], {"m": []}, runs), "into one run")


async def test_what_nothing_names_is_not_stored(client: httpx.AsyncClient) -> None:
    await _refused(client, _body("c1", [], {}, [[A, 0, 0, [1]]]), "a run must be of a branch that the manifest names")
    name, text = _named(LARGE)
    await _refused(client, _body("c1", [], {}, values=[[name, text]]), "must be named by the manifest")


class TestPlaces:
    """What is cut out stands at a place that is there, wherever that is stored."""

    TEXT, DICT = _named("t" * 2_000), _named({"x": [], "y": {"z": []}, "note": "t" * 2_000})
    ITEMS = ((A, 0, 0, [1]),)

    async def test_a_list_inside_of_a_text(self, client: httpx.AsyncClient) -> None:
        cuts = [(["v"], self.TEXT[0]), (["v", "x"], [[A, 0, 0, 1]])]
        await _refused(client, _body("c1", cuts, {"v": None}, self.ITEMS, [self.TEXT]), "no place in the head")

    async def test_a_list_inside_of_a_text_of_the_base(self, client: httpx.AsyncClient) -> None:
        await _accepted(client, _body("c1", [(["v"], self.TEXT[0])], {"v": None}, values=[self.TEXT]))
        cuts = [(["v"], self.TEXT[0]), (["v", "x"], [[B, 0, 0, 1]])]
        await _refused(client, _body("c2", cuts, {"v": None}, [[B, 0, 0, [1]]], base="c1"), "no place in the head")

    async def test_lists_inside_of_an_object(self, client: httpx.AsyncClient) -> None:
        cuts = [(["v"], self.DICT[0]), (["v", "x"], [[A, 0, 0, 1]])]
        state = await _accepted(client, _body("c1", cuts, {"v": None}, self.ITEMS, [self.DICT]))
        assert state["v"]["x"] == [1]
        # One more list of the object, which the base has stored, is cut out now.
        more = [*cuts, (["v", "y", "z"], [[B, 0, 0, 1]])]
        state = await _accepted(client, _body("c2", more, {"v": None}, [[B, 0, 0, [2]]], base="c1"))
        assert (state["v"]["x"], state["v"]["y"]) == ([1], {"z": [2]})
        await _accepted(client, _body("c3", more, {"v": None}, base="c2"))
        for wrong in (["v", "note"], ["v", "y"], ["v", "none"], ["v", "y", "z", "deeper"]):
            cuts = [*more, (wrong, [["c4-revision0", 0, 0, 1]])]
            await _refused(client, _body("c4", cuts, {"v": None}, [["c4-revision0", 0, 0, [2]]], base="c2"))

    async def test_values_in_values(self, client: httpx.AsyncClient) -> None:
        cuts, values, path = [], [], ["v"]
        for number in range(15):
            inner: Any = None
            for _ in range(87):
                inner = {"x": inner}
            name, text = _named({"x": inner, "number": number})
            cuts.append(([*path], name))
            values.append([name, text])
            path += ["x"] * 88
        await _refused(client, _body("c1", cuts, {"v": None}, values=values))
        await _refused(client, _body("c1", cuts[:2], {"v": None}, values=values[:2]), "nested more than 90 levels")
        await _accepted(client, _body("c1", cuts[:1], {"v": None}, values=values[:1]))

    async def test_no_items_far_away(self, client: httpx.AsyncClient) -> None:
        await _accepted(client, _body("c1", [(["m"], [[A, 0, 0, 2]])], {"m": []}, [[A, 0, 0, [1, 2]]]))
        far = [(["m"], [[A, 0, 0, 2], [A, 0, MOST, 0]])]
        await _refused(client, _body("c2", far, {"m": []}, base="c1"), "inside those of its base")
        near = [(["m"], [[A, 0, 0, 2], [A, 0, 2, 0]])]
        assert await _accepted(client, _body("c2", near, {"m": []}, base="c1")) == {"m": [1, 2]}


def _stored_before(state: str, name: str = "c1") -> Commit:
    """A commit as an older version has let it pass: a list that names the same item again and again."""
    item = json.dumps([state])
    return Commit(
        "t",
        "default",
        name,
        f"{name}-revision",
        datetime.now(UTC),
        "{}",
        '{"m":[]}',
        json.dumps([[["m"], [[A, 0, 0, 1]] * 60]]),
        (Run(A, 0, 0, 1, item),),
    )


class TestWhatIsStored:
    """The state that a request is compared with may be far larger than the request, and than what is stored of it."""

    async def test_is_refused_if_it_is_too_large(self) -> None:
        checkpointer = MemoryCheckpointer()
        await checkpointer.store.engine.commit(_stored_before("x" * 9_000))
        async with asking(create_app(checkpointer, limits=LIMITS)) as client:
            for save in ({"state": {"m": [1]}}, {"state": {"m": [1]}, "checkpoint_id": "c1"}):
                answer = await client.post("/threads/t/checkpoints", json=save)
                assert (answer.status_code, answer.json()["code"]) == (507, "state_too_large"), answer.text
            assert (await client.get("/threads/t/latest")).status_code == 507
            assert (await client.get('/threads/t/items?count=3&path=["m"]')).status_code == 200
        async with asking(create_app(checkpointer, limits=LIMITS, inspector=True)) as client:
            for kind in ("json", "md", "html"):
                assert (await client.get(f"http://127.0.0.1/ui/t/t/export?format={kind}")).status_code == 507

    async def test_is_compared_by_another_thread(self, threads_of: Any) -> None:
        checkpointer = MemoryCheckpointer()
        await checkpointer.store.engine.commit(_stored_before("x" * 90_000))
        seen = threads_of("locus.memory.store._equal"), threads_of("locus.memory.store.stored_trace")
        async with asking(create_app(checkpointer)) as client:
            save = {"state": {"m": [1]}, "checkpoint_id": "c1"}
            assert (await client.post("/threads/t/checkpoints", json=save)).status_code == 201
        assert all(seen)
        assert threading.main_thread() not in seen[0] + seen[1]


class TestRevs:
    """A rev that is used twice does not change what an older checkpoint says."""

    OLD = _body("c1", [(["m"], [[A, 0, 0, 2]])], {"m": []}, [[A, 0, 0, ["first", "second"]]])

    @pytest.mark.parametrize("base", [None, "c1"])
    @pytest.mark.parametrize("rev", ["c1-revision", "c1-revis"])
    async def test_under_another_id(self, every_store: httpx.AsyncClient, rev: str, base: str | None) -> None:
        client = every_store
        await _accepted(client, self.OLD)
        again = _body("c2", [(["m"], [[A, 0, 0, 2]])], {"m": []}, [[A, 0, 0, ["other", "things"]]], base=base)
        answer = await client.post("/threads/t/commits", json={**again, "rev": rev})
        if base is None:
            assert (answer.status_code, answer.json().get("verdict")) == (200, "branch_taken")
        else:
            assert answer.status_code == 422, "a base has the branch, so this run would be its second"
        assert (await client.get("/threads/t/checkpoints/c1")).json()["state"] == {"m": ["first", "second"]}
        assert (await client.get("/threads/t/checkpoints/c2")).status_code == 404

    async def test_the_same_commit_is_known_again(self, every_store: httpx.AsyncClient) -> None:
        await _accepted(every_store, self.OLD)
        answer = await every_store.post("/threads/t/commits", json=self.OLD)
        assert (answer.json()["verdict"], answer.json()["repeated"]) == ("committed", True)


@pytest.fixture(params=["memory", "file", "sqlite"])
async def every_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    url = {"memory": "memory", "file": f"file:{tmp_path}", "sqlite": f"sqlite:///{tmp_path}/t.db"}[request.param]
    async with get_checkpointer(url) as store, asking(create_app(store)) as client:
        yield client
