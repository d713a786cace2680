"""Parts of a checkpoint in Redis: what the scripts send, what that costs, and that no manifest makes them run on."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path as FilePath
from typing import Any

import pytest
from redis import Redis

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError, CorruptCheckpointError
from locus.memory.backends import redis_checkpointer
from locus.memory.backends.redis.schema import Layout, net
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import Engine
from locus.memory.model.manifest import MOST, items_text, visible, wanted
from locus.memory.model.parts import Part, Range, Window, needed
from locus.memory.model.records import Base, Commit, Entry, Extent, Run, Stored, Verdict
from locus.testing.data import conversation, message
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.redis("redis")

MESSAGES = frozenset({("messages",)})
PARTS: Sequence[Part] = (Range(("messages",), 0, 2), Range(("messages",), -1, 1), Window(1, MESSAGES))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One of its own: requests are counted, and a script that runs on would hold up all tests."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def prefix(tmp_path: FilePath) -> str:
    return f"{tmp_path.name}:"


@pytest.fixture
async def store(server: RedisServer, prefix: str) -> AsyncIterator[Checkpointer]:
    async with redis_checkpointer(server.url, prefix=prefix, retries=0, search=False) as store:
        yield store


@pytest.fixture
async def engine(store: Checkpointer) -> AsyncIterator[Engine]:
    async with store.store.using() as engine:
        yield engine


@pytest.fixture
def client(server: RedisServer) -> Iterator[Redis]:
    with Redis(port=server.port) as client:
        yield client


def keys(prefix: str) -> dict[str, bytes]:
    """The keys of thread "t", by what they hold."""
    return dict(zip("hspr", Layout(prefix, 16).thread_keys("t"), strict=False))


def commit_of(manifest: object, runs: Sequence[Run] = (), head: str = '{"messages":[]}', name: str = "c") -> Commit:
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    return Commit("t", "default", name, f"{name}-rev", datetime.now(UTC), "{}", head, text, tuple(runs))


async def keep(engine: Engine, commit: Commit) -> None:
    assert (await engine.commit(commit)).verdict is Verdict.COMMITTED


async def part_of(engine: Engine, part: Part, checkpoint_id: str | None = None) -> Stored:
    stored = await engine.read_part("t", "default", checkpoint_id, part)
    assert stored is not None
    return stored


def run_names(stored: Stored) -> set[tuple[str, int]]:
    return {(run.branch, run.number) for runs in stored.runs.values() for run in runs}


def expected_names(extents: Sequence[Extent], runs: Sequence[Run]) -> set[tuple[str, int]]:
    """The runs that are named, and those that show something."""
    names = {(extent.branch, extent.run) for extent in extents}
    for extent in extents:
        of_branch = [run for run in runs if run.branch == extent.branch]
        names |= {(run.branch, run.number) for run, _, _ in visible(extent, of_branch)}
    return names


def grown(rng: random.Random, branch: str, count: int, *, gaps: bool) -> tuple[list[Run], list[int]]:
    """Runs of a branch that append, and sometimes replace the end; and how many items it has as of each of them."""
    runs, lengths, number, end = list[Run](), list[int](), 0, 0
    for _ in range(count):
        start = end if rng.random() < 0.6 else rng.randrange(end + 1)
        items = [f"{branch}-{number}-{at}" for at in range(rng.randrange(1, 4))]
        runs.append(Run(branch, number, start, len(items), json.dumps(items)))
        end = start + len(items)
        lengths.append(end)
        number += rng.choice((1, 1, 3, 5_000)) if gaps else 1
    return runs, lengths


def random_commit(rng: random.Random, name: str) -> Commit:
    """A checkpoint with lists of a few extents each, at paths of all kinds, and a large value."""
    paths = [("messages",), ("a", "b"), ("a\0b",), ('"1:a"', "é😀"), ("1:a",)]
    manifest, runs = list[Any](), list[Run]()
    for index, path in enumerate(paths):
        extents = list[Any]()
        for _ in range(rng.randrange(1, 4)):
            branch = f"{name}x{index}x{len(extents)}"
            made, lengths = grown(rng, branch, rng.randrange(1, 30), gaps=rng.random() < 0.2)
            runs += made
            for _ in range(rng.randrange(1, 3)):
                at = rng.randrange(len(made))
                skip = rng.randrange(lengths[at])
                extents.append([branch, made[at].number, skip, rng.randrange(1, lengths[at] - skip + 1)])
        manifest.append([path, extents])
    runs.append(Run(f"#{name}", 0, 0, 1, '[{"deep":[1,2,3]}]'))
    manifest += [[["large"], f"#{name}"], [["again"], f"#{name}"]]
    rng.shuffle(manifest)
    return commit_of(manifest, runs, "{}", name)


def random_part(rng: random.Random) -> Part:
    paths = [("messages",), ("a", "b"), ("a\0b",), ('"1:a"', "é😀"), ("1:a",), ("large", "deep"), ("large",), ("no",)]
    if rng.random() < 0.5:
        return Window(rng.randrange(1, 60), frozenset(rng.sample(paths, rng.randrange(1, 5))))
    return Range(rng.choice(paths), rng.randrange(-70, 70), rng.randrange(40))


async def test_the_script_sends_what_a_part_needs_and_nothing_else(engine: Engine) -> None:
    rng = random.Random(7)
    for number in range(12):
        commit = random_commit(rng, f"c{number}")
        await keep(engine, commit)
        for _ in range(10):
            part = random_part(rng)
            found = await part_of(engine, part)
            assert run_names(found) == expected_names(needed(commit.manifest, part), commit.runs)
            assert (found.head, found.manifest) == (commit.head, commit.manifest)
        whole = await engine.read("t", "default", None)
        assert whole is not None
        assert run_names(whole) == expected_names(wanted(commit.manifest), commit.runs)


def random_extents(rng: random.Random, runs: Sequence[Run], lengths: Sequence[int]) -> list[Extent]:
    """Parts of versions of a branch."""
    found = list[Extent]()
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(runs))
        skip = rng.choice((0, rng.randrange(lengths[at])))
        length = rng.choice((lengths[at] - skip, rng.randrange(1, lengths[at] - skip + 1)))
        found.append(Extent(runs[at].branch, runs[at].number, skip, length))
    return found


async def test_what_is_held_and_what_is_sent_make_the_whole(engine: Engine) -> None:
    """Whatever the two have in common. No run has a digest that would tell a wrong one."""
    rng = random.Random(8)
    for number in range(25):
        runs, lengths = grown(rng, f"b{number}", rng.randrange(1, 25), gaps=number % 3 == 0)
        extents = {name: random_extents(rng, runs, lengths) for name in (f"{number}x", f"{number}y", f"{number}z")}
        for name, found in extents.items():
            await keep(engine, commit_of([[["messages"], found]], runs if name.endswith("x") else [], name=name))
        for asked, held in product(extents, extents):
            whole = await engine.read("t", "default", asked)
            older = await engine.read("t", "default", held)
            fresh = await engine.read_since("t", "default", asked, Base(held, f"{held}-rev"))
            assert whole is not None
            assert older is not None
            assert fresh is not None
            assert fresh.since == Base(held, f"{held}-rev")
            assert run_names(fresh) <= run_names(whole)
            both = {runs[0].branch: list({*older.runs[runs[0].branch], *fresh.runs.get(runs[0].branch, ())})}
            assert items_text(extents[asked], both) == items_text(extents[asked], whole.runs)
            if asked == held:
                assert not fresh.runs


async def test_a_reader_that_holds_an_earlier_turn_gets_the_new_ones(store: Checkpointer, engine: Engine) -> None:
    state, entries = AgentState(), list[Entry]()
    for turn in range(12):
        state = state.with_message(message(turn))
        if turn == 7:  # the last message but one is replaced, and so is everything behind it
            state = state.with_messages_replaced((*state.messages[:-2], message(100), message(101)))
        await store.save(state, "t", f"c{turn}")
        entry = await engine.entry("t", "default", None)
        assert entry is not None
        entries.append(entry)
    for turn, entry in enumerate(entries):
        fresh = await engine.read_since("t", "default", None, Base(entry.checkpoint_id, entry.rev))
        assert fresh is not None
        assert len(run_names(fresh)) == 11 - turn - (turn < 6)  # run 7 hides run 6


def requests(client: Redis) -> int:
    """How many scripts the server has run. Asking changes nothing of it."""
    stats: Mapping[str, Any] = client.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("eval", "evalsha"))


def sent(client: Redis) -> int:
    """How many bytes the server has sent, the answers to this question among them."""
    return int(client.info("stats")["total_net_output_bytes"])


async def size_of(client: Redis, ask: Callable[[], Awaitable[Stored | None]]) -> int:
    """How many bytes the answer of one request has. It has to be one."""
    await ask()  # the server has the script from here on
    idle = -sent(client) + sent(client)
    before, sent_before = requests(client), sent(client)
    assert await ask() is not None
    size = sent(client) - sent_before - idle
    assert requests(client) - before == 1
    return size


async def test_a_part_is_one_request_of_the_same_size_at_any_length(
    store: Checkpointer, engine: Engine, client: Redis
) -> None:
    state, sizes = AgentState(), list[list[int]]()
    for turn in range(200):
        state = state.with_messages(conversation(2, turn * 2))
        await store.save(state, "t")
        if turn not in (49, 199):
            continue
        entry = (await engine.history("t", "default", 2, None))[1]
        since = partial(engine.read_since, "t", "default", None, Base(entry.checkpoint_id, entry.rev))
        parts: list[Part] = [Window(10, MESSAGES), Range(("messages",), 0, 10), Range(("messages",), 50, 10)]
        asking = [since, *(partial(engine.read_part, "t", "default", None, part) for part in parts)]
        sizes.append([await size_of(client, ask) for ask in asking])
    for early, late in zip(*sizes, strict=True):
        assert late < early + 200, sizes


async def test_runs_that_later_ones_hide_are_not_sent(store: Checkpointer, engine: Engine) -> None:
    state = AgentState().with_messages(conversation(20))
    for edit in range(150):
        state = state.with_messages_replaced((*state.messages[:-1], Message.assistant(f"edit {edit}")))
        await store.save(state, "t")
    whole = await engine.read("t", "default", None)
    assert whole is not None
    assert len(run_names(whole)) == 2
    assert len(run_names(await part_of(engine, Window(5, MESSAGES)))) == 2
    assert len(run_names(await part_of(engine, Window(1, MESSAGES)))) == 1
    page = await store.read_items("t", start=-3, count=3)
    assert page is not None
    assert [item["content"] for item in page.items][-1] == "edit 149"


async def test_runs_of_all_sizes_come_in_one_answer(engine: Engine) -> None:
    """Short and long ones, with signs of one to four bytes."""
    texts = ["é", "x" * 100_000, "😀" * 9_000, "\0" * 5_000, "", *("ß€" * 300 for _ in range(300)), "z" * 32_768]
    runs = [Run("b", at, at, 1, json.dumps([text], ensure_ascii=False)) for at, text in enumerate(texts)]
    await keep(engine, commit_of([[["messages"], [["b", len(texts) - 1, 0, len(texts)]]]], runs))
    whole = await engine.read("t", "default", None)
    assert whole is not None
    assert whole.runs == {"b": runs}


async def test_a_path_that_no_text_can_have_leads_nowhere(store: Checkpointer) -> None:
    await store.save(AgentState().with_messages(conversation(3)), "t")
    with pytest.raises(ConfigurationError, match="no list"):
        await store.read_items("t", path=("\ud800",))


async def test_a_large_value_in_many_places_is_sent_once(engine: Engine) -> None:
    value = Run("#d", 0, 0, 1, '["large"]')
    manifest = [[[f"p{at}"], "#d"] for at in range(12_000)]
    await keep(engine, commit_of(manifest, [value], "{}"))
    whole = await engine.read("t", "default", None)
    assert whole is not None
    assert whole.runs == (await part_of(engine, Window(1, MESSAGES))).runs == {"#d": [value]}


@pytest.mark.parametrize(
    "manifest",
    [
        [[["messages"], [["b", MOST, 0, 2]]]],
        [[["messages"], [["b", MOST - 1, 0, 2]]]],
        [[["messages"], [["b", 1, 0, 2], ["b", MOST, 1, 3]]]],
        [[["messages"], [["b", MOST, 0, MOST]] * 60]],
        [[["messages"], [["nowhere", MOST, MOST, MOST]]]],
        [[["messages"], [["b", 2**53, 0, 2]]]],
        [[["messages"], [["b", 1e300, 0, 2]]]],
        [[["messages"], [["b", -1, 0, 2]]]],
        [[["messages"], [["b", 0, -5, 2]]]],
        [[["messages"], [["b", 0.5, 0, 2]]]],
        [[["messages"], [["b", "0", 0, 2]]]],
        [[["messages"], [["b", None, 0, 2]]]],
        [[["messages"], [[7, 0, 0, 2]]]],
        [[["messages"], [["b", 0, 0]]]],
        [[["messages"], [[]]]],
        [[["messages"], 7]],
        [[[["messages"]], [["b", 0, 0, 2]]]],
        [["messages"]],
        [7],
        7,
        None,
        '[[["messages"],[["b",NaN,0,2]]]]',
        '[[["messages"],[["b",0,0,Infinity]]]]',
        '[[["messages"],[["b",0x1,0,2]]]]',
        '[[["messages"],[["b",0,0,2]]]',
        "",
        "[" * 5_000,
    ],
)
async def test_no_manifest_makes_a_script_run_on(engine: Engine, client: Redis, prefix: str, manifest: object) -> None:
    runs = [Run("b", 0, 0, 1, "[1]"), Run("b", MOST, 5, 1, "[2]")]
    await keep(engine, commit_of([[["messages"], [["b", 0, 0, 1]]]], runs))
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    # What writes a manifest, or lets one in, looks at it first. And there is no checksum in format 1.
    client.hset(keys(prefix)["p"], "1", net("b 0 0 1;") + net('{"messages":[]}') + net(text))
    for part in PARTS:
        with pytest.raises(CorruptCheckpointError):
            stored = await part_of(engine, part)
            for extent in needed(stored.manifest, part):
                visible(extent, stored.runs.get(extent.branch, []))
    assert client.ping()


async def test_a_checkpoint_of_too_many_extents_is_refused(engine: Engine) -> None:
    extents = [["b", 1, at % 2, 1] for at in range(10_001)]
    await keep(engine, commit_of([[["messages"], extents]], [Run("b", at, at, 1, "[1]") for at in range(2)]))
    assert len(run_names(await part_of(engine, Window(9, MESSAGES)))) == 2
    with pytest.raises(CorruptCheckpointError, match="more than can be read"):
        await part_of(engine, Window(1, frozenset()))
    with pytest.raises(CorruptCheckpointError, match="more than can be read"):
        await engine.read("t", "default", None)


async def test_a_checkpoint_that_takes_too_many_steps_is_refused(engine: Engine) -> None:
    extents = [["b", 1_000, 0, 1 + at % 2] for at in range(9_000)]
    await keep(engine, commit_of([[["messages"], extents]], [Run("b", at, at, 1, "[1]") for at in range(1_001)]))
    with pytest.raises(CorruptCheckpointError, match="more than can be read"):
        await engine.read("t", "default", None)
    assert len(run_names(await part_of(engine, Window(50, MESSAGES)))) == 3


async def test_damage_is_told_where_it_is_needed(
    store: Checkpointer, engine: Engine, client: Redis, prefix: str
) -> None:
    state = AgentState()
    for turn in range(12):
        state = state.with_message(message(turn))
        await store.save(state, "t", f"c{turn}")
    held = await engine.entry("t", "default", "c10")
    assert held is not None
    runs, base = keys(prefix)["r"], Base("c10", held.rev)
    stored: Any = client.hgetall(runs)
    names = sorted((name for name in stored if b" " in name), key=lambda name: int(name.split(b" ")[1]))
    client.hset(runs, names[2], stored[names[2]].replace(b"content", b"contant"))
    assert len(run_names(await part_of(engine, Window(9, MESSAGES)))) == 9
    with pytest.raises(CorruptCheckpointError, match="checksum"):
        await part_of(engine, Window(10, MESSAGES))
    with pytest.raises(CorruptCheckpointError, match="checksum"):
        await part_of(engine, Range(("messages",), 2, 1))
    assert await engine.read_since("t", "default", None, base) is not None
    client.hdel(runs, names[11])
    for part in (Window(1, MESSAGES), Range(("messages",), 0, 1)):
        with pytest.raises(CorruptCheckpointError, match="missing"):
            await part_of(engine, part)
    with pytest.raises(CorruptCheckpointError):
        await engine.read_since("t", "default", None, base)
    assert len(run_names(await part_of(engine, Window(1, MESSAGES), "c10"))) == 1


async def test_a_held_checkpoint_without_its_payload_counts_for_nothing(
    store: Checkpointer, engine: Engine, client: Redis, prefix: str
) -> None:
    state = AgentState().with_message(message(1))
    await store.save(state, "t", "c1")
    await store.save(state.with_message(message(2)), "t", "c2")
    entry = await engine.entry("t", "default", "c1")
    assert entry is not None
    client.hdel(keys(prefix)["p"], "1")
    found = await engine.read_since("t", "default", None, Base("c1", entry.rev))
    assert found is not None
    assert found.since is None
    assert len(run_names(found)) == 2
