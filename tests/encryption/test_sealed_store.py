"""What a store with keys keeps: nothing readable, nothing that can be moved, and nothing without its key."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.encryption import Keyring, new_key
from locus.encryption.data_key import NotOpenedError, NotSealedError
from locus.errors import (
    ConfigurationError,
    ConflictError,
    CorruptCheckpointError,
    EncryptionKeyError,
    SerializationError,
)
from locus.memory import get_checkpointer
from locus.memory.backends import MemoryCheckpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.payloads import dict_from
from locus.memory.model.records import DEFAULT_NAMESPACE, Stored
from locus.memory.sealed.engine import SealedEngine
from locus.memory.sealed.texts import opened_stored
from locus.server import create_app
from locus.server.auth import Token
from tests.encryption.stores import keyring
from tests.server.running import threaded

MARKED = ("elephant", "walrus", "giraffe", "channel-of-tigers", "messages", "tool_calls", "okapi")
LONG = "elephant " * 2_000


@asynccontextmanager
async def opened(url: str, keys: Keyring | None) -> AsyncIterator[Checkpointer]:
    async with get_checkpointer(url, keys=keys) if keys else get_checkpointer(url) as handle:
        yield handle


async def fill(handle: Checkpointer) -> AgentState:
    state = AgentState(metadata={"large": LONG, "giraffe": [f"giraffe {number}" for number in range(50)]})
    for number in range(4):
        state = state.with_message(Message.user(f"elephant {number}"))
        await handle.save(state, "thread", f"c{number}", {"kind": "walrus", "step": number})
    await handle.put_writes("thread", "c3", "task", [("channel-of-tigers", {"okapi": 1})], task_path="okapi")
    return state


def bytes_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


@pytest.mark.parametrize("scheme", ["file", "sqlite"])
async def test_nothing_that_was_said_stands_in_the_files(tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}:{tmp_path / 'store'}"
    async with opened(url, keyring()) as handle:
        state = await fill(handle)
        stored = bytes_in(tmp_path)
        assert [word for word in MARKED if word.encode() in stored] == []
        assert b"thread" in stored, "ids are in clear"
        assert len(await handle.query_by_metadata("kind", "walrus")) == 4
        assert await handle.query_by_metadata("kind", "seal") == []
    async with opened(url, keyring()) as handle:
        assert await handle.load("thread") == state
        (write,) = await handle.get_writes("thread", "c3")
        assert (write.channel, write.value, write.task_path) == ("channel-of-tigers", {"okapi": 1}, "okapi")


async def test_metadata_that_stays_clear(tmp_path: Path) -> None:
    keys = Keyring({"k": new_key()}, clear_metadata=["kind"])
    async with opened(f"sqlite:{tmp_path / 'a.db'}", keys) as handle:
        await fill(handle)
        assert len(await handle.query_by_metadata("kind", "walrus")) == 4
    assert b"walrus" in bytes_in(tmp_path)


async def test_without_keys_a_sealed_thread_is_an_error_and_not_garbage(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with opened(url, keyring()) as handle:
        await fill(handle)
    async with opened(url, None) as handle:
        with pytest.raises(EncryptionKeyError, match="LOCUS_KEYS"):
            await handle.load("thread")
        with pytest.raises(EncryptionKeyError, match="LOCUS_KEYS"):
            await handle.load("thread", "c1")


async def test_a_thread_in_clear_is_not_taken_for_a_sealed_one(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with opened(url, None) as handle:
        await fill(handle)
    async with opened(url, keyring()) as handle:
        with pytest.raises((CorruptCheckpointError, EncryptionKeyError), match=r"in clear|is sealed"):
            await handle.load("thread")
        await handle.save(AgentState(), "another")
        assert await handle.load("another") is not None


async def test_a_state_that_looks_sealed_is_refused(tmp_path: Path) -> None:
    async with opened(f"sqlite:{tmp_path / 'a.db'}", None) as handle:
        with pytest.raises(SerializationError, match="~s1:"):
            await handle.save(AgentState(metadata={"~": "~s1:AAAA"}), "thread")


async def test_another_key_is_named(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with opened(url, Keyring({"first": new_key()})) as handle:
        await fill(handle)
    for keys, told in (
        (Keyring({"second": new_key()}), r"'first'.*it has: second"),
        (Keyring({"first": new_key()}), "'first'"),
    ):
        async with opened(url, keys) as handle:
            with pytest.raises(EncryptionKeyError, match=told):
                await handle.load("thread")
            with pytest.raises(EncryptionKeyError, match=told):
                await handle.save(AgentState(), "thread")


async def test_a_second_key_wraps_what_is_new_and_the_first_opens_what_is_old(tmp_path: Path) -> None:
    url, first, second = f"sqlite:{tmp_path / 'a.db'}", new_key(), new_key()
    async with opened(url, Keyring({"first": first})) as handle:
        state = await fill(handle)
    async with opened(url, Keyring({"second": second, "first": first})) as handle:
        assert await handle.load("thread") == state
        await handle.save(AgentState(), "new")
    async with opened(url, Keyring({"second": second})) as handle:
        assert await handle.load("new") is not None
        with pytest.raises(EncryptionKeyError, match="'first'"):
            await handle.load("thread")


async def test_a_subject_has_one_key_for_its_threads_and_a_copy_leaves_it(tmp_path: Path) -> None:
    keys = Keyring({"k": new_key()}, subject=lambda thread_id: thread_id.partition("/")[0])
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with opened(url, keys) as handle:
        state = await fill(handle)
        await handle.save(state, "anna/1")
        await handle.save(state, "anna/2")
        assert await handle.copy_thread("anna/1", "bert/1")
        assert await handle.copy_thread("bert/1", "bert/2")
        await handle.save(state.with_message(Message.user("more")), "bert/2")
    async with opened(url, keys) as handle:
        engine = handle.store.engine
        assert isinstance(engine, SealedEngine)
        found = [await engine.keys.of(one) for one in ("anna/1", "anna/2", "bert/1", "bert/2")]
        tags = [one.key.tag for one in found if one is not None]
        assert tags[0] == tags[1] != tags[2] == tags[3]
        for one in ("anna/1", "anna/2", "bert/1"):
            assert await handle.load(one) == state
        loaded = await handle.load("bert/2")
        assert loaded is not None
        assert loaded.messages[-1].content == "more"
        assert loaded.metadata == state.metadata


async def test_a_second_copy_from_elsewhere_leaves_the_first_one_readable(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with opened(url, keyring()) as one, opened(url, keyring()) as other:
        state = await fill(one)
        await other.save(AgentState(), "elsewhere")
        engine = other.store.engine
        assert isinstance(engine, SealedEngine)
        elsewhere = await engine.keys.of("elsewhere")
        assert elsewhere is not None
        assert await one.copy_thread("thread", "copy")
        with pytest.raises(ConflictError):  # it had looked before the first copy was there
            await engine.keys.note_copy(elsewhere, "copy")
    async with opened(url, keyring()) as handle:
        assert await handle.load("copy") == state


async def test_a_key_management_service_wraps_and_unwraps(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    async def wrap(key: bytes, subject: str) -> bytes:
        asked.append(("wrap", subject))
        return key[::-1]

    def unwrap(wrapped: bytes, subject: str) -> bytes:
        asked.append(("unwrap", subject))
        return wrapped[::-1]

    url, keys = f"file:{tmp_path / 'store'}", Keyring(wrap=wrap, unwrap=unwrap, service="aws")
    async with opened(url, keys) as handle:
        state = await fill(handle)
    async with opened(url, keys) as handle:
        for _ in range(3):
            assert await handle.load("thread") == state
    assert [subject for what, subject in asked if what == "wrap"].count("locus:thread") == 1
    assert len(asked) <= 6, "keys are held for some minutes"


def test_keys_that_are_none(tmp_path: Path) -> None:
    for keys in ({}, {"a": "short"}, {"a": b"short"}, {"a b": new_key()}, {"": new_key()}):
        with pytest.raises(ConfigurationError) as caught:
            Keyring(keys)
        assert "short" not in str(caught.value)
    file = tmp_path / "keys"
    file.write_text(f"# of 2026\n\nfirst {new_key()}\n")
    file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        Keyring.from_file(file)
    file.chmod(0o600)
    ring = Keyring.from_file(file)
    assert repr(ring) == "Keyring(first)"
    for text in ("first", "first a b", f"a {new_key()}\na {new_key()}"):
        with pytest.raises(ConfigurationError, match="line"):
            Keyring.from_text(text)
    with pytest.raises(ConfigurationError, match="Keyring"):
        get_checkpointer("memory", keys="a key")
    with pytest.raises(ConfigurationError, match="together"):
        Keyring(wrap=lambda key, _: key)


def moved(rng: random.Random, sealed: list[Stored]) -> Stored:
    """A stored checkpoint of the first thread in which something was changed, or comes from somewhere else."""
    stored, other = rng.sample(sealed[:4], 2)
    stranger = sealed[4]
    another = rng.choice([other, stranger])
    branches = sorted(stored.runs)
    branch = rng.choice(branches)
    runs = {name: list(some) for name, some in stored.runs.items()}
    number = rng.randrange(len(runs[branch]))
    run = runs[branch][number]
    match rng.randrange(12):
        case 0:
            return replace(stored, head=another.head)
        case 1:
            return replace(stored, manifest=other.manifest)
        case 2:
            return replace(stored, head=other.head, manifest=other.manifest)
        case 3:
            return replace(stored, entry=replace(stored.entry, metadata=another.entry.metadata))
        case 4:
            return replace(stored, entry=replace(stored.entry, rev=other.entry.rev))
        case 5:
            return replace(stored, entry=replace(stored.entry, checkpoint_id=other.entry.checkpoint_id))
        case 6:
            runs[branch][number] = run._replace(
                items=rng.choice([one for some in stored.runs.values() for one in some if one != run]).items
            )
        case 7:
            runs[branch][number] = run._replace(start=run.start + 1)
        case 8:
            runs[branch][number] = run._replace(number=run.number + 1)
        case 9:
            runs[branch][number] = run._replace(items='["plain"]')
        case 10:
            at = rng.randrange(60, len(stored.head))
            letter = rng.choice([one for one in "ABCDwxyz0189" if one != stored.head[at]])
            return replace(stored, head=f"{stored.head[:at]}{letter}{stored.head[at + 1 :]}")
        case _:
            del runs[branch][number]
    return replace(stored, runs=runs)


async def test_whatever_is_moved_changed_or_forged_is_an_error() -> None:
    """A thousand changes of what the store keeps, as somebody makes them who knows all of its formats."""
    async with get_checkpointer("memory", keys=keyring()) as handle:
        await fill(handle)
        await handle.copy_thread("thread", "copy")
        await handle.save(AgentState(metadata={"large": LONG}).with_message(Message.user("x")), "stranger")
        engine = handle.store.engine
        assert isinstance(engine, SealedEngine)
        keys = await engine.keys.of("thread")
        assert keys is not None
        read = [("thread", f"c{number}") for number in range(4)] + [("stranger", None)]
        sealed = [await engine.inner.read(thread_id, DEFAULT_NAMESPACE, name) for thread_id, name in read]
    whole = {stored.entry.checkpoint_id: dict_from(opened_stored(stored, keys)) for stored in sealed[:4]}
    rng = random.Random(7)
    refused = 0
    for _ in range(1_000):
        changed = moved(rng, sealed)
        try:
            found = dict_from(opened_stored(changed, keys))
        except (NotOpenedError, NotSealedError, CorruptCheckpointError):
            refused += 1
        else:
            # The last bits of base64 stand for nothing, and so does a run that nothing shows.
            assert found == whole[changed.entry.checkpoint_id]
    assert refused > 980


async def test_a_tenant_seals_what_a_server_keeps() -> None:
    tokens = [Token("a" * 40), Token("b" * 40, prefix="acme/")]
    kept = MemoryCheckpointer()
    with threaded(create_app(kept, tokens)) as port:
        url = f"http://127.0.0.1:{port}"
        for token, thread_id in (("a" * 40, "thread"), ("b" * 40, "acme/1")):
            async with get_checkpointer(url, token=token, keys=keyring()) as handle:
                state = AgentState(metadata={"large": LONG}).with_message(Message.user("elephant"))
                await handle.save(state, thread_id, metadata={"kind": "walrus"})
                assert await handle.copy_thread(thread_id, f"{thread_id}-copy")
            async with get_checkpointer(url, token=token, keys=keyring()) as handle:
                assert await handle.load(f"{thread_id}-copy") == state
                assert len(await handle.query_by_metadata("kind", "walrus")) == 2
        async with get_checkpointer(url, token="a" * 40, keys=keyring()) as handle:
            assert len(await handle.query_by_metadata("kind", "walrus")) == 4
            assert len(await handle.query_by_metadata("kind", "walrus", 3)) == 3
            assert len(await handle.query_by_metadata("kind", "walrus", prefix="acme/")) == 2
    assert len(await kept.list_threads()) == 4
