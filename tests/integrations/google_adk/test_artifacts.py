"""What ADK's docstrings and its own services promise of artifacts, asked of them and of ours; and what ours add."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.artifacts.file_artifact_service import FileArtifactService
from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

from locus.errors import CorruptCheckpointError, InvalidIdError
from locus.integrations.google_adk import NAMESPACE, LocusArtifactService, LocusSessionService
from locus.memory.backends import SQLiteBackend, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.stores import TestStore
from tests.integrations.google_adk.events import ALICE

S: Any = {**ALICE, "session_id": "s"}


def blob(data: bytes, mime_type: str = "image/png") -> types.Part:
    return types.Part(inline_data=types.Blob(mime_type=mime_type, data=data))


@pytest_asyncio.fixture(params=["in memory, of ADK", "files, of ADK", "memory", "file", "sqlite"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BaseArtifactService]:
    if request.param == "in memory, of ADK":
        yield InMemoryArtifactService()
    elif request.param == "files, of ADK":
        yield FileArtifactService(tmp_path / "artifacts")
    else:
        place = {"memory": "memory", "file": f"file:{tmp_path / 'threads'}", "sqlite": f"sqlite:{tmp_path / 'a.db'}"}
        async with LocusArtifactService(place[request.param]) as ours:
            yield ours


async def test_versions_are_counted_from_nought(service: BaseArtifactService) -> None:
    assert await service.load_artifact(**S, filename="a.png") is None
    assert await service.list_versions(**S, filename="a.png") == []
    parts = [blob(bytes(range(256))), blob(b"two"), types.Part(text="three ä")]
    for number, part in enumerate(parts):
        assert await service.save_artifact(**S, filename="a.png", artifact=part) == number
    assert await service.list_versions(**S, filename="a.png") == [0, 1, 2]
    assert await service.load_artifact(**S, filename="a.png") == parts[2]
    for number, part in enumerate(parts):
        assert await service.load_artifact(**S, filename="a.png", version=number) == part
    assert await service.load_artifact(**S, filename="a.png", version=3) is None
    assert await service.load_artifact(**{**S, "session_id": "t"}, filename="a.png") is None
    assert await service.load_artifact(**{**S, "user_id": "bob"}, filename="a.png") is None


async def test_names_of_a_session_and_of_its_user(service: BaseArtifactService) -> None:
    await service.save_artifact(**S, filename="b.txt", artifact=types.Part(text="b"))
    await service.save_artifact(**S, filename="user:a.txt", artifact=types.Part(text="a"))
    await service.save_artifact(**{**S, "session_id": "t"}, filename="c/d.txt", artifact=types.Part(text="c"))
    assert await service.list_artifact_keys(**S) == ["b.txt", "user:a.txt"]
    assert await service.list_artifact_keys(**{**S, "session_id": "t"}) == ["c/d.txt", "user:a.txt"]
    assert await service.list_artifact_keys(**ALICE) == ["user:a.txt"]
    assert await service.list_artifact_keys(app_name="shop", user_id="bob", session_id="s") == []
    assert await service.load_artifact(**{**S, "session_id": "t"}, filename="user:a.txt") == types.Part(text="a")


async def test_a_deleted_artifact_is_gone_with_all_versions(service: BaseArtifactService) -> None:
    for text in ("1", "2"):
        await service.save_artifact(**S, filename="a.txt", artifact=types.Part(text=text))
    await service.save_artifact(**S, filename="b.txt", artifact=types.Part(text="b"))
    await service.delete_artifact(**S, filename="a.txt")
    await service.delete_artifact(**S, filename="none.txt")
    assert await service.list_artifact_keys(**S) == ["b.txt"]
    assert await service.load_artifact(**S, filename="a.txt", version=0) is None
    assert await service.save_artifact(**S, filename="a.txt", artifact=types.Part(text="new")) == 0


async def test_what_is_known_of_a_version(service: BaseArtifactService) -> None:
    await service.save_artifact(**S, filename="a", artifact=blob(b"x"), custom_metadata={"k": {"n": [1]}})
    await service.save_artifact(**S, filename="a", artifact={"text": "plain"})
    first, second = await service.list_artifact_versions(**S, filename="a")
    assert (first.version, first.mime_type, first.custom_metadata) == (0, "image/png", {"k": {"n": [1]}})
    assert (second.version, second.mime_type, second.custom_metadata) in ((1, "text/plain", {}), (1, None, {}))
    assert second.create_time >= first.create_time > 1.7e9
    assert first.canonical_uri != second.canonical_uri
    assert await service.get_artifact_version(**S, filename="a", version=0) == first
    newest = await service.get_artifact_version(**S, filename="a")
    assert newest is not None
    assert newest.version == 1
    assert await service.get_artifact_version(**S, filename="a", version=7) is None
    assert await service.get_artifact_version(**S, filename="none") is None
    assert await service.list_artifact_versions(**S, filename="none") == []


async def test_what_a_rewind_has_removed_is_absent(service: BaseArtifactService) -> None:
    await service.save_artifact(**S, filename="a", artifact=blob(b"x"))
    await service.save_artifact(**S, filename="a", artifact=blob(b"", "application/octet-stream"))
    assert await service.load_artifact(**S, filename="a") is None
    assert await service.load_artifact(**S, filename="a", version=0) == blob(b"x")


async def test_what_is_no_artifact_is_refused(service: BaseArtifactService) -> None:
    with pytest.raises(InputValidationError):
        await service.save_artifact(**S, filename="a", artifact=types.Part())
    assert await service.load_artifact(**S, filename="a") is None


def reference(uri: str) -> types.Part:
    return types.Part(file_data=types.FileData(file_uri=uri, mime_type="text/plain"))


@pytest_asyncio.fixture
async def ours(tmp_path: Path) -> AsyncIterator[LocusArtifactService]:
    async with LocusArtifactService(f"sqlite:{tmp_path / 'a.db'}") as ours:
        yield ours


async def test_references_are_followed_within_their_scope(ours: LocusArtifactService) -> None:
    await ours.save_artifact(**S, filename="a", artifact=types.Part(text="a"))
    known = await ours.get_artifact_version(**S, filename="a")
    assert known is not None
    assert known.canonical_uri == "artifact://apps/shop/users/alice/sessions/s/artifacts/a/versions/0"
    await ours.save_artifact(**S, filename="b", artifact=reference(known.canonical_uri))
    assert await ours.load_artifact(**S, filename="b") == types.Part(text="a")
    await ours.save_artifact(**ALICE, filename="logo", artifact=types.Part(text="logo"))
    shared = await ours.get_artifact_version(**S, filename="user:logo")
    assert shared is not None
    assert shared.canonical_uri == "artifact://apps/shop/users/alice/artifacts/user:logo/versions/0"
    await ours.save_artifact(**S, filename="c", artifact=reference(shared.canonical_uri))
    assert await ours.load_artifact(**S, filename="c") == types.Part(text="logo")
    outside = reference("https://example.com/x.png")
    await ours.save_artifact(**S, filename="d", artifact=outside)
    assert await ours.load_artifact(**S, filename="d") == outside
    circle = "artifact://apps/shop/users/alice/sessions/s/artifacts/e/versions/0"
    await ours.save_artifact(**S, filename="e", artifact=reference(circle))
    with pytest.raises(InputValidationError, match="recursion depth"):
        await ours.load_artifact(**S, filename="e")
    for bad in (circle.replace("alice", "bob"), circle.replace("/s/", "/t/"), "artifact://nothing"):
        with pytest.raises(InputValidationError):
            await ours.save_artifact(**S, filename="f", artifact=reference(bad))


async def test_artifacts_of_a_user_need_no_session(ours: LocusArtifactService) -> None:
    await ours.save_artifact(**ALICE, filename="a", artifact=types.Part(text="a"))
    assert await ours.list_artifact_keys(**S) == ["user:a"]
    assert await ours.load_artifact(**S, filename="user:a") == types.Part(text="a")
    assert await ours.load_artifact(**ALICE, filename="a") == types.Part(text="a")
    assert await ours.load_artifact(**S, filename="a") is None


@pytest.mark.parametrize("bad", ["..", "a/../b", "..\\\\x", "/x", "C:x", "", " ", "a\x00b", "a/artifacts/b"])
@pytest.mark.parametrize("field", ["app_name", "user_id", "session_id"])
async def test_an_owner_that_adk_refuses_is_refused_with_its_error(
    service: BaseArtifactService, field: str, bad: str
) -> None:
    place = {**S, field: bad}
    name = {**place, "filename": "a"}
    calls: dict[Callable[..., Awaitable[Any]], dict[str, Any]] = {
        service.save_artifact: {**name, "artifact": types.Part(text="a")},
        service.load_artifact: name,
        service.list_artifact_keys: place,
        service.list_versions: name,
        service.list_artifact_versions: name,
        service.get_artifact_version: name,
        service.delete_artifact: name,
    }
    for method, arguments in calls.items():
        with pytest.raises(InputValidationError):
            await method(**arguments)


async def test_names_are_data(ours: LocusArtifactService) -> None:
    names = ["../x", "/etc/passwd", "a/b", "a%2Fb", "ä ö", "*", "C:\\x", "metadata.json", "versions", "x" * 200]
    for name in names:
        await ours.save_artifact(**S, filename=name, artifact=types.Part(text=name))
    assert await ours.list_artifact_keys(**S) == sorted(names)
    for name in names:
        assert await ours.load_artifact(**S, filename=name) == types.Part(text=name)
    for bad in ("", "user:", "\ud800", "x" * 300):
        with pytest.raises(InvalidIdError):
            await ours.save_artifact(**S, filename=bad, artifact=types.Part(text="x"))


async def test_sessions_and_artifacts_share_a_store(handle: Checkpointer) -> None:
    sessions, artifacts = LocusSessionService(handle), LocusArtifactService(handle)
    await sessions.create_session(**ALICE, session_id="s")
    await artifacts.save_artifact(**S, filename="a", artifact=types.Part(text="a"))
    await artifacts.save_artifact(**ALICE, filename="b", artifact=types.Part(text="b"))
    assert [one.id for one in (await sessions.list_sessions(app_name="shop")).sessions] == ["s"]
    await sessions.fork_session(**ALICE, session_id="s", new_session_id="t")
    assert await artifacts.list_artifact_keys(**{**S, "session_id": "t"}) == ["user:b"]
    await sessions.delete_session(**ALICE, session_id="s")
    assert await artifacts.list_artifact_keys(**S) == ["a", "user:b"]


async def test_damage_is_told_and_shows_nothing(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        artifacts, backend = LocusArtifactService(store), SQLiteBackend(tmp_path / "a.db")
        await backend.save("shop/alice/s/a", {"part": {"text": {"secret": 1}}}, namespace=NAMESPACE)
        for call in (artifacts.load_artifact, artifacts.get_artifact_version, artifacts.list_versions):
            with pytest.raises(CorruptCheckpointError) as told:
                await call(**S, filename="a")
            assert "secret" not in str(told.value)
            assert "alice" not in str(told.value)
        await backend.close()


async def test_artifacts_on_a_server(server_store: TestStore) -> None:
    """What a server could get wrong: bytes, and numbers that are given out once."""
    async with server_store.open() as one, server_store.open() as another:
        services = [LocusArtifactService(handle) for handle in (one, another)]
        data = bytes(range(256)) * 40
        saves = [
            services[n % 2].save_artifact(**S, filename="ä/b.bin", artifact=blob(data + bytes([n]))) for n in range(4)
        ]
        assert sorted(await asyncio.gather(*saves)) == [0, 1, 2, 3]
        found = [await services[0].load_artifact(**S, filename="ä/b.bin", version=n) for n in range(4)]
        assert sorted(
            part.inline_data.data for part in found if part and part.inline_data and part.inline_data.data
        ) == [data + bytes([n]) for n in range(4)]
        assert await services[1].list_artifact_keys(**S) == ["ä/b.bin"]
        assert [one.version for one in await services[1].list_artifact_versions(**S, filename="ä/b.bin")] == [
            0,
            1,
            2,
            3,
        ]
        await services[0].delete_artifact(**S, filename="ä/b.bin")
        assert await services[1].list_artifact_keys(**S) == []
