"""Which browser the tests open, and what they say if there is none."""

import shutil
from pathlib import Path

import pytest

from tests.servers import chromium
from tests.servers.chromium import find_chromium
from tests.servers.errors import ServerError


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCUS_SERVERS_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(chromium.VARIABLE, raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)


def test_the_one_that_is_named_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "chrome"
    binary.touch()
    monkeypatch.setenv(chromium.VARIABLE, str(binary))
    assert find_chromium().binary == binary


def test_a_name_of_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(chromium.VARIABLE, str(tmp_path / "nothing"))
    with pytest.raises(ServerError, match=r"LOCUS_CHROMIUM names .*nothing, and there is no such file"):
        find_chromium()


def test_without_any_it_is_said_what_to_do() -> None:
    with pytest.raises(
        ServerError, match="install chromium, or name its binary with LOCUS_CHROMIUM; on Debian: apt-get"
    ):
        find_chromium()


def test_an_unpacked_one_gets_its_libraries_and_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unpacked(part: Path, *packages: str) -> None:
        assert packages[0] == "chromium"
        libraries = part / "usr" / "lib" / "x86_64-linux-gnu"
        libraries.mkdir(parents=True)
        (libraries / "libnss3.so").touch()

    monkeypatch.setattr(chromium, "unpacked_whole", unpacked)
    folder = tmp_path / "cache" / "chromium-debian"
    for _ in range(2):
        found = find_chromium()
        assert found.binary == folder / "usr" / "lib" / "chromium" / "chromium"
        assert found.environment["LD_LIBRARY_PATH"] == str(folder / "usr" / "lib" / "x86_64-linux-gnu")
        fonts = Path(str(found.environment["FONTCONFIG_FILE"]))
        assert f"<dir>{folder}/usr/share/fonts</dir>" in fonts.read_text(encoding="utf-8")
