"""A session of tests starts each server once, uses those that it is given, and puts what shares one together."""

import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.inner_pytest import NO_STRANGERS
from tests.servers import catalogue
from tests.servers.catalogue import Kind
from tests.servers.echo_server import EchoServer
from tests.servers.errors import ServerError
from tests.servers.pool import ServerPool
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.redis import RedisCluster
from tests.servers.seaweedfs import SeaweedServer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def echo_in_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.SERVERS, "echo", Kind(EchoServer, EchoServer.install))
    monkeypatch.delenv("LOCUS_TEST_S3_URL", raising=False)


def test_a_server_is_started_once_and_gone_with_the_pool() -> None:
    with ServerPool() as pool:
        server = pool.get("echo", EchoServer)
        assert pool.get("echo", EchoServer) is server
        assert server.answers()
        assert pool.log_tail("echo") == "listening"
    assert not server.is_running
    assert not server.folder.parent.exists()


KILLED = """
    import os, signal
    from tests.servers.redis import RedisServer
    from tests.servers.pool import ServerPool
    print(ServerPool().get("redis", RedisServer).folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_session_leaves_no_data() -> None:
    command = [sys.executable, "-c", textwrap.dedent(KILLED)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60)
    folder = Path(done.stdout.strip())
    deadline = time.monotonic() + 10
    while folder.parent.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert folder.name == "redis"
    assert not folder.parent.exists()


def test_what_a_test_leaves_dead_or_paused_is_mended() -> None:
    with ServerPool() as pool:
        server = pool.get("echo", EchoServer)
        server.pause()
        pool.mend()
        assert server.answers()
        server.kill()
        pool.mend()
        assert server.answers()


def test_a_server_that_was_not_installed_fails_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise ServerError("no network")

    monkeypatch.setitem(catalogue.SERVERS, "broken", Kind(EchoServer, fail))
    with ServerPool() as pool:
        pool.install(["broken", "echo"])
        assert pool.get("echo", EchoServer).answers()
        with pytest.raises(ServerError, match="no network\nLOCUS_TEST_BROKEN_URL can name one"):
            pool.get("broken", EchoServer)


def test_a_server_that_is_named_wins_over_starting_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCUS_TEST_POSTGRESQL_URL", "postgresql://me:secret@db.example:6543/mine")
    with ServerPool() as pool:
        pool.install(["postgresql"])
        server = pool.get("postgresql", PostgreSQLServer)
        pool.mend()
    assert server.url == "postgresql://me:secret@db.example:6543/mine"
    assert server.port == 6543
    assert "secret" not in repr(server)


@pytest.mark.parametrize("action", ["kill", "restart", "pause", "resume", "start"])
def test_a_named_server_is_not_touched(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCUS_TEST_REDIS_CLUSTER_URL", "redis://db.example:6379/0")
    server = ServerPool().get("redis-cluster", RedisCluster)
    with pytest.raises(pytest.skip.Exception, match="needs a server that the tests have started"):
        getattr(server, action)()
    with pytest.raises(pytest.skip.Exception):
        _ = server.nodes


def test_a_named_s3_has_its_keys_and_bucket_in_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCUS_TEST_S3_URL", "https://key:se%2Fcret@s3.example:9000/my-bucket")
    server = ServerPool().get("s3", SeaweedServer)
    assert server.url == "https://s3.example:9000"
    assert (server.access_key, server.secret_key, server.bucket) == ("key", "se/cret", "my-bucket")


TESTS = """
    import pytest

    @pytest.mark.parametrize("n", range(4))
    def test_plain(n, redis_server): ...

    @pytest.fixture
    def indirect(valkey_server): ...

    @pytest.mark.parametrize("n", range(4))
    def test_indirect(n, indirect): ...

    @pytest.mark.redis("valkey")
    @pytest.mark.parametrize("n", range(4))
    def test_said(n): ...

    @pytest.mark.server("valkey")
    def test_asks(request):
        assert request.getfixturevalue("valkey_server").answers()

    @pytest.mark.oci
    @pytest.mark.parametrize("n", range(4))
    def test_marked(n): ...

    def test_alone(): ...

    def test_fails(redis_server):
        assert redis_server.answers() is None
"""


def run_pytest(folder: Path, *arguments: str) -> str:
    (folder / "test_some.py").write_text(textwrap.dedent(TESTS), encoding="ascii")
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)]
    command += ["-p", "tests.servers.fixtures", "-p", "no:cacheprovider", *NO_STRANGERS, *arguments, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100).stdout


def test_what_shares_a_server_shares_a_worker(tmp_path: Path) -> None:
    """Fails, too, where pytest and pytest-xdist do not fit: 9.2 and 3.8 tear groups apart without a word."""
    told = run_pytest(tmp_path, "-v", "-n", "2", "--dist", "loadgroup")
    ran = re.findall(r"\[(gw\d)\].*::test_(\w+)(?:\[\d\])?(?:@(\S+))? *\n", told)
    workers: dict[str, set[str]] = {}
    for worker, _, group in ran:
        workers.setdefault(group, set()).add(worker)
    assert {group: len(used) for group, used in workers.items() if group} == {"redis": 1, "valkey": 1, "oci": 1}
    assert {group for _, test, group in ran if test == "indirect"} == {"valkey"}
    assert len(ran) == 19


def test_a_failure_shows_the_log_of_its_server(tmp_path: Path) -> None:
    told = run_pytest(tmp_path, "-p", "no:xdist", "-k", "fails")
    assert re.search(r"- log of redis -.*Ready to accept connections", told, re.DOTALL)


def test_a_server_brings_its_marker(tmp_path: Path) -> None:
    told = run_pytest(tmp_path, "-p", "no:xdist", "--collect-only", "-q", "-m", "redis")
    assert "14/19 tests collected" in told
