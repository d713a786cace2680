"""Events and sessions, made short."""

from __future__ import annotations

from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.session import Session
from google.genai import types

ALICE: Any = {"app_name": "shop", "user_id": "alice"}


def event(text: str = "hi", *, at: float = 1.0, state: dict[str, Any] | None = None, **fields: Any) -> Event:
    """An event of a user. Its time is fixed, so that no clock has a part in a test."""
    content = types.Content(role="user", parts=[types.Part(text=text)])
    actions = EventActions(state_delta=state or {})
    return Event(author="user", invocation_id="i", timestamp=at, content=content, actions=actions, **fields)


def texts(session: Session | None) -> list[str]:
    assert session is not None
    return [part.text or "" for one in session.events for part in ((one.content.parts if one.content else None) or [])]
