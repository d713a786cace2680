"""What an agent is made of, and what is refused."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from locus.agent import Agent, AgentConfig
from locus.agent.config import AllSettings, Settings
from locus.errors import ConfigurationError
from locus.memory.backends import MemoryCheckpointer, SQLiteBackend, StorageBackendAdapter, sqlite_checkpointer
from locus.memory.registry import as_checkpointer
from locus.models import MockModel
from tests.agent.support import Effects, Following
from tests.backends.strangers import SyncStore


def test_settings_come_by_keyword_or_as_a_config_or_both(memory: MemoryCheckpointer) -> None:
    config = AgentConfig(model=Following("x"), agent_id="clerk", max_iterations=3)
    assert Agent(config).config == config
    assert Agent(config=config).config.agent_id == "clerk"
    both = Agent(config=config, checkpointer=memory, agent_id="chief")
    assert (both.config.agent_id, both.config.max_iterations, both.checkpointer) == ("chief", 3, memory)
    assert config.agent_id == "clerk"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"checkpoint_every_n_iterations": 0}, "checkpoint_every_n_iterations must be at least 1, got 0"),
        ({"max_iterations": 0}, "max_iterations must be at least 1"),
        ({"max_iterations": "many"}, "max_iterations is a number, got 'many'"),
        ({"max_seconds": "10"}, "max_seconds is a number, got '10'"),
        ({"wait_seconds": None}, "wait_seconds is a number, got None"),
        ({"thread_id": "t"}, r"thread_id is no setting of an agent.*pass it to run\(\)"),
        ({"max_tokens": 0}, "max_tokens must be above 0"),
        ({"max_seconds": -1.0}, "max_seconds must be above 0"),
        ({"tool_timeout": 0}, "tool_timeout must be above 0"),
        ({"wait_seconds": 0}, "wait_seconds must be above 0"),
        ({"lease_seconds": 0}, "lease_seconds must be above 0"),
        ({"lease_seconds": 3601}, "lease_seconds is at most 3600, got 3601"),
        ({"on_conflict": "fight"}, "on_conflict is one of reject, wait, queue, take_over, fork, raise, got 'fight'"),
        ({"unknown_outcome": "guess"}, "unknown_outcome is one of ask, retry, skip, got 'guess'"),
        ({"checkpointer": "memory", "memory": "memory"}, "give either checkpointer or memory"),
        ({"modle": "mock"}, "no setting 'modle' \\(did you mean 'model'\\?\\)"),
        ({"colour": "blue"}, "colour.*the settings are: agent_id, checkpoint_every_n_iterations"),
        ({"model": object()}, "a model has the method complete, and object has not"),
        ({"model": "no-such-provider:x"}, "no-such-provider"),
        ({"memory": object()}, "memory needs the methods load and save, got object"),
        ({"checkpointer": object()}, "object is no storage backend"),
        ({"checkpointer": "nosuch:thing"}, "unknown checkpointer 'nosuch'"),
    ],
)
def test_what_cannot_work_is_refused_at_once(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Agent(**{"model": Following("x"), **wrong})


def test_two_tools_of_one_name_are_refused(effects: Effects) -> None:
    with pytest.raises(ConfigurationError, match="two tools are named 'pay'"):
        Agent(model=Following("x"), tools=[effects.pay(), effects.pay()])


def test_plain_functions_are_tools() -> None:
    def ping() -> str:
        """Say pong."""
        return "pong"

    assert [found.name for found in Agent(model=Following("x"), tools=[ping]).tools] == ["ping"]


def test_a_model_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCUS_MODEL_PROVIDER", "mock")
    assert isinstance(Agent(model="mock").model, MockModel)
    assert isinstance(Agent().model, MockModel)


@pytest.mark.parametrize("prompt", [[], None, 5, ["text"], [{"role": "user"}], b"bytes"])
async def test_a_prompt_is_text_or_messages(prompt: Any, memory: MemoryCheckpointer) -> None:
    with pytest.raises(ConfigurationError, match="prompt is"):
        await Agent(model=Following("x"), checkpointer=memory).invoke(prompt, "t")
    assert memory.get_thread_ids() == []


@pytest.mark.parametrize("prompt", [{"role": "user", "content": "secret"}, [{"role": "user", "content": "secret"}]])
async def test_a_prompt_that_is_a_dict_is_told_what_makes_a_message(prompt: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"prompt is .* got dict.*Message\.user\(") as caught:
        await Agent(model=Following("x")).invoke(prompt)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("thread_id", ["", "x" * 256, 7])
async def test_a_thread_id_that_nothing_keeps_is_an_error(thread_id: Any, memory: MemoryCheckpointer) -> None:
    model = Following("x")
    with pytest.raises(ValueError, match="thread_id"):
        await Agent(model=model, checkpointer=memory).invoke("hi", thread_id)
    assert model.asked == []


def test_a_checkpointer_is_taken_as_it_is_and_anything_else_is_adapted(tmp_path: Path) -> None:
    ours = MemoryCheckpointer()
    assert as_checkpointer(ours) is ours
    backend = SQLiteBackend(tmp_path / "a.db")
    adapted = as_checkpointer(backend)
    assert isinstance(adapted, StorageBackendAdapter)
    assert adapted.backend is backend
    named = as_checkpointer(f"sqlite:{tmp_path / 'b.db'}")
    assert isinstance(named, StorageBackendAdapter)
    stranger = as_checkpointer(SyncStore())
    assert isinstance(stranger, StorageBackendAdapter)
    assert isinstance(stranger.backend, SyncStore)
    with pytest.raises(ConfigurationError, match="pass a checkpointer"):
        as_checkpointer(None)


async def test_agents_take_all_of_these(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    for place in (SQLiteBackend(path), f"sqlite:{path}", sqlite_checkpointer(path), f"sqlite:////{str(path)[1:]}"):
        result = await Agent(model=Following(lambda messages: str(len(messages))), checkpointer=place).invoke("x", "t")
    assert result.message == "7"


def test_the_parameters_of_an_agent_are_the_fields_of_its_config() -> None:
    named = inspect.signature(Agent).parameters
    fields = AgentConfig.__dataclass_fields__
    assert [name for name in named if name != "config"] == list(fields)
    assert {name: named[name].annotation for name in fields} == {name: fields[name].type for name in fields}
    assert all(f"`{name}`" in (Agent.__doc__ or "") for name in fields)
    by_factories = {name: fields[name].type for name in Settings.__annotations__}
    assert {name: hint.__forward_arg__ for name, hint in Settings.__annotations__.items()} == by_factories
    assert fields.keys() - Settings.__annotations__.keys() == {"model", "tools", "memory", "system_prompt"}
    assert {name: hint.__forward_arg__ for name, hint in AllSettings.__annotations__.items()} == {
        name: field.type for name, field in fields.items()
    }


@pytest.mark.parametrize(("method", "other"), [("run", "invoke"), ("resume", "resume_invoke")])
async def test_awaiting_a_stream_says_what_it_is(method: str, other: str, memory: MemoryCheckpointer) -> None:
    stream = getattr(Agent(model=Following("x"), checkpointer=memory), method)("t")
    with pytest.raises(TypeError, match=rf"{method}\(\) is a stream of events.*await agent\.{other}\("):
        await stream
    await stream.aclose()


async def test_a_stream_is_no_loop_of_a_function_that_is_not_async(memory: MemoryCheckpointer) -> None:
    stream: Any = Agent(model=Following("x"), checkpointer=memory).run("t")
    with pytest.raises(TypeError, match=r"write `async for event in agent\.run\("):
        list(stream)
    await stream.aclose()
