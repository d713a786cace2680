"""Stored text that would like to be more than text, in every place that a user or a model can write to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory import LongTermMemory
from locus.memory.backends import MemoryCheckpointer
from locus.memory.long_term.names import path_of
from locus.memory.storage import StorageBackend
from tests.server.inspector.access import Page, looking
from tests.server.inspector.walking import Step, steps

EVIL = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "{{ 7 * 191 }}{% raw %}",
    "</textarea></title></svg><svg onload=alert(1)>",
    "\u202eright to left\u2066 \x1b[31m \x00 \x85 \u2028",
]


def place(evil: str, number: int) -> str:
    return f"{number}/{evil}"


def tree(evil: str) -> dict[str, Any]:
    """The shapes of our agent, of LangGraph and of the OpenAI Agents SDK in one."""
    call = {"id": evil, "name": evil, "args": {evil: evil}, "type": "tool_call"}
    function = {"id": evil, "type": "function", "function": {"name": evil, "arguments": f'{{"a": "{evil}"'}}
    messages = [
        {"role": evil, "content": evil, "name": evil},
        {"$type": "AIMessage", "content": [{"type": "text", "text": evil}], "tool_calls": [call]},
        {"role": "assistant", "content": evil, "tool_calls": [function]},
        {"$type": evil, "content": {evil: evil}, "tool_call_id": evil},
        {"type": "image_url", "image_url": {"url": "http://evil.example/x.png"}},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
        evil,
        [evil],
    ]
    return {"messages": messages, evil: {evil: [evil, {evil: evil}]}, "channel_values": {evil: evil}}


async def hostile_store() -> MemoryCheckpointer:
    checkpointer = MemoryCheckpointer()
    backend = StorageBackend(checkpointer.store)
    for number, evil in enumerate(EVIL):
        thread_id = place(evil, number)
        for turn, checkpoint_id in enumerate(("cp-0", evil)):
            content = tree(evil)
            content["messages"] = content["messages"][: 4 + 4 * turn]
            await backend.save(thread_id, content, checkpoint_id, metadata={evil: evil, "turn": turn})
        await backend.save(thread_id, tree(evil), evil, namespace=evil, metadata={evil: {evil: evil}})
        await checkpointer.put_writes(thread_id, evil, evil, [(evil, evil), ("__interrupt__", {evil: evil})])
        state = AgentState(agent_id=evil).with_message(Message.user(evil))
        await checkpointer.save(state, f"agent/{thread_id}", "cp-1", metadata={evil: evil})
        await LongTermMemory(checkpointer).put((evil,), evil, {evil: evil}, {evil: evil}, source=evil)
    return checkpointer


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with looking((await hostile_store()).store, writes=True) as found:
        yield found


GETS = [step for step in steps(writes=True) if step.method == "GET" and not step.streams]


@pytest.mark.parametrize("step", GETS, ids=str)
async def test_it_is_text_on_every_page(client: httpx.AsyncClient, step: Step) -> None:
    shown = 0
    for number, evil in enumerate(EVIL):
        asked: list[dict[str, str]] = [{}, {"ns": evil}] if step.about_a_thread else [{}, {"q": evil}]
        if step.path == "/memory/item":
            asked = [{"path": path_of([evil]), "key": evil}]
        if step.path.endswith("/bisect"):
            asked += [{"appears": evil}, {"path": evil, "equals": evil}]
        for query in asked:
            answer = await client.get(step.address(place(evil, number), evil), params=query or None)
            assert answer.status_code < 500, answer.text
            if "attachment" in answer.headers.get("content-disposition", ""):
                assert evil not in answer.headers["content-disposition"]
                continue
            shown += answer.status_code == 200
            check(answer.text)
    assert shown or step.path in ("/", "/t/{thread_id}/diff") or "format=" in step.query or "at=" in step.query


def check(text: str) -> None:
    assert Page(text).is_harmless()
    assert "<script>alert" not in text
    assert "onerror=alert(1)>" not in text.replace("&gt;", "")
    assert "1337" not in text
    for shapeless in "\u202e\u2066\x1b\x85\u2028":
        assert shapeless not in Page(text).text


@pytest.mark.parametrize("number", range(len(EVIL)))
async def test_what_changes_the_store_shows_it_as_text_too(client: httpx.AsyncClient, number: int) -> None:
    evil = EVIL[number]
    step = next(step for step in GETS if step.path == "/t/{thread_id}/delete")
    address = step.address(place(evil, number))
    wrong = await client.post(address, data={"confirm": evil, "rev": evil})
    assert wrong.status_code == 422
    check(wrong.text)
    fork = address.replace("/delete", "/fork")
    taken = await client.post(fork, data={"new_thread": place(evil, number)})
    assert taken.status_code == 409
    check(taken.text)
    made = await client.post(fork, data={"new_thread": f"new {evil}"})
    assert made.status_code == 303
    assert made.headers["location"].startswith(("/t/~", "/t/new%20"))
    assert (await client.get(made.headers["location"])).status_code == 200


async def test_what_somebody_sends_is_text_too(client: httpx.AsyncClient) -> None:
    for evil in EVIL:
        for path in ("/threads", "/search", "/login", "/vacuum", "/stats"):
            for name in ("q", "next", "older_than", "order", evil):
                answer = await client.get(path, params={name: evil})
                assert answer.status_code in (200, 303, 400, 422), answer.text
                check(answer.text)
    client.cookies.clear()
    for evil in EVIL:
        answer = await client.get("/threads", params={"q": evil})
        assert answer.status_code == 401
        check(answer.text)


@pytest.mark.parametrize("evil", EVIL)
async def test_an_exported_page_is_harmless_by_itself(client: httpx.AsyncClient, evil: str) -> None:
    step = Step("GET", "/t/{thread_id}/export", "format=html")
    answer = await client.get(step.address(place(evil, EVIL.index(evil))))
    assert answer.status_code == 200
    assert answer.headers["content-disposition"].startswith('attachment; filename="')
    assert answer.headers["content-disposition"].endswith('.html"')
    elements = {tag for tag, _ in Page(answer.text).elements}
    assert not elements & {"script", "img", "iframe", "a", "svg", "form", "object", "link"}
    assert not any(name.startswith("on") for _, attributes in Page(answer.text).elements for name in attributes)
