"""The pages of the inspector, a module for each kind. What a page reads does not grow with the store."""

from __future__ import annotations

from starlette.routing import Route

from locus.server.inspector.pages import (
    bisect,
    changes,
    checkpoint,
    diff,
    export,
    follow,
    memory,
    search,
    stats,
    threads,
    timeline,
)
from locus.server.inspector.pages.base import Pages, no_such_thread

__all__ = ["Pages", "no_such_thread", "page_routes"]


def page_routes(pages: Pages) -> list[Route]:
    """The routes of all pages."""
    modules = (threads, search, memory, timeline, checkpoint, diff, bisect, stats, export, changes, follow)
    return [route for module in modules for route in module.routes(pages)]
