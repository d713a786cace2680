"""Ports are given out once, to whoever asks first."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import ports


@pytest.fixture(autouse=True)
def own_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ports, "_notes", lambda: tmp_path)
    return tmp_path


def test_a_port_belongs_to_a_process_until_that_ends(own_notes: Path) -> None:
    assert ports.reserve(11_000)
    assert not ports.reserve(11_000)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (own_notes / "11001").write_text(str(other.pid), encoding="ascii")
        assert not ports.reserve(11_001)
    assert ports.reserve(11_001)
    assert not ports.reserve(11_001)
    (own_notes / "11002").touch()
    assert not ports.reserve(11_002), "somebody is about to write it"


def test_a_port_that_was_given_out_is_not_given_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.free_port()
    monkeypatch.setattr(ports, "LOWEST", first)
    monkeypatch.setattr(ports, "highest", lambda: first + 1)
    with pytest.raises(RuntimeError, match="no free port"):
        ports.free_port()


def test_a_port_in_use_is_not_free() -> None:
    port = ports.free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        assert not ports.is_free(port)
    assert ports.is_free(port)
