"""The laws of the versioned saver. They are part of the contract, and run on every backend."""

from __future__ import annotations

from typing import Any

import pytest

from locus.memory.saver import CheckpointSaver
from locus.testing.laws.base import assert_same
from locus.testing.laws.cost import Sent
from locus.testing.laws.saver_checkpoints import OpenSaver, SaverCheckpointLaws, SaverFixtures
from locus.testing.laws.saver_writes import SaverWritesLaws

TURNS = 48
ALLOWED = 1.5

_TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind. " * 8


def _checkpoint(turn: int) -> dict[str, Any]:
    """A graph's checkpoint after so many turns: nothing in it is an object that another one has."""
    messages = [{"id": f"{number:04}", "content": f"{number:04} {_TEXT}"} for number in range(turn + 1)]
    return {"v": 4, "id": f"{turn:08}", "channel_values": {"messages": messages, "manual": _TEXT * 8}}


class SaverCostLaws(SaverFixtures):
    """A put writes what is new, although every dict that it is given is new."""

    @pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
    async def test_puts_are_flat(
        self, saver: CheckpointSaver, open_saver: OpenSaver, monkeypatch: pytest.MonkeyPatch, warm: bool
    ) -> None:
        sent = Sent()
        sent.watch(type(saver.threads.engine), monkeypatch)
        sizes = []
        for turn in range(TURNS):
            # Those in the middle only fill the thread.
            writer = open_saver() if not warm and (6 <= turn < 9 or turn >= TURNS - 3) else saver
            parent = f"c{turn - 1}" if turn else None
            await writer.put(
                thread_id="t",
                checkpoint_id=f"c{turn}",
                checkpoint_data=_checkpoint(turn),
                parent_checkpoint_id=parent,
                metadata={"step": turn},
            )
            sizes.append(sent.take())
        early, late = sum(sizes[6:9]) / 3, sum(sizes[-3:]) / 3
        assert len(_TEXT) < early < 3 * len(_TEXT)
        assert late <= ALLOWED * early, f"{early:.0f} bytes at turn 8, {late:.0f} at turn {TURNS}"
        for turn in (TURNS // 2, TURNS - 1):
            stored = await saver.get(thread_id="t", checkpoint_id=f"c{turn}")
            assert stored is not None
            assert_same(stored["checkpoint"], _checkpoint(turn))


class SaverLaws(SaverCheckpointLaws, SaverWritesLaws, SaverCostLaws):
    """All of them. `CoreContract` has them already."""
