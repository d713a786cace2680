"""What Markdown becomes: elements that are named, and texts; and which images an item has in itself."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from locus.core.messages import Message, ToolCall, ToolResult
from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer
from locus.memory.storage import StorageBackend
from locus.server.inspector.colours import LONGEST as CODE
from locus.server.inspector.colours import CodePiece, Colouring, with_marks
from locus.server.inspector.images import LARGEST, MOST, images_of
from locus.server.inspector.markdown import LONGEST, MarkdownNode, markdown, texts
from tests.server.inspector.asked import Asked, Shown

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 40).decode()
ADDRESS = f"data:image/png;base64,{PNG}"


def tags(nodes: list[MarkdownNode]) -> set[str]:
    return {node.tag for node in nodes} | {tag for node in nodes for tag in tags(node.children)}


def links(nodes: list[MarkdownNode]) -> list[str]:
    return [address for node in nodes for address in ([node.address] if node.tag == "a" else []) + links(node.children)]


def read(text: str) -> list[MarkdownNode]:
    nodes = markdown(text)
    assert nodes is not None
    return nodes


def test_what_people_write_is_read() -> None:
    nodes = read(
        "# Prices\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n3. x\n4. **y**\n\n```py\nprint(1)\n```\n\n> q `c`\n\none\ntwo"
    )
    assert {"heading", "table", "td", "ol", "strong", "pre", "blockquote", "code", "br"} <= tags(nodes)
    (ordered,) = [node for node in nodes if node.tag == "ol"]
    assert ordered.start == "3"
    (code,) = [node for node in nodes if node.tag == "pre"]
    assert code.text == "print(1)\n"


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        "a <img src=x onerror=alert(1)> b",
        "<svg onload=alert(1)>\n<p>\n</svg>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt&#58;alert(1))",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        "![x](javascript:alert(1))",
        "<javascript:alert(1)>",
        "[x](/threads)",
        "[x](//evil.example)",
        "[x]: javascript:alert(1)\n\n[x]",
    ],
)
def test_nothing_hostile_becomes_more_than_text(hostile: str) -> None:
    nodes = read(hostile)
    assert tags(nodes) <= {"", "p", "span", "br"}
    assert links(nodes) == []


def test_links_lead_to_pages_and_images_are_links() -> None:
    nodes = read("[a](https://a.example/x) ![cat](http://b.example/c.png) <mailto:ada@example.com>")
    assert links(nodes) == ["https://a.example/x", "http://b.example/c.png", "mailto:ada@example.com"]
    assert "[image: cat]" in list(texts(nodes))


def test_long_and_deep_texts_are_bounded() -> None:
    assert markdown("x" * (LONGEST + 1)) is None
    for deep in ("> " * 5_000, "*" * 40_000, "[" * 40_000, "- " * 10_000, "`" * 40_000, "|" * 40_000):
        nodes = read(deep)
        assert _depth(nodes) < 200


def _depth(nodes: list[MarkdownNode]) -> int:
    return 1 + max((_depth(node.children) for node in nodes), default=0)


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": ADDRESS}}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": ADDRESS}]},
        {"content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}]},
        {"content": {"parts": [{"inline_data": {"mime_type": "image/png", "data": PNG}}]}},
        {"type": "human", "content": [{"type": "image", "mime_type": "image/png", "base64": PNG}]},
    ],
)
def test_an_image_in_an_item_is_found(item: Any) -> None:
    assert images_of(item) == [ADDRESS]


def test_no_other_image_is_shown() -> None:
    svg = base64.b64encode(b"<svg onload='alert(1)'/>").decode()
    for address in (
        "https://evil.example/cat.png",
        f"data:image/svg+xml;base64,{svg}",
        f"data:image/png;base64,{svg}",
        f"data:text/html;base64,{svg}",
        f"{ADDRESS}' onerror='alert(1)",
        "data:image/png;base64," + PNG + "A" * LARGEST,
    ):
        assert images_of({"content": [{"image_url": {"url": address}}]}) == []
    many = [f"data:image/png;base64,{PNG}{'AAAA' * at}" for at in range(10)]
    assert len(images_of({"content": many})) == MOST


async def test_a_message_is_markdown_and_can_be_read_raw() -> None:
    checkpointer = MemoryCheckpointer()
    text = "It is **89.90**, see [the shop](https://shop.example)."
    checkpoint_id = await checkpointer.save(AgentState().with_message(Message.assistant(text)), "t")
    asked = Asked(checkpointer)
    page = await asked.page("t", "t", "c", checkpoint_id)
    assert [one.text for one in page.elements("strong")] == ["89.90"]
    (link,) = [one for one in page.elements("a") if one.attributes["href"].startswith("https:")]
    assert link.attributes["rel"] == "noopener noreferrer"
    raw = await asked.page("t", "t", "c", checkpoint_id, raw="1")
    assert [one.text for one in raw.elements("p", class_="said")] == [text]
    marked = await asked.page("t", "t", "c", checkpoint_id, text="89.90")
    assert _marks(marked) == ["89.90"]
    found = await asked.page("t", "t", "c", checkpoint_id, words="89.90 shop")
    assert _marks(found) == ["89.90", "shop"]
    # Words that Markdown would tear apart are marked in the text as it is.
    torn = await asked.page("t", "t", "c", checkpoint_id, text="is **89")
    assert _marks(torn) == ["is **89"]


def _marks(page: Shown) -> list[str]:
    """What is marked in the only message of a page."""
    (article,) = page.elements("article")
    return [one.text for one in article.all() if one.name == "mark"]


async def test_a_call_is_one_line_and_what_is_new_is_marked() -> None:
    checkpointer = MemoryCheckpointer()
    call = ToolCall(id="c1", name="get_price", arguments={"item": "Peak"})
    state = AgentState().with_messages([Message.user("How much?"), Message.assistant("", tool_calls=(call,))])
    await checkpointer.save(state, "t")
    result = Message.tool(ToolResult(tool_call_id="c1", name="get_price", content='{"price": 89.9}', duration_ms=40))
    second = await checkpointer.save(state.with_messages([result, Message.assistant("89.90")]), "t")
    page = await Asked(checkpointer).page("t", "t", "c", second)
    (summary,) = [one for one in page.elements("summary") if "get_price" in one.text]
    assert " ".join(summary.text.split()) == '→ get_price("Peak") ← {"price": 89.9} · 40 ms added here'
    assert '{\n  "price": 89.9\n}' in [one.text for one in page.elements("pre")]
    assert [one.attributes["id"] for one in page.elements("article") if "new" in one.attributes["class"]] == ["m3"]


async def test_an_image_is_shown_from_the_store() -> None:
    backend = StorageBackend(MemoryCheckpointer().store)
    item = {
        "role": "user",
        "content": [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": ADDRESS}}],
    }
    checkpoint_id = await backend.save("t", {"messages": [item]})
    page = await Asked(backend).page("t", "t", "c", checkpoint_id)
    (image,) = page.elements("img")
    assert image.attributes["src"] == ADDRESS
    assert image.attributes["alt"] == "Image 1 of item 0"


def _code(text: str) -> list[CodePiece]:
    (block,) = markdown(text) or []
    assert "".join(piece.text for piece in block.code) == block.text
    return block.code


def test_code_has_colours_in_languages_that_are_known() -> None:
    code = _code("```python\ndef price(name):  # in euros\n    return 8.99, 'Peak'\n```")
    styles = {piece.text.strip(): piece.style for piece in code}
    assert styles["def"] == styles["return"] == "keyword"
    assert (styles["price"], styles["# in euros"], styles["8.99"], styles["'Peak'"]) == (
        "name",
        "comment",
        "literal",
        "string",
    )
    for language in ("", "nonsense", "python\u202e", "../../etc", "x" * 1_000):
        assert _code(f"```{language}\ndef a(): pass\n```") == [CodePiece("", "def a(): pass\n")]


@pytest.mark.parametrize("language", ["python", "js", "json", "yaml", "html", "bash", "diff", "go", "rust", "sql"])
@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "a \u202e\x1b[31m\x00 b\r\n\tc", "'''\"\"\"`${{{((([[[", ""]
)
def test_coloured_code_is_the_same_text(language: str, text: str) -> None:
    assert "".join(piece.text for piece in Colouring().pieces(text, language)) == text


def test_code_of_a_page_takes_a_bounded_time() -> None:
    colouring = Colouring(0.0)
    assert colouring.pieces("x = 1", "python") == [CodePiece("", "x = 1")]
    colouring = Colouring()
    long = "x = 1\n" * 10_000
    assert "".join(piece.text for piece in colouring.pieces(long, "python")) == long
    assert colouring.pieces(long, "python")[-1].text.endswith(long[CODE:])
    assert Colouring().pieces("x" * 1_001, "python") == [CodePiece("", "x" * 1_001)]


def test_marks_in_code_may_begin_and_end_within_colours() -> None:
    code = _code("```python\nprice = 'Peak 8.99'\n```")
    shown = [*with_marks(code, ["= 'peak"])]
    assert "".join(piece.text for piece in shown if piece.is_marked) == "= 'Peak"
    assert "".join(piece.text for piece in shown) == "price = 'Peak 8.99'\n"


async def test_hostile_code_is_text_in_the_page() -> None:
    checkpointer = MemoryCheckpointer()
    text = "```html\n<script>alert('x')</script><img src=x onerror=alert(1)>\u202e\n```"
    checkpoint_id = await checkpointer.save(AgentState().with_message(Message.assistant(text)), "t")
    page = await Asked(checkpointer).page("t", "t", "c", checkpoint_id, words="alert")
    (code,) = [one for one in page.elements("pre") if one.attributes.get("tabindex")]
    assert code.text == "<script>alert('x')</script><img src=x onerror=alert(1)>\\u202e\n"
    assert {one.name for one in code.all()} == {"pre", "code", "span", "mark"}
    assert {name for one in code.all() if one.name == "span" for name in one.attributes} == {"class"}
