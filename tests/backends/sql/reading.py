"""What every SQL backend has to read, and what it need not read: for the tests of each of them."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.codec import decode
from locus.memory.model.manifest import decode_manifest, items_text
from locus.memory.model.parts import Part, Range, Window, between, total_of
from locus.memory.model.records import DEFAULT_NAMESPACE, Base, Run, Stored
from locus.testing.data import EXACT_VALUES

MESSAGES = ("messages",)
WINDOW = Window(3, frozenset({MESSAGES}))
EDITS = 60


def edited(messages: tuple[Message, ...], number: int, *, back: int = 1) -> tuple[Message, ...]:
    """With another message in the place of the last ones."""
    return (*messages[:-back], Message.user(f"edit {number}"))


async def read_of(checkpointer: Checkpointer, checkpoint_id: str | None = None, part: Part | None = None) -> Stored:
    store = checkpointer.store
    if part is None:
        found = await store.read("t", checkpoint_id, DEFAULT_NAMESPACE)
    else:
        found = await store.read_part("t", checkpoint_id, DEFAULT_NAMESPACE, part)
    assert found is not None
    return found


async def read_since(checkpointer: Checkpointer, checkpoint_id: str | None, held: Stored) -> Stored:
    async with checkpointer.store.using() as engine:
        base = Base(held.entry.checkpoint_id, held.entry.rev)
        found = await engine.read_since("t", DEFAULT_NAMESPACE, checkpoint_id, base)
    assert found is not None
    assert found.since == base
    return found


def number_of_runs(stored: Stored) -> int:
    return sum(map(len, stored.runs.values()))


def texts_of(stored: Stored, runs: Mapping[str, list[Run]], low: int = 0, high: int | None = None) -> list[str]:
    """What the messages of a checkpoint say, from one position to another."""
    cut = decode_manifest(stored.manifest)[MESSAGES]
    assert not isinstance(cut, str)
    found = between(cut, low, total_of(cut) if high is None else high)
    return [message["content"] for message in decode(items_text(found, runs))]


def completed(held: Stored, found: Stored) -> dict[str, list[Run]]:
    """What a reader has of the held checkpoint, and what it was sent."""
    runs: dict[str, dict[int, Run]] = {}
    for stored in (held, found):
        for branch, some in stored.runs.items():
            runs.setdefault(branch, {}).update({run.number: run for run in some})
    return {branch: list(some.values()) for branch, some in runs.items()}


async def check_hidden_runs(checkpointer: Checkpointer) -> None:
    """A last message that was edited again and again."""
    state = AgentState()
    for number in range(4):
        state = state.with_messages([Message.user(f"{number}"), Message.assistant(f"answer {number}")])
        await checkpointer.save(state, "t")
    for number in range(EDITS):
        state = state.with_messages_replaced(edited(state.messages, number))
        before = await checkpointer.save(state, "t")
    said = [message.text for message in state.messages]
    whole = await read_of(checkpointer)
    assert number_of_runs(whole) == 5, "four turns, and the last edit"
    assert texts_of(whole, whole.runs) == said
    window = await read_of(checkpointer, None, Window(2, frozenset({MESSAGES})))
    assert number_of_runs(window) == 2
    assert texts_of(window, window.runs, 6) == said[6:]
    front = await read_of(checkpointer, None, Range(MESSAGES, 0, 2))
    assert number_of_runs(front) == 2, "the first turn, and the run that the manifest names"
    assert texts_of(front, front.runs, 0, 2) == said[:2]
    for number in range(EDITS):
        state = state.with_messages_replaced(edited(state.messages, number))
        await checkpointer.save(state, "t")
    held = await read_of(checkpointer, before)
    found = await read_since(checkpointer, None, held)
    assert number_of_runs(found) == 1
    assert texts_of(found, completed(held, found)) == [message.text for message in state.messages]


async def check_digests_of_any_value(checkpointer: Checkpointer) -> None:
    """Where runs are hidden, a digest tells whether those around them fit: of values that a database writes anew."""
    state = AgentState()
    values = [*EXACT_VALUES, {"b": 1.0, "a": [1e300, -0.0, 2**70], "c": {"z": "\0", "y": "é"}}]
    for number in range(EDITS):
        state = state.with_metadata("values", [*values, {"number": number}])
        await checkpointer.save(state, "t")
    found = await checkpointer.load("t")
    assert found is not None
    assert found.metadata == state.metadata
    assert number_of_runs(await read_of(checkpointer)) < 10


async def check_any_course(checkpointer: Checkpointer, saves: int) -> None:
    """Appends, edits anywhere and trimmed fronts: every version is what it was, and so are its parts."""
    chance, state, said = random.Random(7), AgentState(), dict[str, list[str]]()
    for number in range(saves):
        messages = tuple(state.messages)
        match chance.choice("aaeeeeeeebbtm"):
            case "e" if messages:
                messages = edited(messages, number)
            case "b" if len(messages) > 4:
                messages = edited(messages, number, back=3)
            case "m" if len(messages) > 4:
                place = chance.randrange(1, len(messages) - 2)
                messages = (*messages[:place], Message.user(f"edit {number}"), *messages[place + 1 :])
            case "t" if len(messages) > 6:
                messages = messages[2:]
            case _:
                messages = (*messages, Message.user(f"{number}"), Message.assistant(f"answer {number}"))
        state = state.with_messages_replaced(messages)
        said[await checkpointer.save(state, "t")] = [message.text for message in state.messages]
    read: list[Stored] = []
    for checkpoint_id, texts in list(said.items())[:: max(1, saves // 12)]:
        whole = await read_of(checkpointer, checkpoint_id)
        assert texts_of(whole, whole.runs) == texts
        size = chance.randint(1, len(texts))
        window = await read_of(checkpointer, checkpoint_id, Window(size, frozenset({MESSAGES})))
        assert texts_of(window, window.runs, len(texts) - size) == texts[-size:]
        low = chance.randrange(len(texts))
        page = await read_of(checkpointer, checkpoint_id, Range(MESSAGES, low, 2))
        assert texts_of(page, page.runs, low, min(low + 2, len(texts))) == texts[low : low + 2]
        read.append(whole)
    for found in read:
        for held in chance.sample(read, 4):
            new = await read_since(checkpointer, found.entry.checkpoint_id, held)
            assert texts_of(new, completed(held, new)) == said[found.entry.checkpoint_id]


async def check_a_deletion_in_between(
    reader: Checkpointer,
    other: Checkpointer,
    between_statements: Callable[[Callable[[], Awaitable[None]]], None],
    parts: Sequence[Part | None],
) -> None:
    """The number of a run is given out again while a reader is between its two statements.

    `between_statements` lets something happen after the first statement that the reader sends from now on.
    """
    state = AgentState().with_messages([Message.user("first"), Message.assistant("answer")])
    first = await other.save(state, "t")
    for part in parts:
        old = await other.save(state.with_message(Message.user("old")), "t")

        async def replace(old: str = old) -> None:
            await other.delete("t", old)
            again = await other.load("t", first)
            assert again is not None
            await other.save(again.with_message(Message.user("new")), "t", "new")

        between_statements(replace)
        found = await read_of(reader, None, part)
        last = "old" if found.entry.checkpoint_id == old else "new"
        assert texts_of(found, found.runs) == ["first", "answer", last]
        await other.delete("t", "new")
