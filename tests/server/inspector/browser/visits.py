"""Visits to an inspector in a browser, which note everything that happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, Response

from tests.server.inspector.serving import Served

PATIENCE_MS = 60_000
"""How long a page may take on a machine that is busy with other tests."""


@dataclass
class Visit:
    """A visitor with cookies, storage and a page of his own; and what the page did."""

    served: Served
    context: BrowserContext
    page: Page
    requested: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @classmethod
    async def begin(cls, browser: Browser, served: Served, **options: Any) -> Visit:
        context = await browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(PATIENCE_MS)
        page = await context.new_page()
        visit = cls(served, context, page)
        context.on("request", visit._note_request)
        context.on("response", visit._note_response)
        context.on("console", visit._note_console)
        context.on("weberror", lambda error: visit.complaints.append(f"an error: {error.error}"))
        page.on("dialog", visit._note_dialog)
        await page.goto(served.to("open", code=served.sessions.new_code()))
        return visit

    async def go(self, *segments: str, **query: str | int) -> Page:
        await self.page.goto(self.served.to(*segments, **query))
        return self.page

    async def press(self, *keys: str) -> None:
        """Press keys, on a page whose scripts have begun: what is pressed earlier is lost."""
        await self.page.locator("html[data-scripts]").wait_for(state="attached")
        for key in keys:
            await self.page.keyboard.press(key)

    async def said(self, text: str) -> None:
        """Wait until scripts say a text."""
        await self.page.locator("[data-live]", has_text=text).wait_for(state="attached")

    async def end(self) -> None:
        """Nothing has run, nobody else was asked, and the browser had nothing to complain about."""
        await self.context.close()
        assert self.complaints == []
        own = urlsplit(self.served.url).netloc
        assert [url for url in self.requested if urlsplit(url).netloc != own and not url.startswith("data:")] == []

    def _note_request(self, request: Request) -> None:
        self.requested.append(request.url)

    def _note_response(self, response: Response) -> None:
        if response.status >= 400:
            self.refused.append(f"{response.status} {response.url}")

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")

    async def _note_dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"a dialog: {dialog.message}")
        await dialog.dismiss()
