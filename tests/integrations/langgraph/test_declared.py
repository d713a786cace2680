"""The classes that a graph declares are allowed without being listed, and all others are refused, all at once."""

from __future__ import annotations

import enum
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, NewType, NotRequired, TypedDict, TypeVar

import pytest
from langchain_core.agents import AgentAction, AgentActionMessageLog, AgentFinish, AgentStep
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult, Generation, LLMResult
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from langchain_core.runnables import RunnableConfig
from langgraph._internal import _serde
from langgraph.func import entrypoint
from langgraph.graph import START, StateGraph
from langgraph.types import Send
from pydantic import BaseModel

from locus.errors import ConfigurationError, SerializationError
from locus.integrations.langgraph import LocusSaver
from locus.integrations.langgraph.classes import declare, typed_codec
from locus.integrations.langgraph.schemas import schema_classes
from locus.memory.model.codec import decode, encode
from tests.integrations.langgraph.graphs import thread

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"


class Seat(NamedTuple):
    row: int
    letter: str = "A"


@dataclass
class Price:
    cents: int


class Passenger(BaseModel):
    name: str
    seats: list[Seat] = []


@dataclass
class Ticket:
    number: int
    colour: Colour = Colour.RED
    price: Price | None = None
    passengers: dict[str, Passenger] = field(default_factory=dict)


@dataclass
class Box(Generic[T]):
    content: T


class Order(BaseModel):
    """In the input of a node only."""

    number: int


@dataclass
class Question:
    """In the input of the graph only."""

    text: str


@dataclass
class Settings:
    """The context of a run."""

    language: str
    model: FakeListChatModel | None = None


class Undeclared(BaseModel):
    number: int = 1


@dataclass
class Around:
    inner: Any


TicketNumber = NewType("TicketNumber", int)


class State(TypedDict):
    ticket: NotRequired[Ticket]
    boxes: Annotated[list[Box[Seat]], operator.add]
    numbers: NotRequired[list[TicketNumber]]
    orders: NotRequired[int]
    anything: NotRequired[Any]


class Asked(TypedDict):
    question: Question


class Ordered(TypedDict):
    order: Order


TICKET = Ticket(7, price=Price(100), passengers={"a": Passenger(name="Ada", seats=[Seat(1)])})


def book(state: Asked) -> dict[str, Any]:
    assert type(state["question"]) is Question
    return {"ticket": TICKET, "boxes": [Box(Seat(2, "B"))]}


def order(state: Ordered) -> dict[str, Any]:
    return {"orders": state["order"].number}


def booking(saver: LocusSaver) -> Any:
    builder = StateGraph(State, context_schema=Settings, input_schema=Asked)
    builder.add_node("book", book)
    builder.add_node("order", order)
    builder.add_edge(START, "book")
    builder.add_conditional_edges("book", lambda _state: [Send("order", {"order": Order(number=3)})], ["order"])
    return builder.compile(checkpointer=saver)


EXPECTED = {"question": Question("When?"), "ticket": TICKET, "boxes": [Box(Seat(2, "B"))], "orders": 3}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'graphs.db'}"


def test_what_a_graph_declares_comes_back_in_a_process_that_was_told_nothing(url: str) -> None:
    with LocusSaver(url) as saver:
        booking(saver).invoke({"question": Question("When?")}, thread(), context=Settings("it"))
    with LocusSaver(url) as saver:
        graph = booking(saver)
        assert graph.get_state(thread()).values == EXPECTED
        asked = [task.result for state in graph.get_state_history(thread()) for task in state.tasks]
        assert {"ticket": TICKET, "boxes": [Box(Seat(2, "B"))]} in asked
    with LocusSaver(url) as saver:
        assert [state.values for state in booking(saver).get_state_history(thread(), limit=1)] == [EXPECTED]


