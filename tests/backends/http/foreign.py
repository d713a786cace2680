"""A server of checkpoints that is not ours: the four endpoints, a dict, and manners of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Manners:
    """How such servers differ."""

    wrapped: bool = True
    """Whether a checkpoint is answered with its state under "state", or the state alone."""
    listed: str = "checkpoints"
    """The name that a list stands under; "" for none."""
    objects: bool = True
    """Whether a list has objects, or ids."""
    refuses_duplicates: bool = False
    fails_with: int | None = None
    """A status that every request gets."""
    answers_garbage: bool = False
    root: int = 404
    password: str | None = None


@dataclass
class Foreign:
    """The server's state, for tests to look at."""

    url: str
    manners: Manners
    threads: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    """Method, raw path, and body."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body go out together: a body alone waits for the head's acknowledgement
    foreign: Foreign

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""

    def _answer(self, status: int, data: Any = None) -> None:
        body = b"" if data is None else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.foreign.requests.append((self.command, self.path, body))
        manners = self.foreign.manners
        parts = [unquote(part) for part in urlsplit(self.path).path.split("/")[1:]]
        if manners.fails_with is not None:
            self._answer(manners.fails_with, {"detail": "as you wish"})
        elif manners.password is not None and self.headers.get("Authorization") != manners.password:
            self._answer(401, {"error": "who are you?"})
        elif parts == ["health"]:
            self._answer(200, {"status": "ok"})
        elif parts == [""]:
            self._answer(manners.root, {"welcome": "to another server"})
        elif manners.answers_garbage:
            self._answer(200, "gar" if self.command == "GET" else None)
        elif parts[0] != "threads" or len(parts) not in (3, 4) or parts[2] != "checkpoints":
            self._answer(404)
        else:
            self._checkpoints(parts[1], parts[3] if len(parts) == 4 else None, body)

    do_GET = do_POST = do_DELETE = _handle

    def _checkpoints(self, thread: str, name: str | None, body: Any) -> None:
        kept, manners = self.foreign.threads.setdefault(thread, {}), self.foreign.manners
        if self.command == "POST":
            if manners.refuses_duplicates and body["checkpoint_id"] in kept:
                self._answer(409, {"detail": "there is one already"})
                return
            kept.pop(body["checkpoint_id"], None)
            kept[body["checkpoint_id"]] = body
            self._answer(201, {"checkpoint_id": body["checkpoint_id"]})
        elif name is None:
            limit = int(parse_qs(urlsplit(self.path).query).get("limit", ["10"])[0])
            newest = list(reversed(kept.values()))[:limit]
            about = [{key: value for key, value in one.items() if key != "state"} for one in newest]
            items = about if manners.objects else [one["checkpoint_id"] for one in newest]
            self._answer(200, {manners.listed: items} if manners.listed else items)
        elif name not in kept:
            self._answer(404, {"detail": "not here"})
        elif self.command == "DELETE":
            del kept[name]
            self._answer(204)
        else:
            self._answer(200, kept[name] if manners.wrapped else kept[name]["state"])


@contextmanager
def foreign_server(manners: Manners | None = None) -> Iterator[Foreign]:
    """Runs in a thread of its own, behind a real socket."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    foreign = handler.foreign = Foreign(f"http://127.0.0.1:{server.server_port}", manners or Manners())  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield foreign
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
