"""Namespaces of a thread on a server that has the route for them, and on one that is older."""

from __future__ import annotations

from locus.core.state import AgentState
from locus.memory.backends import HTTPCheckpointer, MemoryCheckpointer
from locus.memory.backends.http.engine import HTTPEngine
from locus.memory.backends.http.locus_server import LocusServer
from locus.server import create_app
from tests.server.running import threaded


async def test_an_older_server_lists_them_too() -> None:
    with threaded(create_app(MemoryCheckpointer())) as port:
        async with HTTPCheckpointer(f"http://127.0.0.1:{port}") as checkpointer:
            for name in ("b", "", "a"):
                await checkpointer.save(AgentState(), "t", namespace=name)
            engine = checkpointer.store.engine
            assert isinstance(engine, HTTPEngine)
            assert isinstance(engine.server, LocusServer)
            assert "namespaces" in engine.server.features
            for lacking in (set[str](), {"namespaces"}):
                engine.server.features -= lacking
                assert await checkpointer.list_namespaces("t") == ["", "a", "b"]
                assert await checkpointer.list_namespaces("nothing") == []
            assert checkpointer.sync.list_namespaces("t") == ["", "a", "b"]
