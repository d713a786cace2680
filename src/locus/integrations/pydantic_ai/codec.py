"""Records and entries of Pydantic AI as JSON, and back. The framework's own adapters write and read them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_core import PydanticSerializationError

from locus.errors import ConfigurationError, CorruptCheckpointError, SerializationError
from locus.threads.ids import check_id, shown_thread
from locus.threads.json import encode

Item = dict[str, Any]
"""An entry as it is stored: `{"id": …, "parent_id": …, "message": {…}}`."""

_MESSAGE = "message"


@cache
def _records() -> TypeAdapter[ConversationRecord]:
    """The adapter for records, made when it is first used, because that takes some time."""
    return TypeAdapter(ConversationRecord)


def record_json(record: ConversationRecord) -> dict[str, Any]:
    """A record as JSON, without its id: the id is that of its thread.

    Every checkpoint has one, so what is None is left out, and so is what nothing was used of.
    """
    try:
        value: dict[str, Any] = _records().dump_python(record, mode="json", exclude={"conversation_id"})
    except PydanticSerializationError as error:
        raise _not_json("the record of this conversation (its usage or its deferred tool requests)") from error
    value["usage"] = {name: used for name, used in value["usage"].items() if used} or None
    value["branches"] = value["branches"] or None
    return {name: field for name, field in value.items() if field is not None}


def record_from(conversation_id: str, value: Any) -> ConversationRecord:
    try:
        if isinstance(value, dict):
            # As JSON text, because only there a time is a text.
            return _records().validate_json(encode({"head_id": None, **value, "conversation_id": conversation_id}))
    except ValidationError:
        pass  # its text has the values
    raise CorruptCheckpointError(
        f"the record of {shown_thread(conversation_id)} cannot be read: it is damaged, something else uses this "
        "namespace of the thread, or a newer version of Pydantic AI wrote it"
    )


def items_from(entries: Sequence[ConversationEntry]) -> list[Item]:
    """Entries as stored items. The ids in them come from callers, and are data."""
    try:
        messages = ModelMessagesTypeAdapter.dump_python([entry.message for entry in entries], mode="json")
    except PydanticSerializationError as error:
        raise _not_json("a message of this conversation") from error
    items: list[Item] = []
    for entry, message in zip(entries, messages, strict=True):
        item = {"id": check_id(entry.id, "the id of an entry"), "parent_id": entry.parent_id, _MESSAGE: message}
        if entry.kind != _MESSAGE:
            item["kind"] = entry.kind
        if entry.parent_id is not None:
            check_id(entry.parent_id, "the parent_id of an entry")
        items.append(item)
    if len({item["id"] for item in items}) < len(items):
        raise ConfigurationError("two of the new entries have the same id: each entry needs one of its own")
    return items


def entries_from(conversation_id: str, items: Sequence[Item]) -> list[ConversationEntry]:
    """The entries of stored items, which `checked_items` has checked."""
    if any(item.get("kind", _MESSAGE) != _MESSAGE for item in items):
        raise unreadable(conversation_id)
    try:
        messages = ModelMessagesTypeAdapter.validate_json(encode([item[_MESSAGE] for item in items]))
    except ValidationError:
        raise unreadable(conversation_id) from None  # its text has the values
    return [
        ConversationEntry(id=item["id"], parent_id=item["parent_id"], message=message)
        for item, message in zip(items, messages, strict=True)
    ]


def checked_items(conversation_id: str, found: Any) -> list[Item]:
    """Check that what was read is a list of stored items."""
    if not isinstance(found, list) or not all(map(_is_item, found)):
        raise unreadable(conversation_id)
    return found


def _is_item(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("id"), str) or _MESSAGE not in value:
        return False
    return "parent_id" in value and (value["parent_id"] is None or isinstance(value["parent_id"], str))


def unreadable(conversation_id: str) -> CorruptCheckpointError:
    """The error for an entry that cannot be read. It does not show the content."""
    return CorruptCheckpointError(
        f"an entry of {shown_thread(conversation_id)} cannot be read: it is damaged, something else uses this "
        "namespace of the thread, or a newer version of Pydantic AI wrote it"
    )


def _not_json(what: str) -> SerializationError:
    return SerializationError(f"{what} holds a value that Pydantic AI cannot write as JSON. Nothing was written")
