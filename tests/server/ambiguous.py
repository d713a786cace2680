"""Requests that two programs could read in two ways: a server that accepts one answers whoever hides behind it."""

from __future__ import annotations

from tests.server.running import HTTPConnection

POST = b"POST /threads/t/checkpoints HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
AMBIGUOUS = [
    POST + b"Content-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /recent HTTP/1.1\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\nContent-Length: 12\r\n\r\n0\r\n\r\nGET /recent HTTP/1.1\r\n\r\n",
    POST + b'Content-Length: 12\r\nContent-Length: 13\r\n\r\n{"state":{}}',
    POST + b'Content-Length: +12\r\n\r\n{"state":{}}',
    POST + b'Content-Length: -1\r\n\r\n{"state":{}}',
    POST + b'Content-Length: 99999999999999999999\r\n\r\n{"state":{}}',
    POST + b'Transfer-Encoding: chunked, identity\r\n\r\nc\r\n{"state":{}}\r\n0\r\n\r\n',
    POST + b'Transfer-Encoding: gzip\r\n\r\nc\r\n{"state":{}}\r\n0\r\n\r\n',
    POST + b'Transfer-Encoding : chunked\r\n\r\nc\r\n{"state":{}}\r\n0\r\n\r\n',
    POST + b'Transfer-Encoding: chunked\r\n\r\n0xc\r\n{"state":{}}\r\n0\r\n\r\n',
    POST + b'Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{"state":{}}\r\n0\r\n\r\n',
    POST + b'Transfer-Encoding: chunked\r\n\r\nc\r\n{"state":{}}0\r\n\r\nGET /recent HTTP/1.1\r\n\r\n',
    POST + b'Transfer-Encoding: chunked\r\n\r\nc\r\n{"state":{}}\n0\r\n\r\n',
    POST + b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\nX\0: c\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\rb: c\r\n\r\n",
    b"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"G\0T /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


def check_refused(port: int, request: bytes) -> None:
    """Send a request, and hold that one answer comes, which refuses it."""
    with HTTPConnection(port) as connection:
        connection.send(request)
        answer = connection.rest()
    assert answer.startswith(b"HTTP/1.1 400"), request
    assert answer.count(b"HTTP/1.1 ") == 1, request
