"""An inspector without a socket, people who look at it, and what a page is made of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any, Final

import httpx

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory import LongTermMemory
from locus.memory.backends import MemoryCheckpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.store import CheckpointStore
from locus.server import Token, create_app
from locus.server.inspector.serving import app_of
from tests.server.running import TOKENS

OWN: Final = {"Sec-Fetch-Site": "same-origin"}
"""What a browser says about a request from a page of the server itself."""

AT: Final = "http://127.0.0.1:8710"
SECRET: Final = "what only others may know"


def browser(app: Any, at: str = AT, **headers: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=at, headers=headers)


@asynccontextmanager
async def looking(store: CheckpointStore, *, writes: bool = False) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who has opened the link of `locus inspect`."""
    app, sessions = app_of(store, writes=writes)
    async with browser(app, **OWN) as client:
        opened = await client.get("/open", params={"code": sessions.new_code()})
        assert opened.status_code == 303, opened.text
        yield client


def serving(checkpointer: Any, tokens: Iterable[Token] | None = TOKENS, **options: Any) -> Any:
    """A server with the inspector beside the API, and tokens."""
    return create_app(checkpointer, tokens, inspector=True, **options)


@asynccontextmanager
async def logged_in(app: Any, token: str) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who has logged in with a token."""
    async with browser(app, **OWN) as client:
        answer = await client.post("/ui/login", data={"token": token})
        assert answer.status_code == 303, answer.text
        yield client


async def two_tenants(checkpointer: Checkpointer | None = None) -> Checkpointer:
    """A store with a thread of `acme/` and one of somebody else, with forks."""
    made = checkpointer or MemoryCheckpointer()
    for thread_id, text in (("acme/1", "what acme says"), ("other/1", SECRET)):
        state = AgentState()
        for turn in range(4):
            state = state.with_message(Message.user(f"{text} {turn}")).with_message(Message.assistant(f"answer {turn}"))
            await made.save(state, thread_id, f"cp-{turn}", metadata={"turn": turn, "who": thread_id})
        earlier = await made.load(thread_id, "cp-1")
        assert earlier is not None
        await made.save(earlier.with_message(Message.user(f"{text} another way")), thread_id, "fork")
        tenant = (thread_id.partition("/")[0],)
        await LongTermMemory(made).put(tenant, "k", f"they know {text}", source=thread_id)
    return made


class Page(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.pieces: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.pieces).split())

    def attributes(self, tag: str, name: str) -> list[str]:
        return [attributes[name] for found, attributes in self.elements if found == tag and name in attributes]

    def links(self) -> list[str]:
        return self.attributes("a", "href")

    def is_harmless(self) -> bool:
        """Whether nothing on it runs, and nothing is loaded but the files of the inspector."""
        for tag, attributes in self.elements:
            if tag in ("img", "iframe", "object", "embed", "style", "base", "foreignobject", "animate", "set"):
                return False
            if tag == "script" and not attributes.get("src", "").partition("?")[0].endswith(".js"):
                return False
            for name, value in attributes.items():
                if name.startswith("on") or name in ("style", "srcdoc", "formaction"):
                    return False
                address = value.strip().lower()
                if name in ("href", "src", "action", "xlink:href") and not address.startswith(("/", "#", "?")):
                    return False
                if name in ("href", "src", "action") and address.startswith("//"):
                    return False
        return True
