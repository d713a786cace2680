"""Every route of the inspector, as requests: a new route is among them without being named here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from locus.memory.backends import MemoryCheckpointer
from locus.server.auth import Guard
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import Limits
from locus.server.inspector.app import Inspector

FORMS: Mapping[str, Mapping[str, str]] = {
    "/t/{thread_id}/fork": {"new_thread": "acme/new"},
    "/t/{thread_id}/delete": {"confirm": "{thread_id}", "rev": "{rev}"},
    "/vacuum": {"keep_last": "1", "confirm": "vacuum"},
    "/stats": {"keep_last": "1"},
}
"""What is sent to a route that takes a form. One that is not here gets an empty one."""

QUERIES: Mapping[str, tuple[str, ...]] = {
    "/threads": ("", "order=id", "q=o", "meta=turn=1"),
    "/search": ("", "q=know"),
    "/t/{thread_id}": ("", "ns=default", "at=2100-01-01T00:00"),
    "/t/{thread_id}/c/{checkpoint_id}": ("", "ns=default"),
    "/t/{thread_id}/diff": ("a=1&b=2",),
    "/t/{thread_id}/bisect": ("", "appears=know", "path=messages.0", "appears=know&to=cp-1"),
    "/t/{thread_id}/export": ("", "format=jsonl", "format=json", "format=md", "format=html", "checkpoint=cp-1"),
    "/t/{thread_id}/stats": ("", "keep_last=1"),
    "/t/{thread_id}/fork": ("", "checkpoint=cp-1"),
    "/t/{thread_id}/delete": ("", "checkpoint=cp-1"),
    "/vacuum": ("", "keep_last=1"),
    "/memory": ("", "q=know", "under=acme/"),
    "/memory/item": ("path=acme/&key=k",),
}


@dataclass(frozen=True)
class Step:
    """A request to a route, about any thread."""

    method: str
    path: str
    query: str = ""
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def about_a_thread(self) -> bool:
        return "{thread_id}" in self.path

    @property
    def streams(self) -> bool:
        """Whether the answer goes on for as long as somebody listens, if there is a thread."""
        return self.path.endswith("/follow")

    def address(self, thread_id: str = "", checkpoint_id: str = "cp-1") -> str:
        path = self.path.replace("{thread_id}", quote(thread_id, safe=""))
        for name in ("{checkpoint_id}", "{b}"):
            path = path.replace(name, quote(checkpoint_id, safe=""))
        path = path.replace("{a}", "cp-0").replace("{file}", "inspector.css")
        return f"{path}?{self.query}" if self.query else path

    def filled(self, thread_id: str, rev: str = "") -> dict[str, str]:
        return {name: text.replace("{thread_id}", thread_id).replace("{rev}", rev) for name, text in self.form.items()}

    def __str__(self) -> str:
        return f"{self.method} {self.path}?{self.query}"


def steps(*, writes: bool, base: str = "") -> Iterator[Step]:
    """All routes but those that begin and end a session."""
    authorized = AuthorizedStore(MemoryCheckpointer().store, Limits())
    inspector = Inspector(authorized, Guard(None), base=base, writes=writes, hosts=())
    for route in inspector.routes:
        below = route.path.removeprefix(base)
        if below in ("/open", "/login", "/logout"):
            continue
        for method in sorted(route.methods or ()):
            if method == "POST":
                yield Step(method, route.path, "", FORMS.get(below, {}))
            elif method == "GET":
                for query in QUERIES.get(below, ("",)):
                    yield Step(method, route.path, query)