async def test_an_async_graph_declares_them_as_well(url: str) -> None:
    async with LocusSaver(url) as saver:
        await booking(saver).ainvoke({"question": Question("When?")}, thread(), context=Settings("it"))
    async with LocusSaver(url) as saver:
        assert (await booking(saver).aget_state(thread())).values == EXPECTED
    async with LocusSaver(url) as saver:
        history = [state.values async for state in booking(saver).aget_state_history(thread(), limit=1)]
        assert history == [EXPECTED]


def test_a_subgraph_and_the_functional_api_declare_theirs(url: str) -> None:
    class Outer(TypedDict):
        done: bool

    def outer(saver: LocusSaver) -> Any:
        inner = booking(saver)

        def call(_state: Any, config: RunnableConfig) -> dict[str, Any]:
            inner.invoke({"question": Question("When?")}, config)
            return {"done": True}

        builder: Any = StateGraph(Outer)
        return builder.add_node("call", call).add_edge(START, "call").compile(checkpointer=saver)

    def function(saver: LocusSaver) -> Any:
        @entrypoint(checkpointer=saver)
        def sell(question: Question, *, previous: Ticket | None = None) -> Ticket:
            return Ticket(previous.number + 1 if previous else 1)

        return sell

    with LocusSaver(url) as saver:
        assert outer(saver).invoke({"done": False}, thread()) == {"done": True}
    with LocusSaver(url) as saver:
        assert function(saver).invoke(Question("a"), thread("f")) == Ticket(1)
    with LocusSaver(url) as saver:
        assert function(saver).invoke(Question("b"), thread("f")) == Ticket(2)


