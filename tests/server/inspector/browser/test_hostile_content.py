"""Whatever is stored is text: nothing of it runs, nothing is fetched because of it, and it is shown as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from locus.looking.formatting import visible
from locus.memory.backends import sqlite_checkpointer
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.memory.storage import StorageBackend
from tests.server.inspector.browser.conftest import Visiting
from tests.server.inspector.browser.visits import Visit

pytestmark = pytest.mark.asyncio(loop_scope="session")
WRITES = True

MARKUP = '<img src=http://evil.test/a.png onerror="window.ran=1">'
SCRIPT = "</script><script>window.ran=2</script>"
QUOTES = "\"' onfocus=window.ran=3 autofocus x='"
ADDRESS = "javascript:window.ran=4"
TURNED = "abc\u202edef\u2066\u200b\x1b[31m\x07 end"
TEMPLATE = "{{ 7*7 }}{% raw %}${window.ran=5}"
MARKDOWN = """![cat](http://evil.test/d.png) [x](javascript:window.ran=6) <http://evil.test/e>

<svg onload="window.ran=7"><script>window.ran=8</script></svg>

| <img src=x onerror=window.ran=9> | [y]( JaVaScRiPt&#58;window.ran=10 ) |
|---|---|
| ![z](data:image/svg+xml;base64,PHN2Zz4=) | `<b>` |

[x]: javascript:window.ran=11
"""
SVG = (
    "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIG9ubG9hZD0id2luZG93LnJhbj0xMiIvPg=="
)
LONG_LINE = "wide" * 250_000
ALL = f"{MARKUP}{SCRIPT}{QUOTES}{ADDRESS}{TURNED}{TEMPLATE}"
SHOWN = [visible(text) for text in (MARKUP, SCRIPT, ADDRESS, TURNED, TEMPLATE)]
THREAD = f"t/{ALL}"
NAMESPACE = f"n/{ALL}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "agents.db"
    async with sqlite_checkpointer(path) as handle:
        backend = StorageBackend(handle.store)
        messages = [
            {"role": "user", "content": ALL},
            {"role": ALL, "content": ALL, "name": ALL},
            {
                "role": "assistant",
                "content": [
                    {"type": "image_url", "image_url": {"url": "http://evil.test/b.png"}},
                    {"type": "text", "text": ALL},
                ],
                "tool_calls": [{"id": ALL, "name": ALL, "arguments": {ALL: ALL}}],
            },
            {"role": "tool", "tool_call_id": ALL, "name": ALL, "content": ALL},
            {"role": "assistant", "content": MARKDOWN},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": SVG}}]},
            {"role": "user", "content": LONG_LINE},
            {"$type": ALL, "href": ADDRESS, "src": "http://evil.test/c.js", ALL: [ALL, {ALL: ALL}]},
        ]
        first = {"messages": messages[:2], ALL: {ALL: ALL}}
        second = {"messages": messages, ALL: {ALL: [ALL], "link": ADDRESS}}
        for namespace in (DEFAULT_NAMESPACE, NAMESPACE):
            await backend.save(THREAD, first, f"1{ALL}", {ALL: ALL}, namespace=namespace)
            await backend.save(THREAD, second, f"2{ALL}", {ALL: ALL, "url": ADDRESS}, namespace=namespace)
        await handle.store.put_writes(
            THREAD,
            f"2{ALL}",
            ALL,
            [(ALL, {ALL: ALL}), ("__interrupt__", ALL)],
            task_path=ALL,
            namespace=DEFAULT_NAMESPACE,
        )
        await handle.search("end")
    return path


PLACES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "threads": (("threads",), {}),
    "filter": (("threads",), {"q": ALL, "meta": f"{ALL}={ALL}"}),
    "search": (("search",), {"q": "end"}),
    "search for markup": (("search",), {"q": ALL}),
    "timeline": (("t", THREAD), {}),
    "namespace": (("t", THREAD), {"ns": NAMESPACE}),
    "conversation": (("t", THREAD, "c", f"2{ALL}"), {}),
    "state": (("t", THREAD, "c", f"2{ALL}"), {"view": "state"}),
    "diff": (("t", THREAD, "diff", f"1{ALL}", f"2{ALL}"), {"ns": NAMESPACE}),
    "bisect": (("t", THREAD, "bisect"), {"appears": ALL}),
    "storage": (("t", THREAD, "stats"), {}),
    "export": (("t", THREAD, "export"), {}),
    "fork": (("t", THREAD, "fork"), {"checkpoint": f"2{ALL}"}),
    "delete": (("t", THREAD, "delete"), {}),
    "no such thread": (("t", f"no {ALL}"), {}),
    "login": (("login",), {"next": ADDRESS}),
}


@pytest.mark.parametrize("name", PLACES)
async def test_nothing_runs_and_nothing_is_fetched(visit: Visit, name: str) -> None:
    """What the page asked for, and what the browser complained about, is checked at the end of every visit."""
    segments, query = PLACES[name]
    page = await visit.go(*segments, **query)
    for folded in await page.locator("details:not([open]) > summary").all():
        if await folded.is_visible():
            await folded.click()
    await visit.press("j", "j", "Tab", "Tab")
    assert await page.evaluate("window.ran") is None
    assert (
        await page.locator("script:not([src]), img[src^=http], iframe, object, embed, [onerror], [onfocus]").count()
        == 0
    )
    assert await page.locator("a[href^='javascript' i], form[action^='javascript' i]").count() == 0
    assert await page.locator("img[src*=svg], main svg script, .said svg, .said img").count() == 0
    leading_away = page.locator("a[href^='http']")
    assert await leading_away.count() == await page.locator("a[href^='http'][rel='noopener noreferrer']").count()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    text = await page.locator("body").text_content()
    assert text is not None
    assert not any(character in text for character in "\u202e\u2066\x1b\x07")


@pytest.mark.parametrize("name", ["conversation", "state", "diff"])
async def test_text_is_shown_exactly(visit: Visit, name: str) -> None:
    segments, query = PLACES[name]
    page = await visit.go(*segments, **query)
    text = await page.locator("main").text_content()
    assert text is not None
    assert [part for part in SHOWN if part not in text] == []


async def test_ids_of_any_shape_are_led_to(visiting: Visiting) -> None:
    visit = await visiting()
    page = visit.page
    await page.locator("a[data-open]").first.click()
    await page.wait_for_url("**/t/**")
    assert await page.locator("main").get_attribute("data-thread") == THREAD
    await visit.press("j", "m", "j", "d")
    await page.wait_for_url("**/diff/**")
    await page.locator("a[data-child]").click()
    assert await page.locator("main").get_attribute("data-checkpoint") in (f"1{ALL}", f"2{ALL}")
    assert visit.refused == []
