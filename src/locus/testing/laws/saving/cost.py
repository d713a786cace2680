"""A save writes what is new: the bytes that reach the engine do not grow with the thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import Engine
from locus.memory.model.records import Commit, Outcome
from locus.testing.laws.base import Laws, OpenHandle, assert_same_state, dicts, present

EARLY = 10
ALLOWED = 1.5

_TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind. " * 4


def _turn(number: int) -> list[Message]:
    """The four messages of a turn, of a constant size."""
    return [Message.user(f"{number:06}.{part} {_TEXT}") for part in range(4)]


class SentBytes:
    """Counts the bytes that saves hand to the engine."""

    def __init__(self) -> None:
        self.bytes = 0

    def take(self) -> int:
        """The bytes that saves have handed over since the last call of this method."""
        counted, self.bytes = self.bytes, 0
        return counted

    def watch(self, kind: type[Engine], monkeypatch: pytest.MonkeyPatch) -> None:
        commit: Callable[[Engine, Commit], Awaitable[Outcome]] = kind.commit

        async def counted(engine: Engine, record: Commit) -> Outcome:
            runs = (run.items for run in (*record.runs, *record.values))
            self.bytes += sum(len(text.encode()) for text in (record.head, record.manifest, record.metadata, *runs))
            return await commit(engine, record)

        monkeypatch.setattr(kind, "commit", counted)


def _assert_flat(sizes: list[int]) -> None:
    """Assert that late saves send about as many bytes as early ones, and few more than a turn has.

    Each figure is the mean of five saves, so that an occasional larger one counts. A save may send a head, and twice
    the bytes of `_turn`.
    """
    last = len(sizes) - 1
    early, late = (sum(sizes[turn - 4 : turn + 1]) / 5 for turn in (EARLY, last))
    new = sum(len(said.text) for said in _turn(0))
    assert new < early <= 2 * new + 2_000
    assert late <= ALLOWED * early, f"{early:.0f} bytes at turn {EARLY}, {late:.0f} at turn {last}"


class CostLaws(Laws):
    """A save sends bytes for what is new, and not for the length of the thread. Time belongs to a benchmark."""

    late_turn: ClassVar[int] = 200
    """The turn whose saves are compared with the early ones.

    A save that writes the whole thread is too large at the early turn already. Many turns show slow growth; a slow
    store may do with fewer.
    """

    def slowly(self, turn: int) -> bool:
        """True for turns that are saved the slow way under test. The turns between both ends only fill the thread."""
        return turn <= EARLY or turn > self.late_turn - 15

    @pytest.fixture
    def sent(self, checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch) -> SentBytes:
        sent = SentBytes()
        sent.watch(type(checkpointer.store.engine), monkeypatch)
        return sent

    async def test_appending_with_a_warm_handle_is_flat(self, checkpointer: Checkpointer, sent: SentBytes) -> None:
        state, sizes = AgentState(), []
        for turn in range(self.late_turn + 1):
            state = state.with_messages(_turn(turn)).next_iteration()
            await checkpointer.save(state, "t")
            sizes.append(sent.take())
        _assert_flat(sizes)
        assert_same_state(await checkpointer.load("t"), state)

    async def test_appending_after_a_load_each_turn_is_flat(self, checkpointer: Checkpointer, sent: SentBytes) -> None:
        state, sizes = AgentState(), []
        for turn in range(self.late_turn + 1):
            known = await checkpointer.load("t") if self.slowly(turn) else None
            state = (known or state).with_messages(_turn(turn))
            await checkpointer.save(state, "t")
            sizes.append(sent.take())
        _assert_flat(sizes)

    async def test_a_cold_handle_each_turn_is_flat(
        self, open_handle: OpenHandle, checkpointer: Checkpointer, sent: SentBytes
    ) -> None:
        """The state is built from plain data, and the handle has never seen the thread."""
        state, sizes = AgentState(), []
        for turn in range(self.late_turn + 1):
            state = state.with_messages(_turn(turn))
            handle = checkpointer
            if self.slowly(turn):
                state, handle = AgentState.from_checkpoint(state.to_checkpoint()), open_handle()
            await handle.save(state, "t")
            sizes.append(sent.take())
        _assert_flat(sizes)
        assert_same_state(await checkpointer.load("t"), state)

    @pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
    async def test_plain_dicts_are_flat(
        self, open_handle: OpenHandle, checkpointer: Checkpointer, sent: SentBytes, warm: bool
    ) -> None:
        items: list[Any] = []
        sizes = []
        for turn in range(self.late_turn + 1):
            items = [dict(item) for item in items] + [{"text": said.text} for said in _turn(turn)]
            handle = open_handle() if not warm and self.slowly(turn) else checkpointer
            await dicts(handle).save("t", {"turn": turn, "values": {"messages": items}, "note": _TEXT * 5})
            sizes.append(sent.take())
        _assert_flat(sizes)

    async def test_a_window_trimmed_from_the_front_is_flat(self, checkpointer: Checkpointer, sent: SentBytes) -> None:
        state, sizes = AgentState(), []
        for turn in range(self.late_turn + 1):
            kept = state.messages[4:] if len(state.messages) >= 24 else state.messages
            state = state.with_messages_replaced(kept + tuple(_turn(turn)))
            await checkpointer.save(state, "t")
            sizes.append(sent.take())
        _assert_flat(sizes)

    async def test_a_system_message_and_a_window_behind_it_are_flat(
        self, checkpointer: Checkpointer, sent: SentBytes
    ) -> None:
        state, sizes = AgentState().with_message(Message.system(_TEXT)), []
        for turn in range(self.late_turn + 1):
            kept = state.messages[5:] if len(state.messages) >= 25 else state.messages[1:]
            state = state.with_messages_replaced(state.messages[:1] + kept + tuple(_turn(turn)))
            await checkpointer.save(state, "t")
            sizes.append(sent.take())
        _assert_flat(sizes)

    async def test_an_edited_last_message_is_flat(self, checkpointer: Checkpointer, sent: SentBytes) -> None:
        state, sizes = AgentState(), []
        for turn in range(self.late_turn + 1):
            edited = (Message.assistant(f"edited {turn:06}"),) if state.messages else ()
            state = state.with_messages_replaced(state.messages[:-1] + edited + tuple(_turn(turn)))
            await checkpointer.save(state, "t")
            sizes.append(sent.take())
        _assert_flat(sizes)

    async def test_an_edit_near_the_front_is_flat(self, checkpointer: Checkpointer, sent: SentBytes) -> None:
        """The messages after the edited one are stored already."""
        state, sizes = AgentState().with_messages(_turn(0)), []
        for turn in range(self.late_turn + 1):
            edited = Message.assistant(f"edited {turn:06}")
            behind = state.messages[3:] + tuple(_turn(turn))
            state = state.with_messages_replaced(state.messages[:2] + (edited,) + behind)
            await checkpointer.save(state, "t")
            sizes.append(sent.take())
        _assert_flat(sizes)

    async def test_edited_dicts_are_flat(self, checkpointer: Checkpointer, sent: SentBytes) -> None:
        items: list[Any] = []
        sizes = []
        for turn in range(self.late_turn + 1):
            items = [*items[:-1], {"edited": f"{turn:06}"}, *({"text": said.text} for said in _turn(turn))]
            await dicts(checkpointer).save("t", {"items": items})
            sizes.append(sent.take())
        _assert_flat(sizes)

    async def test_a_fork_from_an_old_checkpoint_is_flat(self, checkpointer: Checkpointer, sent: SentBytes) -> None:
        state, names, sizes = AgentState(), list[str](), []
        for turn in range(self.late_turn + 1):
            state = state.with_messages(_turn(turn))
            names.append(await checkpointer.save(state, "t"))
            old = present(await checkpointer.load("t", names[turn // 2]))
            sent.take()
            await checkpointer.save(old.with_messages(_turn(turn)), "t")
            sizes.append(sent.take())
        _assert_flat(sizes)

    async def test_a_list_that_grows_inside_metadata_is_flat(self, checkpointer: Checkpointer, sent: SentBytes) -> None:
        state, sizes = AgentState(), []
        for turn in range(self.late_turn + 1):
            log = state.metadata.get("deep", {}).get("log", [])
            entry = {"turn": f"{turn:06}", "text": _TEXT * 4}
            state = state.with_metadata("deep", {"log": [*log, entry]})
            await checkpointer.save(state, "t")
            sizes.append(sent.take())
        _assert_flat(sizes)

    async def test_what_is_large_and_does_not_change_is_sent_once(
        self, checkpointer: Checkpointer, sent: SentBytes
    ) -> None:
        state = AgentState().with_metadata({"manual": _TEXT * 100, "nested": {"manual": _TEXT * 50}})
        await checkpointer.save(state, "t")
        assert sent.take() > len(_TEXT) * 150
        await checkpointer.save(state.next_iteration(), "t")
        assert sent.take() < len(_TEXT) * 10
        data = {"manual": _TEXT * 100, "n": 0}
        await dicts(checkpointer).save("d", data)
        sent.take()
        await dicts(checkpointer).save("d", {**data, "n": 1})
        assert sent.take() < len(_TEXT) * 10
