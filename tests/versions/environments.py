"""Environments with the lowest versions that are declared, or with the newest; each is built once.

They are in the cache of the servers, under a name with a digest of what was asked for. Locus is not installed in them,
but imported from `src`, so that an environment serves until the requirements change.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.install import cache, installed, python_package, run
from tests.versions.declared import ROOT

FROM_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
"""Where packages come from is a setting of the machine, and pip knows it."""

THIS_PYTHON = Path(getattr(sys, "_base_executable", sys.executable))
"""That of the machine, not of .venv: environments serve all copies of the project."""

DESCRIBE = (
    "import json; from importlib.metadata import distributions as all_;"
    "print(json.dumps([[d.metadata['Name'], d.version, d.requires or []] for d in all_()]))"
)


@dataclass(frozen=True)
class Environment:
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def packages(self) -> list[tuple[str, str, list[str]]]:
        """The name, the version and the requirements of each installed package."""
        return [tuple(found) for found in json.loads(self.run("-c", DESCRIBE))]

    def run(self, *arguments: str, cwd: Path = ROOT, **variables: str) -> str:
        """What a program prints. One that fails fails the test, with all that it has said."""
        done = subprocess.run(
            [self.python, *arguments],
            cwd=cwd,
            env=self.variables(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        assert done.returncode == 0, f"{' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def variables(self, **variables: str) -> dict[str, str]:
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        return {**os.environ, "PYTHONPATH": path, **variables}


def check_contract(made: Environment, folder: Path) -> None:
    """The quick part of the contract, with nothing of this project's settings; warnings are errors."""
    settings = folder / "pytest.ini"
    settings.write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
        "markers = crash: kills processes\n",
        encoding="ascii",
    )
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-c", str(settings), "--basetemp", str(folder / "tmp")]
    made.run("-m", "pytest", *options, str(ROOT / "tests" / "versions" / "smoke" / "contract.py"))


def environment(requirements: list[str], python: Path = THIS_PYTHON, *, lowest: bool) -> Environment:
    """One that has what these requirements need: in the lowest versions that they name, or in the newest."""
    asked = {"requirements": sorted(requirements), "python": version_of(python), "machine": platform.machine()}
    text = json.dumps(asked | {"lowest": lowest, "built by": str(python)}, sort_keys=True)
    name = f"environment-{hashlib.sha256(text.encode()).hexdigest()[:20]}"
    return Environment(installed(name, lambda part: build(part, requirements, python, lowest)))


def version_of(python: Path) -> str:
    command = [str(python), "-c", "import platform; print(platform.python_version())"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def build(part: Path, requirements: list[str], python: Path, lowest: bool) -> None:
    uv = str(python_package("uv") / "bin" / "uv")
    run(uv, "venv", "--quiet", "--clear", "--relocatable", "--no-python-downloads", "--python", str(python), str(part))
    resolution = "lowest-direct" if lowest else "highest"
    command = [uv, "pip", "install", "--quiet", "--python", str(part / "bin" / "python"), "--resolution", resolution]
    run(*command, *requirements, **settings())
    part.chmod(0o755)


def settings() -> dict[str, str]:
    """uv asks where pip asks, and takes the best version from all of these places, as pip does."""
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_CACHE_DIR": str(cache() / "uv"), "UV_NO_CONFIG": "1"}
    for name, value in pip_settings().items():
        if name in FROM_PIP:
            found[FROM_PIP[name]] = ",".join(value.split()) if name == "find-links" else value
    return {name: value for name, value in found.items() if name not in os.environ}


def pip_settings() -> dict[str, str]:
    """By its last word only: `global`, `install` and the variables of the environment, each over those before it."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = {}
    order = ("global.", "install.", ":env:.")
    lines = [line.partition("=") for line in listed.splitlines()]
    for prefix in order:
        for name, _, value in lines:
            if name.startswith(prefix):
                said: Any = ast.literal_eval(value)
                found[name.removeprefix(prefix)] = str(said)
    return found
