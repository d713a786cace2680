"""The pages of the inspector, asked without a socket and without a login."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import httpx
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from locus.memory.checkpointer import StoreVerbs
from locus.server.auth import GRANT_KEY, Grant
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import Limits
from locus.server.inspector.pages import Pages, page_routes
from locus.server.inspector.rendering import Rendering
from locus.server.memory_budget import MemoryBudget, MemoryShare

VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})


class Asked:
    """Asks for pages as somebody with a grant."""

    def __init__(self, checkpointer: StoreVerbs, grant: Grant | None = None) -> None:
        self.rendering = Rendering()
        self._router = Router(page_routes(Pages(AuthorizedStore(checkpointer.store, Limits()), self.rendering)))
        self._grant = grant or Grant()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[GRANT_KEY] = self._grant
        MemoryShare(MemoryBudget(Limits().memory_bytes)).put_into(scope)
        scope["path"] = scope["raw_path"].decode()
        await self._router(scope, receive, send)

    async def get(self, url: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self._app), base_url="http://locus") as client:
            return await client.get(url)

    async def page(self, *segments: str, **query: str | int | None) -> Shown:
        answer = await self.get(self.rendering.url(*segments, **query))
        assert answer.status_code == 200, answer.text
        return Shown(answer.text)


class Element:
    """An element of a page."""

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.children: list[Element | str] = []

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self) -> Iterator[Element]:
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.all()


class Shown(HTMLParser):
    """A page, taken apart: every element has to be closed as it should."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = text
        self._open = [Element("", {})]
        self.feed(text)
        self.close()
        assert len(self._open) == 1, [element.name for element in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().name == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)

    def elements(self, name: str = "", **attributes: str) -> list[Element]:
        """Those with this name and these attributes; `_` at the end of a name is left out, as in `class_`."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        return [
            one
            for one in self._open[0].all()
            if (not name or one.name == name) and all(one.attributes.get(key) == wanted[key] for key in wanted)
        ]

    @property
    def main(self) -> Element:
        (found,) = self.elements("main")
        return found

    def has(self, name: str, attribute: str) -> list[Element]:
        return [one for one in self.elements(name) if attribute in one.attributes]


def links(shown: Shown, attribute: str) -> list[Any]:
    """Where the links with such an attribute lead."""
    return [one.attributes["href"] for one in shown.has("a", attribute)]
