"""Entries of transcripts, as Claude Code writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from claude_agent_sdk.types import SessionKey

PROJECT = "-srv-app"
SESSION = str(uuid5(NAMESPACE_OID, "session"))
OTHER = str(uuid5(NAMESPACE_OID, "another session"))
KEY: SessionKey = {"project_key": PROJECT, "session_id": SESSION}
SUBAGENT: SessionKey = {**KEY, "subpath": "subagents/agent-1"}

_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def entry(number: int, text: str | None = None, **more: Any) -> Any:
    """The entry of that number. It is the same whenever it is made."""
    at = (_BEGINNING + timedelta(seconds=number)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "type": "user",
        "uuid": str(uuid5(NAMESPACE_OID, str(number))),
        "parentUuid": str(uuid5(NAMESPACE_OID, str(number - 1))) if number else None,
        "sessionId": SESSION,
        "timestamp": at,
        "isSidechain": False,
        "message": {"role": "user", "content": f"text {number}" if text is None else text},
        **more,
    }


def entries(*numbers: int) -> list[Any]:
    return [entry(number) for number in numbers]


def untimed(*numbers: int) -> list[Any]:
    """Entries that do not say when they were made."""
    return [{"type": "x", "uuid": f"u{number}", "n": number} for number in numbers]


def numbered(found: list[Any] | None) -> list[int]:
    """The numbers of entries, by what they say."""
    assert found is not None
    return [int(each["message"]["content"].removeprefix("text ")) for each in found]