def test_in_strict_mode_langgraph_names_them_itself(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Sale(TypedDict):
        price: Price

    def sell(saver: LocusSaver) -> Any:
        builder = StateGraph(Sale).add_node("sell", lambda _state: {"price": Price(5)}).add_edge(START, "sell")
        return builder.compile(checkpointer=saver)

    monkeypatch.setattr(_serde, "STRICT_MSGPACK_ENABLED", True)
    with LocusSaver(url) as saver:
        sell(saver).invoke({}, thread())
    with LocusSaver(url) as saver:
        sell(saver)
        found = saver.get_tuple(thread())  # called by nobody but this test
        assert found is not None
        assert found.checkpoint["channel_values"]["price"] == Price(5)


def test_names_are_looked_up_among_imported_classes_of_data_only(url: str) -> None:
    before = set(sys.modules)
    names = {("os", "system"), ("antigravity", "x"), ("subprocess", "Popen"), (__name__, "Price"), (__name__, "url")}
    with LocusSaver(url) as saver:
        assert saver.with_allowlist(names) is saver
        assert saver.serde.loads_typed(saver.serde.dumps_typed(Price(1))) == Price(1)
        for name in ("os.system", "subprocess.Popen", "antigravity.x"):
            with pytest.raises(SerializationError, match="not allowed here"):
                saver.serde.loads_typed(("locus-json", encode({"$type": name, "args": "x"}).encode()))
    assert set(sys.modules) == before


def test_what_is_not_declared_is_refused_with_all_its_types(url: str) -> None:
    def careless(_state: Any) -> dict[str, Any]:
        return {"anything": [Undeclared(), {"x": Around(inner=Seat)}, Around(Undeclared())], "boxes": [Box(Around(1))]}

    builder: Any = StateGraph(State)
    builder.add_node("careless", careless).add_edge(START, "careless")
    with LocusSaver(url) as saver:
        with pytest.raises(SerializationError) as caught:
            builder.compile(checkpointer=saver).invoke({"boxes": []}, thread())
        text = str(caught.value)
        assert f"is of type {__name__}.Undeclared, which is not allowed in a checkpoint" in text
        assert f"Neither are {__name__}.Around, builtins.type." in text
        assert "Allow them with LocusSaver(…, allowed_types=[Undeclared, Around]), or convert" in text, "no class may"
        with pytest.raises(
            SerializationError, match=r"builtins\.function.*written\. Convert it to one that is"
        ) as caught:
            saver.put(thread(checkpoint_ns=""), made(made), {"step": 1}, {})
        assert "allowed_types" not in str(caught.value)
        with pytest.raises(SerializationError) as caught:
            saver.put(thread(checkpoint_ns=""), made([Undeclared()], Around([Order(number=1)])), {"step": 1}, {})
        for kind in (Undeclared, Around, Order):
            assert f"{__name__}.{kind.__name__}" in str(caught.value)


def made(*values: Any) -> Any:
    channels = {f"v{number}": value for number, value in enumerate(values)}
    return {
        "v": 4, "id": "1", "ts": "2026-07-01T00:00:00+00:00", "channel_versions": {}, "versions_seen": {},
        "channel_values": channels,
    }  # fmt: skip


def test_what_may_not_be_loaded_is_named_all_at_once(url: str) -> None:
    with LocusSaver(url, allowed_types=[Undeclared, Around, Order, Price, Question]) as saver:
        values = [[Undeclared()] * 40, Around(Order(number=1)), Price(1)]
        put = saver.put(thread(checkpoint_ns=""), made(*values), {"step": 1}, {})
        saver.put_writes(put, [("a", Question("?"))], "task")
    with LocusSaver(url, allowed_types=[Price]) as saver:
        for load in (lambda: saver.get_tuple(thread()), lambda: list(saver.list(thread()))):
            with pytest.raises(SerializationError, match="not allowed here, so it was not loaded") as caught:
                load()
            for kind in (Undeclared, Around, Order, Question):
                assert f"{__name__}.{kind.__name__}" in str(caught.value)
            assert f"{__name__}.Price" not in str(caught.value)


def test_a_class_that_has_moved_is_read_by_its_stored_name(url: str) -> None:
    stored: Any = dataclass(type("Old", (), {"__module__": "__main__", "__annotations__": {"cents": int}}))
    with LocusSaver(url, allowed_types=[stored]) as saver:
        saver.put(thread(checkpoint_ns=""), made(stored(7)), {"step": 1}, {})
    with LocusSaver(url, allowed_types=[Price]) as saver, pytest.raises(SerializationError) as caught:
        saver.get_tuple(thread())
    assert "The stored name must be that of the class" in str(caught.value)
    assert "allowed_types={'__main__.Old': Old}" in str(caught.value)
    ways: list[Any] = [{"__main__.Old": Price}, [Question, {"__main__.Old": Price}], [Price, {"__main__.Old": Price}]]
    for allowed in ways:
        with LocusSaver(url, allowed_types=allowed) as saver:
            found = saver.get_tuple(thread())
            assert found is not None
            assert found.checkpoint["channel_values"]["v0"] == Price(7)
    with LocusSaver(url, allowed_types={"__main__.Old": Price}) as saver:
        saver.put(thread(checkpoint_ns=""), made(Price(8)) | {"id": "2"}, {"step": 2}, {})
    with LocusSaver(url, allowed_types=[Price]) as saver:  # written under the name that it has now
        found = saver.get_tuple(thread())
        assert found is not None
        assert found.checkpoint["channel_values"]["v0"] == Price(8)


@pytest.mark.parametrize(
    "mapping",
    [{"a.B": "my_app.Ticket"}, {"a.B": State}, {1: Price}, {"a.B": dict}, {"HumanMessage": Price}],
    ids=["a name", "a schema", "no name", "a built-in type", "a name that is taken"],
)
def test_only_classes_have_stored_names(url: str, mapping: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"allowed.types|needs no other"):
        LocusSaver(url, allowed_types=mapping)


def test_a_schema_or_a_graph_may_be_listed(url: str) -> None:
    with LocusSaver(url) as saver:
        graph = booking(saver)
        graph.invoke({"question": Question("When?")}, thread())
    for listed in ([State, Asked], [graph], [graph.builder]):
        with LocusSaver(url, allowed_types=listed) as saver:
            found = saver.get_tuple(thread())
            assert found is not None
            assert found.checkpoint["channel_values"]["ticket"] == TICKET


def test_only_data_is_found_in_a_schema() -> None:
    found = set(schema_classes([State, Asked, Settings]))
    assert {Ticket, Colour, Price, Passenger, Seat, Box, Question, Settings} <= found
    assert FakeListChatModel not in found
    assert not {int, str, list, dict, TicketNumber} & found


def test_a_row_cannot_make_more_of_a_declared_class_than_its_fields(url: str) -> None:
    """What `test_hostile_rows` says of classes that are listed holds for these as well."""
    called: list[str] = []

    @dataclass
    class Guarded:
        name: str

        def __post_init__(self) -> None:
            called.append("__post_init__")

        def run(self) -> str:
            return "run"

    Holder = TypedDict("Holder", {"guarded": Guarded})  # noqa: UP013 - a local class is not found by its name
    builder: Any = StateGraph(Holder).add_node("a", lambda _state: {"guarded": Guarded("x")}).add_edge(START, "a")
    with LocusSaver(url) as saver:
        builder.compile(checkpointer=saver).invoke({}, thread())
    called.clear()
    with LocusSaver(url) as saver:
        assert builder.compile(checkpointer=saver).get_state(thread()).values["guarded"].name == "x"
    assert called == []
    codec = typed_codec()
    declare(codec, [Guarded])
    tag = f"{__name__}.{Guarded.__qualname__}"
    for hostile in ({"run": 1}, {"__class__": 1}):
        with pytest.raises(SerializationError, match="which its class defines otherwise"):
            codec.decode({"$type": tag, "name": "x", **hostile})
    assert called == []


def _local(number: int) -> tuple[type[Any], Callable[[LocusSaver], Any]]:
    @dataclass
    class Local:
        n: int

    Holder = TypedDict("Holder", {"local": Local})  # noqa: UP013 - a local class is not found by its name
    builder = StateGraph(Holder).add_node("a", lambda _state: {"local": Local(number)}).add_edge(START, "a")
    return Local, lambda saver: builder.compile(checkpointer=saver)


def test_a_class_that_is_defined_anew_takes_the_place_of_the_old_one(url: str) -> None:
    with LocusSaver(url) as saver:
        graphs = [_local(number) for number in range(2)]
        for turn in range(2):
            for kind, make in graphs:
                graph = make(saver)
                graph.invoke({}, thread(f"{turn}"))
                assert type(graph.get_state(thread(f"{turn}")).values["local"]) is kind
        assert saver.serde.dumps_typed(graphs[0][0](1)) == saver.serde.dumps_typed(graphs[1][0](1))


ACTION = AgentAction(tool="look_up", tool_input={"place": "Rome"}, log="I look it up")


@pytest.mark.parametrize(
    "value",
    [
        ACTION,
        AgentActionMessageLog(tool="t", tool_input="x", log="", message_log=[AIMessage("y")]),
        AgentFinish(return_values={"output": 1}, log="done"),
        AgentStep(action=ACTION, observation={"found": (1, 2)}),
        Generation(text="a"),
        ChatGeneration(message=AIMessage("b")),
        ChatResult(generations=[ChatGeneration(message=AIMessage("c"))]),
        LLMResult(generations=[[Generation(text="d")]]),
        StringPromptValue(text="e"),
        ChatPromptValue(messages=[HumanMessage("f")]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_langchains_data_is_allowed(value: Any) -> None:
    codec = typed_codec()
    written = encode(codec.encode([value]))
    (found,) = codec.decode(decode(written))
    assert type(found) is type(value)
    assert found == value
    assert f"{type(value).__module__}.{type(value).__name__}" in written  # as for whoever has listed the class before


def test_langchains_programs_are_refused() -> None:
    with pytest.raises(SerializationError, match="FakeListChatModel, which is not allowed"):
        typed_codec().encode(FakeListChatModel(responses=["x"]))
