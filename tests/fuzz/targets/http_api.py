"""The server, asked without a socket. A case is a request as it is written on the wire: a line, headers, a body.

Every case finds the same threads. An answer is right if it is no failure of the server: whatever is wrong with a
request is the sender's fault, and is answered with a problem that says so.
"""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from functools import cache
from typing import Any, Final
from urllib.parse import unquote

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer
from locus.memory.backends.memory import MemoryEngine
from locus.server import Token, create_app
from tests.fuzz.judge import Fault, expects

WRITER: Final = "a-token-that-may-write"
ACME: Final = "a-token-for-acme-alone"
SECONDS: Final = 30.0
"""Nothing here waits for anything, so a request that takes as long as this never ends."""
_STORED: Final = 200_000
"""More than the threads that are there would fill."""


class Site:
    """The app, and the threads that it begins each case with."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        handle = MemoryCheckpointer()
        engine = handle.store.engine
        assert isinstance(engine, MemoryEngine)
        self._engine = engine
        self.loop.run_until_complete(self._fill(handle))
        self._tables, self._is_changed = deepcopy(engine._tables), False
        self.app = create_app(handle, [Token(WRITER), Token(ACME, prefix="acme/")], inspector=False)

    @staticmethod
    async def _fill(handle: MemoryCheckpointer) -> None:
        for thread_id in ("t", "acme/a"):
            state = AgentState()
            for number in range(3):
                state = state.with_message(Message.user(f"hello {number}"))
                await handle.save(state, thread_id, f"c{number}", metadata={"n": number})
            await handle.put_writes(thread_id, "c2", "task", [("x", 1)])

    def begin(self) -> None:
        """The same threads again, if the last request could change them."""
        if self._is_changed:
            self._engine._tables, self._is_changed = deepcopy(self._tables), False

    def note(self, method: str) -> None:
        self._is_changed = self._is_changed or method != "GET"


@cache
def site() -> Site:
    return Site()


def request_from(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The scope of a request and its body."""
    start, _, body = data.replace(b"\r\n", b"\n").partition(b"\n\n")
    line, *lines = start.split(b"\n")
    method, _, target = line.decode("latin-1").partition(" ")
    target = target.partition(" HTTP/")[0]
    raw_path, _, query = target.partition("?")
    headers = []
    for header in lines:
        name, colon, value = header.partition(b":")
        if colon:
            headers.append((name.strip().lower(), value.strip()))
    named = {name for name, _ in headers}
    if b"authorization" not in named:
        headers.append((b"authorization", b"Bearer " + WRITER.encode()))
    if b"content-type" not in named and body:
        headers.append((b"content-type", b"application/json"))
    path = unquote(raw_path) if raw_path.startswith("/") else f"/{unquote(raw_path)}"
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
        "method": "".join(filter(str.isalpha, method.upper()))[:16] or "GET", "path": path,
        "raw_path": raw_path.encode("latin-1"), "query_string": query.encode("latin-1"),
        "root_path": "", "headers": headers, "client": ("127.0.0.1", 1), "server": ("locus", 80),
    }  # fmt: skip
    return scope, body


async def _ask(app: Any, scope: dict[str, Any], body: bytes) -> tuple[int, bytes, dict[bytes, bytes]]:
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    status, parts, headers, ended = 0, list[bytes](), dict[bytes, bytes](), asyncio.Event()

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            headers.update(message["headers"])
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                ended.set()

    try:
        async with asyncio.timeout(SECONDS):
            await app(scope, receive, send)
    except TimeoutError:
        raise Fault(f"a request took longer than {SECONDS:g} s") from None
    expects(ended.is_set(), "an answer does not end")
    return status, b"".join(parts), headers


def run(data: bytes) -> int:
    here = site()
    here.begin()
    scope, body = request_from(data)
    here.note(scope["method"])
    status, answer, headers = here.loop.run_until_complete(_ask(here.app, scope, body))
    expects(status < 500 or status == 501, f"the server failed with {status}: {answer[:300]!r}")
    if headers.get(b"content-type", b"").startswith(b"application/json") and b"content-encoding" not in headers:
        expects(not answer or json.loads(answer) is not ..., "an answer is no JSON")
    most = _STORED + 200 * len(data)
    expects(len(answer) <= most, f"{len(data)} bytes were answered with {len(answer):,}")
    return len(answer)


def _request(method: str, path: str, body: str = "", *headers: str) -> bytes:
    return "\n".join([f"{method} {path}", *headers, "", body]).encode()


_COMMIT: Final = (
    '{"checkpoint_id":"n","rev":"0123456789abcdef","created_at":"2026-01-01T00:00:00+00:00","metadata":{},'
    '"head":{"messages":[]},"manifest":[[["messages"],[["branch-1",0,0,1]]]],"runs":[["branch-1",0,0,[1]]],"values":[]}'
)
SEEDS: Final = [
    _request("GET", "/"),
    _request("GET", "/threads?limit=2&pattern=*&after=a"),
    _request("GET", "/threads/t/latest?namespace=default"),
    _request("GET", "/threads/~YWNtZS9h/checkpoints?limit=2", "", f"Authorization: Bearer {ACME}"),
    _request("GET", "/threads/t/checkpoints/c1"),
    _request("GET", "/threads/t/items?path=%5B%22messages%22%5D&start=0&count=2"),
    _request("GET", "/threads/t/stored?window=%5B1,%5B%5B%22messages%22%5D%5D%5D"),
    _request("GET", "/threads/t/entry"),
    _request("GET", "/threads/t/namespaces"),
    _request("GET", "/threads/t/diff?old=c0&new=c2"),
    _request("GET", "/threads/t/export?format=markdown"),
    _request("POST", "/threads/t/checkpoints", '{"state":{"messages":[1]},"metadata":{"k":1}}', 'If-Match: "c2"'),
    _request("POST", "/threads/t/commits", _COMMIT),
    _request("POST", "/threads/t/records", '{"after_seq":0,"limit":2,"known":{}}'),
    _request("POST", "/threads/t/deletions", '{"seqs":{"1":"x"}}'),
    _request("POST", "/threads/t/copy", '{"dest_thread_id":"u","checkpoint_id":"c1","ancestors":1}'),
    _request("POST", "/threads/t/sizes", '{"keep_last":1}'),
    _request("PUT", "/threads/t/checkpoints/c2/writes", '{"task_id":"a","task_path":"","writes":[["x",1]]}'),
    _request("GET", "/threads/t/checkpoints/c2/writes"),
    _request("DELETE", "/threads/t/checkpoints/c1"),
    _request("DELETE", "/threads/t?namespace=default"),
    _request("POST", "/find", '{"key":"n","value":1,"limit":3}'),
    _request("POST", "/search", '{"query":"hello","limit":3,"timeout_seconds":1}'),
    _request("POST", "/vacuum", '{"older_than_days":1,"keep_last":2,"dry_run":true,"progress":true}'),
    _request("GET", "/recent?limit=2"),
    _request("GET", "/recent-threads?limit=1&before=1:t"),
    _request("GET", "/health"),
    _request("GET", "/ready"),
    _request("GET", "/metrics"),
    _request("GET", "/openapi.json", "", "Accept-Encoding: gzip"),
]
