"""The HTTP server in front of `api`, and the process.

Started as `python -m tests.servers.oci.http FOLDER PORT NAMESPACE [durable]`. The public keys that it accepts
are read from `FOLDER/keys.json` ({key id: PEM}). It speaks HTTPS if there is a certificate in `FOLDER/tls.pem`.
Under `/control/` it takes what `faults` describes, and makes buckets; no signature is needed there, so it
listens on this machine only.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.servers.oci.api import ObjectStorage, Reply, Request, refused
from tests.servers.oci.faults import Fault
from tests.servers.tls import server_context


class Handler(BaseHTTPRequestHandler):
    """One connection: reads requests, lets `ObjectStorage` answer, and breaks what it is told to break."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65_536
    timeout = 120.0
    storage: ObjectStorage

    def log_message(self, format: str, *args: Any) -> None:
        """Only what went wrong here is worth a line."""

    def handle_expect_100(self) -> bool:
        self.storage.faults.note("100-continue")
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def _handle(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        length = int(headers.get("content-length") or 0)
        if self.path.startswith("/control/"):
            self._send(self.storage.control(Request(self.command, self.path, headers, self.rfile.read(length))))
            return None
        fault = self.storage.faults.next(Request(self.command, self.path, headers, b"").operation)
        if fault is not None and fault.kind == "unread":
            self.rfile.read(length // 2)
            return self._hang_up(reset=True)
        body = self.rfile.read(length)
        if len(body) < length:
            return self._hang_up()
        request = Request(self.command, self.path, headers, body)
        if fault is None:
            return self._send(self.storage.answer(request))
        return self._strike(fault, request)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _strike(self, fault: Fault, request: Request) -> None:
        failure = refused(fault.status, fault.code, "The server was told to fail")
        if fault.kind == "answer":
            return self._send(failure)
        if fault.kind == "refuse":
            return self._hang_up()
        if fault.kind == "hang":
            time.sleep(fault.seconds)
        reply = self.storage.answer(request)
        if fault.kind == "lost":
            return self._hang_up()
        if fault.kind == "half":
            self._send(reply, body=reply.body[: len(reply.body) // 2])
            return self._hang_up()
        return self._send(failure if fault.kind == "late" else reply)

    def _send(self, reply: Reply, *, body: bytes | None = None) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        asked_as = self.headers.get("opc-request-id") or uuid.uuid4().hex.upper()
        self.send_header("opc-request-id", f"local-1:{asked_as}")
        if "opc-client-request-id" in self.headers:
            self.send_header("opc-client-request-id", self.headers["opc-client-request-id"])
        if reply.status not in (204, 304):
            self.send_header("content-length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body if body is None else body)
        self.wfile.flush()

    def _hang_up(self, *, reset: bool = False) -> None:
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is no error of this side."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def main(folder: str, port: str, namespace: str, durable: str = "") -> None:
    Handler.storage = ObjectStorage(Path(folder), namespace, durable == "durable")
    listener = Listener(("127.0.0.1", int(port)), Handler)
    certificate = Path(folder) / "tls.pem"
    if certificate.exists():
        # Shaking hands is left to the threads, so that one slow client holds up no other.
        listener.socket = server_context(certificate).wrap_socket(
            listener.socket, server_side=True, do_handshake_on_connect=False
        )
    listener.serve_forever(poll_interval=3600)


if __name__ == "__main__":
    main(*sys.argv[1:])
