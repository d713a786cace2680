"""The proxy misbehaves as it is told to, and behaves again."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.echo_server import EchoServer, ask
from tests.servers.proxy import Proxy


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EchoServer]:
    with EchoServer(tmp_path_factory.mktemp("echo")) as server:
        yield server


@pytest.fixture
def proxy(server: EchoServer) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def connection(proxy: Proxy) -> Iterator[socket.socket]:
    """A live connection, which has been used."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=2) as connection:
        connection.sendall(b"first")
        assert connection.recv(100) == b"FIRST"
        yield connection


def read_all(connection: socket.socket) -> bytes:
    """What arrives until the connection is reset."""
    got = b""
    with pytest.raises(ConnectionResetError):
        while True:
            data = connection.recv(100)
            assert data, "closed politely"
            got += data
    return got


def test_it_passes_on_what_it_gets(proxy: Proxy) -> None:
    assert ask(proxy.port, b"hello") == b"HELLO"


def test_it_refuses_new_connections_and_keeps_the_live_ones(proxy: Proxy, connection: socket.socket) -> None:
    proxy.refuse()
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        ask(proxy.port, b"hello")
    connection.sendall(b"second")
    assert connection.recv(100) == b"SECOND"
    connection.close()
    proxy.accept()
    assert ask(proxy.port, b"hello") == b"HELLO"


def test_it_cuts_live_connections_only(proxy: Proxy, connection: socket.socket) -> None:
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        connection.recv(100)
    assert ask(proxy.port, b"hello") == b"HELLO"


def test_it_cuts_after_so_many_bytes_to_the_server(proxy: Proxy, connection: socket.socket, server: EchoServer) -> None:
    proxy.cut_after(4)
    connection.sendall(b"abcdef")
    read_all(connection)
    end = time.monotonic() + 10
    while not server.said().endswith("firstabcd"):
        assert time.monotonic() < end, server.said()
        time.sleep(0.01)
    assert ask(proxy.port, b"hello") == b"HELLO", "once only"


def test_it_cuts_after_so_many_bytes_from_the_server(
    proxy: Proxy, connection: socket.socket, server: EchoServer
) -> None:
    proxy.cut_after(from_server=4)
    connection.sendall(b"ghijkl")
    assert read_all(connection) == b"GHIJ"
    assert server.said().endswith("firstghijkl")


def test_bytes_are_counted_over_several_pieces(proxy: Proxy, connection: socket.socket) -> None:
    proxy.cut_after(from_server=8)
    connection.sendall(b"mnopqr")
    assert connection.recv(100) == b"MNOPQR"
    connection.sendall(b"stuvwx")
    assert read_all(connection) == b"ST"


def test_it_delays_both_ways(proxy: Proxy, connection: socket.socket) -> None:
    proxy.delay(0.1)
    started = time.monotonic()
    connection.sendall(b"slow")
    assert connection.recv(100) == b"SLOW"
    assert time.monotonic() - started >= 0.2


def test_it_stalls_until_it_is_told_to_go_on(proxy: Proxy, connection: socket.socket) -> None:
    proxy.stall()
    connection.sendall(b"late")
    connection.settimeout(0.1)
    with pytest.raises(TimeoutError):
        connection.recv(100)
    proxy.accept()
    connection.settimeout(2)
    assert connection.recv(100) == b"LATE"


def test_what_it_holds_back_can_be_waited_for(proxy: Proxy, connection: socket.socket) -> None:
    proxy.stall()
    with pytest.raises(TimeoutError, match="nothing has arrived"):
        proxy.wait_until_it_holds(0)
    connection.sendall(b"held")
    proxy.wait_until_it_holds()
    proxy.accept()
    assert connection.recv(100) == b"HELD"


def test_a_stalled_connection_can_be_cut(proxy: Proxy, connection: socket.socket) -> None:
    proxy.stall()
    connection.sendall(b"never")
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        connection.recv(100)


def test_a_server_that_is_down_resets(tmp_path: Path) -> None:
    with EchoServer(tmp_path) as server, Proxy(server.port) as proxy:
        server.stop()
        with pytest.raises(ConnectionResetError):
            ask(proxy.port, b"hello")


def test_the_end_of_one_side_reaches_the_other(proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=2) as connection:
        connection.sendall(b"bye")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b"BYE"
        assert connection.recv(100) == b""


def test_it_says_when_it_has_cut(proxy: Proxy, connection: socket.socket) -> None:
    proxy.cut_after(4)
    assert not proxy.wait_until_it_cuts(0)
    connection.sendall(b"abcdef")
    assert proxy.wait_until_it_cuts()
    read_all(connection)


def test_it_says_how_many_connections_it_has_cut(proxy: Proxy, connection: socket.socket) -> None:
    assert proxy.cut() == 1
    read_all(connection)


def test_it_drops_an_answer_to_what_the_server_has_done(
    proxy: Proxy, connection: socket.socket, server: EchoServer
) -> None:
    proxy.drop_answers()
    connection.sendall(b"unanswered")
    assert read_all(connection) == b""
    assert server.said().endswith("firstunanswered")
    assert proxy.wait_for_dropped_answers() == 1
    assert ask(proxy.port, b"hello") == b"HELLO", "once only"


def test_it_drops_the_answers_to_some_requests_only(proxy: Proxy, connection: socket.socket) -> None:
    proxy.drop_answers(2, to=[b"save"])
    connection.sendall(b"read")
    assert connection.recv(100) == b"READ"
    connection.sendall(b"save")
    assert read_all(connection) == b""
    assert proxy.wait_for_dropped_answers(0) == 1
    proxy.accept()
    assert ask(proxy.port, b"save") == b"SAVE"
