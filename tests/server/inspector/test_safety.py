"""What is refused before any page: other names, other sites, no cookie, a used code; and what a browser is told."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import httpx
import pytest

from locus.errors import ConfigurationError
from locus.memory.backends import MemoryCheckpointer
from locus.server import Token, create_app
from locus.server.config import ServerConfig
from locus.server.inspector.serving import app_of
from tests.server.inspector.access import OWN, Page, browser, logged_in, looking, serving, two_tenants
from tests.server.running import ACME, ACME_READER, CORP, READER, TOKENS, WRITER

POLICY = {
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data:",
    "form-action 'self'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "require-trusted-types-for 'script'",
}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with looking((await two_tenants()).store) as found:
        yield found


# The name of the server


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8710", "", "10.0.0.1", "[::2]:8710"])
async def test_another_name_is_refused(client: httpx.AsyncClient, host: str) -> None:
    """With a cookie that is right, on every kind of path: a page may have made its own name lead here."""
    for path in ("/threads", "/t/acme%2F1", "/login", "/static/inspector.css", "/nothing"):
        answer = await client.get(path, headers={"Host": host})
        assert answer.status_code == 421
        assert "acme" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:8710", "localhost:8710", "[::1]:8710", "LOCALHOST"])
async def test_the_names_of_this_machine_are_accepted(client: httpx.AsyncClient, host: str) -> None:
    assert (await client.get("/threads", headers={"Host": host})).status_code == 200


async def test_with_tokens_there_are_names_too() -> None:
    """The API accepts any name where tokens are; the pages do not."""
    app = serving(await two_tenants(), inspector_hosts={"agents.example"})
    async with browser(app, "http://agents.example", **OWN) as client:
        assert (await client.post("/ui/login", data={"token": WRITER})).status_code == 303
        assert (await client.get("/ui/threads")).status_code == 200
    async with browser(app, "http://evil.example", **OWN) as client:
        assert (await client.get("/threads", headers={"Authorization": f"Bearer {WRITER}"})).status_code == 200
        for path in ("/ui", "/ui/", "/ui/threads", "/ui/login"):
            assert (await client.get(path)).status_code == 421
        assert (await client.post("/ui/login", data={"token": WRITER})).status_code == 421


async def test_two_hosts_in_one_request_are_refused(client: httpx.AsyncClient) -> None:
    headers = [("Host", "127.0.0.1:8710"), ("Host", "evil.example")]
    assert (await client.get("/threads", headers=headers)).status_code == 421


# Where a request comes from

FOREIGN: list[dict[str, str]] = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:8710"},
    {"Origin": "http://evil.example"},
    {"Origin": "http://127.0.0.1:9999"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "null"},
    {"Origin": "http://[::1"},
    {"Origin": "file://127.0.0.1:8710"},
    {},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=lambda headers: " ".join(headers.values()) or "nothing")
async def test_a_form_of_another_site_does_nothing(headers: dict[str, str]) -> None:
    checkpointer = await two_tenants()
    app, sessions = app_of(checkpointer.store, writes=True)
    async with browser(app) as client:
        await client.get("/open", params={"code": sessions.new_code()})
        rev = (await checkpointer.store.history("acme/1", 1, None, None))[0].rev
        for path, form in (
            ("/t/acme%2F1/delete", {"confirm": "acme/1", "rev": rev}),
            ("/t/acme%2F1/fork", {"new_thread": "acme/2"}),
            ("/vacuum", {"keep_last": "1", "confirm": "vacuum"}),
            ("/stats", {}),
            ("/login", {}),
            ("/logout", {}),
        ):
            for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
                answer = await client.request(method, path, data=form, headers=headers)
                assert answer.status_code == 403, f"{method} {path}"
        assert (await client.get("/threads")).status_code == 200  # and nobody is logged out
    assert await checkpointer.store.list_threads(None, "*") == ["acme/1", "other/1"]
    assert len(await checkpointer.store.history("acme/1", None, None, None)) == 5


@pytest.mark.parametrize(
    "headers",
    [OWN, {"Origin": "http://127.0.0.1:8710"}, {"Origin": "https://127.0.0.1:8710"}],
    ids=lambda headers: " ".join(headers.values()),
)
async def test_a_form_of_its_own_is_taken(headers: dict[str, str]) -> None:
    app, sessions = app_of((await two_tenants()).store, writes=True)
    async with browser(app) as client:
        await client.get("/open", params={"code": sessions.new_code()})
        answer = await client.post("/t/acme%2F1/fork", data={"new_thread": "acme/2"}, headers=headers)
        assert answer.status_code == 303, answer.text
        assert answer.headers["location"] == "/t/acme%2F2"


# Cookies and codes


async def test_nothing_is_seen_without_a_cookie() -> None:
    app, sessions = app_of((await two_tenants()).store, writes=True)
    async with browser(app, **OWN) as client:
        for path in (
            "/threads",
            "/t/acme%2F1",
            "/t/none",
            "/stats",
            "/nothing",
            "/",
            "/t/acme%2F1/export?format=jsonl",
        ):
            answer = await client.get(path)
            assert answer.status_code == 401
            assert "what acme says" not in answer.text
            assert Page(answer.text).is_harmless()
        assert (await client.post("/vacuum", data={"keep_last": "1", "confirm": "vacuum"})).status_code == 401
        for cookie in ("", "x", sessions.new_code()):
            named = {"Cookie": f"locus-inspector-8710={cookie}; locus-inspector-1={cookie}"}
            assert (await client.get("/threads", headers=named)).status_code == 401
        bearer = {"Authorization": f"Bearer {WRITER}"}
        assert (await client.get("/threads", headers=bearer)).status_code == 401


async def test_a_code_works_once() -> None:
    app, sessions = app_of((await two_tenants()).store, writes=False)
    code = sessions.new_code()
    async with browser(app) as client:
        opened = await client.get("/open", params={"code": code})
        assert (opened.status_code, opened.headers["location"]) == (303, "/threads")
        assert (await client.get("/threads")).status_code == 200
    async with browser(app) as other:
        for replayed in (code, "", "made up"):
            answer = await other.get("/open", params={"code": replayed})
            assert answer.status_code == 401
            assert "set-cookie" not in answer.headers
        assert (await other.get("/open", params=[("code", sessions.new_code()), ("code", "x")])).status_code == 400
        assert (await other.get("/threads")).status_code == 401


async def test_the_cookie_is_for_this_server_alone() -> None:
    app, sessions = app_of((await two_tenants()).store, writes=False)
    async with browser(app) as client:
        opened = await client.get("/open", params={"code": sessions.new_code()})
    cookie = SimpleCookie(opened.headers["set-cookie"])["locus-inspector-8710"]
    assert cookie["httponly"] is True
    assert cookie["samesite"].lower() == "strict"
    assert cookie["path"] == "/"
    assert cookie["domain"] == ""
    assert 0 < int(cookie["max-age"]) <= 24 * 3600
    app = serving(await two_tenants())
    for at, port, secure in (("http://localhost:99", 99, ""), ("http://127.0.0.1", 0, "")):
        async with browser(app, at, **OWN) as client:
            answer = await client.post("/ui/login", data={"token": ACME})
        found = SimpleCookie(answer.headers["set-cookie"])
        assert len(found) == 1
        name, cookie = next(iter(found.items()))
        assert name.startswith("locus-inspector-")
        assert port == 0 or name.endswith(f"-{port}")
        assert (cookie["path"], cookie["secure"]) == ("/ui", secure)
        assert ACME not in answer.headers["set-cookie"]
    async with browser(app, Origin="https://127.0.0.1:8710") as client:
        answer = await client.post("/ui/login", data={"token": ACME})
    assert SimpleCookie(answer.headers["set-cookie"])["locus-inspector-8710"]["secure"] is True


async def test_a_cookie_that_another_server_has_set_is_not_in_the_way(client: httpx.AsyncClient) -> None:
    own = client.cookies["locus-inspector-8710"]
    both = {"Cookie": f"locus-inspector-8710=of somebody else; locus-inspector-8710={own}"}
    client.cookies.clear()
    assert (await client.get("/threads", headers=both)).status_code == 200


async def test_a_token_is_pasted_and_a_session_ends() -> None:
    app = serving(await two_tenants())
    async with browser(app, **OWN) as client:
        asked = await client.get("/ui/t/acme%2F1?ns=default")
        assert asked.status_code == 401
        way = Page(asked.text).attributes("input", "value")
        assert way == ["/ui/t/acme%2F1?ns=default"]
        wrong = await client.post("/ui/login", data={"token": "not-a-token-of-it", "next": way[0]})
        assert wrong.status_code == 401
        assert "www-authenticate" not in wrong.headers
        assert "not-a-token-of-it" not in wrong.text
        done = await client.post("/ui/login", data={"token": ACME, "next": way[0]})
        assert (done.status_code, done.headers["location"]) == (303, "/ui/t/acme%2F1?ns=default")
        assert (await client.get(way[0])).status_code == 200
        stolen = client.cookies["locus-inspector-8710"]
        out = await client.post("/ui/logout")
        assert (out.status_code, out.headers["location"]) == (303, "/ui/login")
        again = {"Cookie": f"locus-inspector-8710={stolen}"}
        assert (await client.get(way[0], headers=again)).status_code == 401


@pytest.mark.parametrize(
    "way",
    ["//evil.example/", "https://evil.example/ui/", "/threads", "/uix", "/ui/\\evil", "/ui/\n", "javascript:1", ""],
)
async def test_a_login_leads_to_no_other_site(way: str) -> None:
    app = serving(await two_tenants())
    async with browser(app, **OWN) as client:
        page = await client.get("/ui/login", params={"next": way})
        assert Page(page.text).attributes("input", "value") == ["/ui/threads"]
        answer = await client.post("/ui/login", data={"token": ACME, "next": way})
        assert answer.headers["location"] == "/ui/threads"
        assert (await client.get("/ui/login", params={"next": way})).headers["location"] == "/ui/threads"


async def test_a_session_dies_with_its_token() -> None:
    app = serving(await two_tenants())
    async with logged_in(app, ACME) as acme, logged_in(app, WRITER) as writer:
        assert (await acme.get("/ui/threads")).status_code == 200
        app.use_tokens([Token(WRITER), Token(READER, "read")])
        assert (await acme.get("/ui/threads")).status_code == 401
        assert (await writer.get("/ui/threads")).status_code == 200


async def test_guesses_are_limited_as_those_of_the_api() -> None:
    app = serving(await two_tenants(), rate="0.001/3")
    async with browser(app, **OWN) as client:
        statuses = [(await client.post("/ui/login", data={"token": "x" * 20})).status_code for _ in range(4)]
        assert statuses == [401, 401, 401, 429]
        assert (await client.get("/ui/threads")).status_code == 429
        assert (await client.get("/ui/static/inspector.css")).status_code == 200
        assert (await client.get("/ui/login")).status_code == 200
    app = serving(await two_tenants(), rate="0.001/3")
    async with logged_in(app, ACME) as acme, logged_in(app, WRITER) as writer:
        assert [(await acme.get("/ui/threads")).status_code for _ in range(4)] == [200, 200, 200, 429]
        assert (await writer.get("/ui/threads")).status_code == 200


async def test_the_audit_log_and_the_metrics_know_pages(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    app = serving(await two_tenants(), audit=str(audit))
    async with logged_in(app, ACME) as acme, logged_in(app, WRITER) as writer:
        answer = await acme.get("/ui/t/acme%2F1", headers={"X-Request-ID": "r1"})
        assert answer.headers["x-request-id"] == "r1"
        await acme.get("/ui/t/other%2F1")
        acme.cookies.clear()
        await acme.get("/ui/t/acme%2F1")
        metrics = await writer.get("/metrics", headers={"Authorization": f"Bearer {WRITER}"})
    assert 'locus_requests_total{method="GET",operation="inspector_timeline",status="200"} 1.0' in metrics.text
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    told = [(line["token"], line["operation"], len(line["threads"]), line["status"]) for line in lines]
    tenant, operator = Token(ACME).id, Token(WRITER).id
    assert told == [
        (tenant, "inspector_log_in", 0, 303),
        (operator, "inspector_log_in", 0, 303),
        (tenant, "inspector_timeline", 1, 200),
        (tenant, "inspector_timeline", 1, 404),
        (None, "none", 0, 401),
        (operator, "metrics", 0, 200),
    ]
    assert "acme" not in audit.read_text()


async def test_without_tokens_the_pages_are_as_open_as_the_api() -> None:
    app = create_app(await two_tenants(), inspector=True, hosts={"127.0.0.1"})
    async with browser(app) as client:
        assert (await client.get("/ui/threads")).status_code == 200
        assert (await client.get("/ui/threads", headers={"Host": "evil.example"})).status_code == 421
        assert (await client.post("/ui/stats")).status_code == 403


async def test_the_api_is_as_it_was() -> None:
    app = serving(await two_tenants())
    async with browser(app, Authorization=f"Bearer {ACME}") as client:
        answer = await client.get("/threads")
        assert answer.json() == {"threads": ["acme/1"]}
        assert "content-security-policy" not in answer.headers
        assert (await client.get("/nothing")).json()["code"] == "no_such_path"
    async with logged_in(app, ACME) as client:
        assert (await client.get("/threads")).status_code == 401  # a cookie is for pages
    async with browser(create_app(MemoryCheckpointer(), TOKENS), **OWN) as client:
        assert (await client.get("/ui/threads", headers={"Authorization": f"Bearer {ACME}"})).status_code == 404


# What a browser is told


async def test_every_answer_tells_the_browser_to_run_and_load_nothing_else(client: httpx.AsyncClient) -> None:
    answers = [
        await client.get("/threads"),
        await client.get("/t/acme%2F1"),
        await client.get("/t/acme%2F1/export?format=html"),
        await client.get("/t/none"),
        await client.get("/nothing"),
        await client.get("/"),
        await client.get("/static/inspector.css"),
        await client.get("/static/nothing.css"),
        await client.get("/threads", headers={"Host": "evil.example"}),
        await client.post("/stats", headers={"Sec-Fetch-Site": "cross-site"}),
        await client.request("DELETE", "/threads"),
        await client.get("/threads?nothing=1"),
        await client.head("/threads"),
    ]
    client.cookies.clear()
    answers += [await client.get("/threads"), await client.get("/open?code=x"), await client.get("/login")]
    assert {answer.status_code for answer in answers} >= {200, 303, 401, 403, 404, 405, 421, 422}
    for answer in answers:
        assert set(answer.headers["content-security-policy"].split("; ")) == POLICY, answer.url
        assert len(answer.headers.get_list("content-security-policy")) == 1
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers
        cached = "no-cache" if "/static/inspector" in str(answer.url) else "no-store"
        assert answer.headers["cache-control"] == cached


async def test_files_are_those_of_the_package(client: httpx.AsyncClient) -> None:
    css = await client.get("/static/inspector.css")
    assert css.headers["content-type"] == "text/css; charset=utf-8"
    again = await client.get("/static/inspector.css", headers={"If-None-Match": css.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for path in ("..%2Fapp.py", "~Li4vYXBwLnB5", "%2Fetc%2Fpasswd", ".", "%00", "app.py", "inspector.css%00"):
        assert (await client.get(f"/static/{path}")).status_code == 404


async def test_errors_are_pages(client: httpx.AsyncClient) -> None:
    for path, status in (
        ("/t/none", 404),
        ("/nothing", 404),
        ("/threads?x=1", 422),
        ("/t/acme%2F1/diff/none/none", 404),
    ):
        answer = await client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
        assert Page(answer.text).is_harmless()
    answer = await client.request("DELETE", "/threads")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


async def test_a_failure_of_the_store_tells_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpointer = await two_tenants()

    async def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the password is hunter2")

    async with looking(checkpointer.store) as client:
        monkeypatch.setattr(checkpointer.store, "history", fail)
        monkeypatch.setattr(checkpointer.store.engine, "history", fail)
        answer = await client.get("/t/acme%2F1")
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert Page(answer.text).is_harmless()


# How it is set up


def test_the_inspector_is_one_process(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="leave out --workers"):
        ServerConfig("sqlite:a.db", inspector=True, workers=2)
    for wrong in ({"inspector_writes": True}, {"inspector_hosts": ("a",)}):
        with pytest.raises(ConfigurationError, match="belong to --inspector"):
            ServerConfig("sqlite:a.db", **wrong)
    made = ServerConfig("sqlite:a.db", inspector=True, inspector_hosts=("Agents.Example",), host="127.0.0.2")
    assert set(made.names) == {"localhost", "127.0.0.1", "::1", "127.0.0.2", "agents.example"}


async def test_who_may_not_write_is_told_so_by_the_pages() -> None:
    app = serving(await two_tenants(), inspector_writes=True)
    for token, chip in ((ACME, "may change the store"), (ACME_READER, "read-only"), (CORP, "may change the store")):
        async with logged_in(app, token) as client:
            assert re.search(chip, (await client.get("/ui/threads")).text)
