"""States taken apart and put together again."""

from __future__ import annotations

from datetime import UTC, datetime
from unittest.mock import patch

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState, Instant
from locus.errors import CorruptCheckpointError
from locus.memory.backends import MemoryCheckpointer
from locus.memory.model import codec, manifest, states
from locus.memory.model.payloads import dict_from, payload_text
from locus.memory.model.records import Entry, Run, Stored
from locus.memory.model.states import state_payload, times_of


class Timed(AgentState):
    """A state with the kinds of times that a new field may have."""

    due: datetime = datetime(2026, 1, 2, tzinfo=UTC)
    seen: datetime | None = None
    began: Instant = datetime(2026, 1, 3, tzinfo=UTC)
    finished_at: Instant | None = datetime(2026, 1, 4, tzinfo=UTC)


def test_the_times_of_a_state_are_found_and_not_listed() -> None:
    assert times_of(AgentState) == ("started_at", "updated_at")
    assert times_of(Timed) == ("started_at", "updated_at", "due", "seen", "began", "finished_at")


def test_a_new_time_in_a_state_is_written_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if `AgentState` itself had the fields: that is where states are taken apart without pydantic."""
    monkeypatch.setattr(states, "AgentState", Timed)
    monkeypatch.setattr(states, "_TIMES", times_of(Timed))
    found = state_payload(Timed()).plain
    assert (found["due"], found["seen"]) == ("2026-01-02T00:00:00+00:00", None)
    assert (found["began"], found["finished_at"]) == ("2026-01-03T00:00:00+00:00", "2026-01-04T00:00:00+00:00")
    codec.encode(found)


async def test_a_load_decodes_head_and_manifest_once() -> None:
    async with MemoryCheckpointer() as checkpointer:
        state = AgentState().with_messages([Message.user("a"), Message.user("b")])
        await checkpointer.save(state.with_metadata("note", "n").with_error("failed"), "t")
        manifest._remembered.cache_clear()
        decoded: list[str] = []
        encoded: list[object] = []

        def counting(text: str) -> object:
            decoded.append(text)
            return codec.decode(text)

        def noting(value: object) -> str:
            encoded.append(value)
            return codec.encode(value)

        with (
            patch.object(manifest, "decode", counting),
            patch.object(states, "decode", counting),
            patch.object(states, "encode", noting),
        ):
            assert await checkpointer.load("t") is not None
    assert len(decoded) == 2
    assert encoded == [{"note": "n"}, ["failed"]]


def stored(head: str, manifest: str, *texts: str) -> Stored:
    entry = Entry("thread", "", "checkpoint", None, 1, "rev", datetime(2026, 1, 2, tzinfo=UTC), "{}")
    runs = {f"b{number}": [Run(f"b{number}", 0, 0, 1, text)] for number, text in enumerate(texts)}
    return Stored(entry, head, manifest, runs)


def test_a_dict_is_put_together_from_the_outside_inwards() -> None:
    inner = '[[["a","b"],[["b1",0,0,1]]],[["a"],"b0"],[["c"],[]]]'
    found = stored('{"c":[],"a":null,"d":1}', inner, '[{"b":[],"e":{}}]', "[7]")
    assert dict_from(found) == {"c": [], "a": {"b": [7], "e": {}}, "d": 1}
    assert codec.decode(payload_text(found)) == dict_from(found)
    assert [*dict_from(found)] == ["c", "a", "d"]


@pytest.mark.parametrize(
    ("head", "manifest"),
    [
        ('{"a":1}', '[[["b"],[["b0",0,0,1]]]]'),  # no such field
        ('{"a":1}', '[[["a","b"],[["b0",0,0,1]]]]'),  # no object where one is needed
        ('{"a":{}}', '[[["a","b","c"],[["b0",0,0,1]]]]'),
        ('[{"a":1}]', '[[["a"],[["b0",0,0,1]]]]'),
        ('{"a":1}', '[[[],[["b0",0,0,1]]]]'),  # a list in the place of the payload
        ('{"a":1}', '[[["a"],"b1"]]'),  # a large value that is two
    ],
)
def test_a_head_and_a_manifest_that_do_not_fit_are_damage(head: str, manifest: str) -> None:
    with pytest.raises(CorruptCheckpointError):
        dict_from(stored(head, manifest, "[1]", "[1,2]"))
