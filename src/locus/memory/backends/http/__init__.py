"""Threads on a server, over HTTP: `locus serve`, or any server that has the four endpoints of `plain_server`."""

from typing import TYPE_CHECKING

from locus.extras import lazy_names
from locus.memory.backends.http.backend import HTTPCheckpointer, from_http, from_https

if TYPE_CHECKING:
    from locus.memory.backends.http.engine import HTTPEngine

__all__ = ["HTTPCheckpointer", "HTTPEngine", "from_http", "from_https"]

__getattr__ = lazy_names(__name__, {"engine": ("HTTPEngine",)})
