"""The pages of long-term memory: items, their versions and where they came from, and search with its scores."""

from __future__ import annotations

from locus.core.state import AgentState
from locus.memory import LongTermMemory
from locus.memory.backends import MemoryCheckpointer
from locus.server import Token
from tests.server.inspector.access import SECRET, Page, logged_in, looking, serving, two_tenants
from tests.server.running import ACME_READER

ADA = ("users", "ada", "memories")


async def learnt() -> MemoryCheckpointer:
    handle = MemoryCheckpointer()
    await handle.save(AgentState(), "talk/1")
    memory = LongTermMemory(handle)
    await memory.put(ADA, "tea", {"text": "Ada drinks tea"}, source="talk/1")
    await memory.put(ADA, "tea", {"text": "Ada drinks green tea"}, {"sure": 0.5}, source="elsewhere")
    await memory.put(("users", "a/b~"), "", ["tea tea", 1])
    return handle


async def test_items_are_listed_below_a_namespace() -> None:
    async with looking((await learnt()).store) as client:
        whole = Page((await client.get("/memory")).text)
        assert "users/ada/memories/" in whole.text
        assert "users/a~1b~0/" in whole.text
        assert "Ada drinks green tea" in whole.text
        assert "version 2" in whole.text
        below = Page((await client.get("/memory", params={"under": "users/ada"})).text)
        assert "users/a~1b~0/" not in below.text
        links = [link for link in whole.links() if "/memory/item" in link]
        assert len(links) == 2
        for link in links:
            assert (await client.get(link)).status_code == 200


async def test_an_item_has_its_versions_and_a_link_to_where_it_came_from() -> None:
    async with looking((await learnt()).store) as client:
        newest = Page((await client.get("/memory/item", params={"path": "users/ada/memories/", "key": "tea"})).text)
        assert '"sure": 0.5' in newest.text
        assert "Version 1" in newest.text
        assert "Version 2" in newest.text
        first = [link for link in newest.links() if "version=1" in link]
        old = Page((await client.get(first[0])).text)
        assert "/t/talk%2F1" in old.links()
        assert (await client.get("/t/talk%2F1")).status_code == 200
        for wrong in ({}, {"path": "users/", "key": "tea"}, {"path": "x" * 5_000, "key": "k"}, {"key": "\ud800"}):
            asked = {name: value.encode("utf-8", "surrogatepass") for name, value in wrong.items()}
            answer = await client.get("/memory/item", params=asked)
            assert answer.status_code in (400, 404), answer.text


async def test_a_search_explains_its_scores() -> None:
    async with looking((await learnt()).store) as client:
        found = Page((await client.get("/memory", params={"q": "green tea"})).text)
        assert "1.000" in found.text
        assert "has green , tea" in found.text
        assert "has tea ×2" in found.text
        assert "Nothing found" in Page((await client.get("/memory", params={"q": "coffee"})).text).text
        refused = await client.get("/memory", params={"q": " ".join(map(str, range(200)))})
        assert "search for fewer" in Page(refused.text).text


async def test_many_items_have_pages_that_neither_lose_nor_repeat_one() -> None:
    handle = MemoryCheckpointer()
    await LongTermMemory(handle).put_batch((("n",), f"{number:03}", "tea") for number in range(120))
    async with looking(handle.store) as client:
        for query in ({}, {"q": "tea"}):
            answer, keys = await client.get("/memory", params=query), list[str]()
            while True:
                page = Page(answer.text)
                keys += [link.rpartition("key=")[2] for link in page.links() if "/memory/item" in link]
                more = [link for link in page.links() if "after=" in link or "start=" in link]
                if not more:
                    break
                answer = await client.get(more[-1])
            assert keys == [f"{number:03}" for number in range(120)]


async def test_a_store_without_items_says_so() -> None:
    async with looking(MemoryCheckpointer().store) as client:
        answer = await client.get("/memory")
        assert answer.status_code == 200


async def test_a_tenant_sees_its_own_items_only() -> None:
    handle = await two_tenants()
    await LongTermMemory(handle).put(("acme", "notes"), "n", "of acme", source="other/1")
    token = "t" * 40
    async with logged_in(serving(handle, [Token(token, "read", "acme/")]), token) as tenant:
        whole = await tenant.get("/ui/memory")
        assert "they know what acme says" in Page(whole.text).text
        assert SECRET not in whole.text
        assert "other" not in Page((await tenant.get("/ui/memory", params={"under": "other/"})).text).links()
        found = await tenant.get("/ui/memory", params={"q": "know"})
        assert SECRET not in found.text
        absent = await tenant.get("/ui/memory/item", params={"path": "acme/", "key": "none"})
        forbidden = await tenant.get("/ui/memory/item", params={"path": "other/", "key": "k"})
        assert (absent.status_code, absent.text) == (forbidden.status_code, forbidden.text) == (404, absent.text)
        own = Page((await tenant.get("/ui/memory/item", params={"path": "acme/notes/", "key": "n"})).text)
        assert "/ui/t/other%2F1" not in own.links()  # whose source is not the tenant's to see


async def test_nobody_sees_items_without_a_login() -> None:
    async with logged_in(serving(await two_tenants()), ACME_READER) as client:
        client.cookies.clear()
        for path in ("/ui/memory", "/ui/memory/item?path=acme/&key=k"):
            answer = await client.get(path)
            assert answer.status_code == 401
            assert "they know" not in answer.text
