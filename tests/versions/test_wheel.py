"""The wheel, in an environment that has nothing else: the README and the quick start can be followed with it."""

from __future__ import annotations

import os
import subprocess
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest
from markdown_it import MarkdownIt

from tests.docs.blocks import Block, compare, find_blocks
from tests.servers.install import python_package
from tests.versions.declared import PROJECT, ROOT
from tests.versions.environments import THIS_PYTHON, Environment, settings

# The first run downloads what it needs; one process builds the wheel for all.
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("wheel")]

OTHER = "locus-sdk==3.0.1"
RUNNER = Path(__file__).with_name("smoke") / "page.py"


def uv(*arguments: str) -> None:
    command = [str(python_package("uv") / "bin" / "uv"), *arguments]
    done = subprocess.run(command, env={**os.environ, **settings()}, capture_output=True, text=True)
    assert done.returncode == 0, f"uv {' '.join(arguments)}:\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    uv(
        "build",
        "--quiet",
        "--wheel",
        "--no-python-downloads",
        "--python",
        str(THIS_PYTHON),
        "-o",
        str(folder),
        str(ROOT),
    )
    (built,) = folder.glob("*.whl")
    return built


def installed(folder: Path, *requirements: str) -> Environment:
    """A new environment in which these were installed, one after another."""
    uv("venv", "--quiet", "--no-python-downloads", "--python", str(THIS_PYTHON), str(folder))
    made = Environment(folder)
    for requirement in requirements:
        uv("pip", "install", "--quiet", "--python", str(made.python), requirement)
    return made


def run(program: Path | str, *arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A program, with nothing of this project on its path."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(program), *arguments]
    return subprocess.run(command, cwd=cwd, env=variables, input=stdin, capture_output=True, text=True)


def follow(page: Path, made: Environment, folder: Path) -> None:
    """Run the page's Python, with a new process for each `python fresh`, and compare what it shows."""
    blocks = [block for block in find_blocks(page) if block.language in ("python", "text")]
    programs: list[list[Block]] = [[]]
    for block in blocks:
        if "fresh" in block.options:
            programs.append([])
        programs[-1].append(block)
    for program in programs:
        sources = [block.text for block in program if block.language == "python"]
        done = run(made.python, str(RUNNER), cwd=folder, stdin="\0".join(sources))
        assert done.returncode == 0, f"{page}:\n{done.stdout}{done.stderr}"
        printed = iter(done.stdout.split("\0"))
        last = ""
        for block in program:
            if block.language == "python":
                last = next(printed)
            else:
                compare(block.text, last)


@pytest.fixture(scope="module")
def made(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return installed(tmp_path_factory.mktemp("environment") / "venv", str(wheel))


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_a_page_can_be_followed(page: str, made: Environment, tmp_path: Path) -> None:
    follow(ROOT / page, made, tmp_path)


def test_the_command_is_there(made: Environment, tmp_path: Path) -> None:
    done = run(made.folder / "bin" / "locus", "--version", cwd=tmp_path)
    assert done.stdout == f"locus {PROJECT['version']}\n", done.stderr


def test_the_page_on_the_index_has_no_relative_links(wheel: Path) -> None:
    page = metadata(wheel).get_payload()
    assert isinstance(page, str)
    assert "](docs/" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "| PostgreSQL | `postgresql://user@host/agents` |" in page
    tokens = MarkdownIt().enable("table").parse(page)
    targets = [part.attrGet("href") or part.attrGet("src") for token in tokens for part in token.children or []]
    assert [target for target in targets if target] == []


def test_the_metadata_name_no_address(wheel: Path) -> None:
    assert metadata(wheel).get_all("Project-URL") is None


def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


@pytest.mark.parametrize("last", ["locus-state", "locus-sdk"])
def test_it_refuses_to_share_an_environment(last: str, wheel: Path, tmp_path: Path) -> None:
    order = [OTHER, str(wheel)] if last == "locus-state" else [str(wheel), OTHER]
    made = installed(tmp_path / "venv", *order)
    module = "locus" if last == "locus-state" else "locus.errors"
    for done in (
        run(made.python, "-c", f"import {module}", cwd=tmp_path),
        run(made.folder / "bin" / "locus", "--version", cwd=tmp_path),
    ):
        assert done.returncode == 1
        assert "ImportError: locus-state and locus-sdk are both installed" in done.stderr
