"""OCI Object Storage that fails in the middle of a save: it happened, or it raised; and nothing is there twice."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.backends.oci_bucket.backend import OCIBucketBackend
from locus.testing.data import conversation, message
from tests.servers.oci.faults import Fault
from tests.servers.oci.fixtures import quick_retries
from tests.servers.oci.server import OCIServer
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.oci

EVER = 1_000


def opened(server: OCIServer, prefix: str, port: int | None = None, **options: Any) -> OCIBucketBackend:
    return OCIBucketBackend(
        server.bucket,
        server.namespace,
        prefix,
        config_file=server.config_file,
        service_endpoint=f"http://127.0.0.1:{port or server.port}",
        **{"timeout": (2.0, 2.0), "retry_strategy": quick_retries(), **options},
    )


async def assert_whole(server: OCIServer, prefix: str, known: dict[str, AgentState]) -> None:
    """Exactly these checkpoints are there, for a handle that knows nothing, and in an unbroken line."""
    async with opened(server, prefix) as reader:
        entries = await reader.history("t", None)
        assert {entry.checkpoint_id for entry in entries} == set(known)
        assert [entry.seq for entry in entries] == list(range(len(known), 0, -1))
        for checkpoint_id, state in known.items():
            assert await reader.load("t", checkpoint_id) == state


@pytest.mark.parametrize(
    "fault",
    [
        Fault("lost", operation="PutObject"),
        Fault("late", operation="PutObject", status=500),
        Fault("answer", operation="PutObject", status=503),
        Fault("answer", operation="PutObject", status=429, code="TooManyRequests"),
        Fault("refuse", operation="PutObject"),
        Fault("unread", operation="PutObject"),
        Fault("half", operation="GetObject"),
        Fault("refuse"),
    ],
    ids=lambda fault: f"{fault.kind} {fault.operation or 'any'}",
)
async def test_what_passes_is_not_noticed(oci_faulty: OCIServer, oci_prefix: str, fault: Fault) -> None:
    """One fault in each save, at a place that moves on: the save is done, and once only."""
    state, known = AgentState().with_messages(conversation(3)), dict[str, AgentState]()
    async with opened(oci_faulty, oci_prefix) as checkpointer:
        for turn in range(20):
            state = state.with_message(message(turn))
            oci_faulty.fail(Fault(**{**vars(fault), "after": turn % 2}))
            known[await checkpointer.save(state, "t")] = state
    oci_faulty.fail()
    await assert_whole(oci_faulty, oci_prefix, known)


@pytest.mark.parametrize("after", range(4))
async def test_a_save_happened_or_raised(oci_faulty: OCIServer, oci_prefix: str, after: int) -> None:
    """Whatever stops answering for good, at whatever request: saving again is safe."""
    state = AgentState().with_messages(conversation(3))
    async with opened(oci_faulty, oci_prefix) as checkpointer:
        known = {await checkpointer.save(state, "t", "c0"): state}
        for kind in ("lost", "refuse", "unread", "answer", "late"):
            state = state.with_message(message(len(known)))
            name = f"c{len(known)}"
            oci_faulty.fail(Fault(kind, times=EVER, after=after, status=500))
            with suppress(BackendUnavailableError):
                await checkpointer.save(state, "t", name)
            oci_faulty.fail()
            known[await checkpointer.save(state, "t", name)] = state
    await assert_whole(oci_faulty, oci_prefix, known)


@pytest.mark.parametrize("size", [0, 20, 300, 900, 5_000, 60_000])
async def test_a_connection_that_breaks_in_the_middle(oci_server: OCIServer, oci_prefix: str, size: int) -> None:
    """After so many bytes to the server, inside of the headers and inside of the body."""
    state = AgentState().with_messages(conversation(3))
    with Proxy(oci_server.port) as proxy:
        async with opened(oci_server, oci_prefix, proxy.port) as checkpointer:
            known = {await checkpointer.save(state, "t", "c0"): state}
            for turn in range(1, 4):
                state = state.with_message(message(turn).model_copy(update={"content": "x" * 100_000}))
                proxy.cut_after(to_server=size * turn)
                with suppress(BackendUnavailableError):
                    await checkpointer.save(state, "t", f"c{turn}")
                proxy.accept()
                known[await checkpointer.save(state, "t", f"c{turn}")] = state
    await assert_whole(oci_server, oci_prefix, known)


async def test_a_server_that_hangs_is_given_up(oci_server: OCIServer, oci_prefix: str) -> None:
    state = AgentState().with_messages(conversation(3))
    with Proxy(oci_server.port) as proxy:
        async with opened(oci_server, oci_prefix, proxy.port, timeout=2.0) as checkpointer:
            await checkpointer.save(state, "t", "c0")
            proxy.stall()
            with pytest.raises(BackendUnavailableError, match=r"[Tt]ime"):
                await checkpointer.load("t")
            with pytest.raises(BackendUnavailableError, match=r"[Tt]ime"):
                await checkpointer.save(state.with_message(message(1)), "t", "c1")
            proxy.accept()
            proxy.cut()
            assert await checkpointer.load("t", "c0") == state


async def test_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    """A save that raised is not there, or is there as a whole, when the server is back."""
    with OCIServer(tmp_path / "server") as server:
        state, known = AgentState(), dict[str, AgentState]()
        async with opened(server, "p/") as checkpointer:
            for turn in range(6):
                state = state.with_message(message(turn))
                server.kill()
                with pytest.raises(BackendUnavailableError):
                    await checkpointer.save(state, "t", f"c{turn}")
                server.start()
                known[await checkpointer.save(state, "t", f"c{turn}")] = state
        await assert_whole(server, "p/", known)
