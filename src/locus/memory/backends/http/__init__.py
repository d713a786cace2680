"""Threads on a server, over HTTP: `locus serve`, or any server that has the four endpoints of `plain_server`."""

from locus.memory.backends.http.backend import HTTPCheckpointer, from_http, from_https
from locus.memory.backends.http.engine import HTTPEngine

__all__ = ["HTTPCheckpointer", "HTTPEngine", "from_http", "from_https"]
