"""A local HTTP server that answers as it is told, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """One answer. With `chunks` it is streamed, and `cut` breaks the connection off after the last of them."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] | None = None
    cut: bool = False


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, json.dumps(value).encode(), headers=named)


def sse(events: Iterable[Any], *, named: bool = False, cut: bool = False) -> Reply:
    """Server-sent events; text goes as it is, anything else as JSON."""
    chunks = []
    for event in events:
        name = f"event: {event['type']}\n" if named else ""
        data = event if isinstance(event, str) else json.dumps(event)
        chunks.append(f"{name}data: {data}\n\n".encode())
    return Reply(content_type="text/event-stream", chunks=tuple(chunks), cut=cut)


def ndjson(parts: Iterable[Any], *, cut: bool = False) -> Reply:
    lines = tuple(json.dumps(part).encode() + b"\n" for part in parts)
    return Reply(content_type="application/x-ndjson", chunks=lines, cut=cut)


class ModelServer:
    """Gives the replies in order; `requests` has what it was asked. `check` may refuse a request with a status."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.requests: list[Request] = []
        self.check: Callable[[Request], int | None] = lambda _request: None
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def reply_to(self, request: Request) -> Reply:
        self.requests.append(request)
        status = self.check(request)
        if status is not None:
            return json_reply({"error": {"type": "refused", "message": f"refused with {status}"}}, status)
        if not self.replies:
            return json_reply({"error": {"message": "the test has no reply for this request"}}, 418)
        return self.replies.pop(0)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_args: object) -> None:
                """Silent: a test says what it has to say by failing."""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, self.path, headers, body, time.monotonic())
                _send(self, server.reply_to(request))

        return Handler


def _send(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    handler.send_response(reply.status)
    handler.send_header("content-type", reply.content_type)
    for name, value in reply.headers.items():
        handler.send_header(name, value)
    if reply.chunks is None:
        handler.send_header("content-length", str(len(reply.body)))
        handler.end_headers()
        handler.wfile.write(reply.body)
        return
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    for chunk in reply.chunks:
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        handler.wfile.flush()
    if reply.cut:
        handler.close_connection = True
    else:
        handler.wfile.write(b"0\r\n\r\n")
