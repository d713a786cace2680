"""A task comes back equal, whichever of its fields are missing, empty, or set to their defaults."""

from __future__ import annotations

import asyncio
from typing import Any

from a2a.types.a2a_pb2 import Task
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from locus.integrations.a2a import LocusTaskStore
from tests.integrations.a2a.sessions import CALL
from tests.integrations.every_field import FEW, JSON, Values

KNOWN: dict[str, Values] = {
    "google.protobuf.Struct": st.dictionaries(st.sampled_from(["", "a"]), JSON).map(
        lambda value: ParseDict(value, Struct())
    ),
    "google.protobuf.Value": JSON.map(lambda value: ParseDict(value, Value())),
    "google.protobuf.Timestamp": st.builds(
        Timestamp, seconds=st.sampled_from([0, 1]), nanos=st.sampled_from([0, 1000])
    ),
}
PLAIN: dict[str, Values] = {
    "str": st.sampled_from(["", "a"]),
    "bytes": st.sampled_from([b"", b"\x00"]),
    "bool": st.booleans(),
    "int": st.integers(0, 2),
    "float": st.sampled_from([0.0, 0.5]),
}


def messages(kind: Any, depth: int = 4) -> Values:
    """Messages of a protobuf type."""
    if kind.DESCRIPTOR.full_name in KNOWN:
        return KNOWN[kind.DESCRIPTOR.full_name]
    fields = {field.name: _of(kind, field, depth) for field in kind.DESCRIPTOR.fields} if depth else {}
    return st.fixed_dictionaries({}, optional=fields).map(lambda chosen: kind(**chosen))


def _of(kind: Any, field: Any, depth: int) -> Values:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        one = st.deferred(lambda: messages(field.message_type._concrete_class, depth - 1))
    elif field.type == FieldDescriptor.TYPE_ENUM:
        one = st.sampled_from([each.number for each in field.enum_type.values])
    else:
        one = PLAIN[type(getattr(kind(), field.name)).__name__] if not field.is_repeated else PLAIN["str"]
    return st.lists(one, max_size=2) if field.is_repeated else one


@FEW
@given(messages(Task))
def test_a_task_comes_back_equal(task: Task) -> None:
    task.id = "t"

    async def stored() -> Task | None:
        tasks = LocusTaskStore("memory")
        await tasks.save(task, CALL)
        return await tasks.get("t", CALL)

    assert asyncio.run(stored()) == task
