"""Adding a backend is a package (this folder), an extra for its driver (this one has none), and a line."""

from __future__ import annotations

import pytest

from locus.cli import main
from locus.core.state import AgentState
from locus.errors import ConfigurationError, ConflictError
from locus.memory import get_checkpointer, list_checkpointers, registry
from locus.memory.backends import StorageBackendAdapter
from locus.memory.checkpointer import Checkpointer
from tests.backends.tiny import TinyBackend, TinyConfig, engine

THE_LINE = {"tiny": "tests.backends.tiny:from_location"}


@pytest.fixture(autouse=True)
def _added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_BUILT_IN", registry._BUILT_IN | THE_LINE)
    monkeypatch.setattr(engine, "SHELVES", {})


def opened(url: str) -> Checkpointer:
    checkpointer = get_checkpointer(url)
    assert isinstance(checkpointer, Checkpointer)
    return checkpointer


async def test_a_url_opens_it() -> None:
    assert "tiny" in list_checkpointers()
    async with opened("tiny://host/second?seats=2") as checkpointer:
        first = await checkpointer.save(AgentState(), "t")
        state = await checkpointer.load("t")
        assert state is not None
        await checkpointer.save(state.with_iteration(1), "t", if_latest=first)
        with pytest.raises(ConflictError):
            await checkpointer.save(state.with_iteration(2), "t", if_latest=first)
        assert len(await checkpointer.history("t")) == 2
        assert await checkpointer.list_threads() == ["t"]
    with opened("tiny://host/second").sync as again:
        assert again.delete("t")
        assert again.load("t") is None


async def test_its_class_keeps_plain_dicts_and_can_be_adapted() -> None:
    backend = TinyBackend(TinyConfig.from_url("tiny://host", seats=3))
    await backend.save("t", {"messages": ["a"]}, "one")
    assert await backend.load("t") == {"messages": ["a"]}
    assert await StorageBackendAdapter(backend).list_checkpoints("t") == ["one"]
    with pytest.raises(ConfigurationError, match="no option 'chairs'; there are: seats"):
        get_checkpointer("tiny://host?chairs=1")


def test_the_command_line_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    with opened("tiny://host/from").sync as handle:
        handle.save(AgentState(), "t")
    assert main(["copy", "tiny://host/from", "tiny://host/to"]) == 0
    assert capsys.readouterr().out.startswith("tiny:host/from -> tiny:host/to\n1 of 1 threads, 1 checkpoints: 1 moved")
