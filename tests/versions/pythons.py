"""Newer Pythons than the one that runs the tests: the machine's own, or those of Debian's unstable distribution.

The latter run with the C library that they came with, whatever the machine's is: a small script in their place calls
their loader, and environments link to the script.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.servers.install import cache, from_debian, installed

NEWER = ("3.13", "3.14")


def newer_python(version: str) -> Path:
    return python_of_the_machine(version) or python_from_debian(version)


def python_of_the_machine(version: str) -> Path | None:
    """One that has all that a virtual environment needs; a name that leads nowhere, as pyenv has them, is none."""
    found = shutil.which(f"python{version}")
    if found is None:
        return None
    probe = "import sys, sqlite3, ssl; print(sys.executable)"
    asked = subprocess.run([found, "-c", probe], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return Path(asked.stdout.strip()) if asked.returncode == 0 else None


def python_from_debian(version: str) -> Path:
    name = f"python{version}-debian"

    def build(part: Path) -> None:
        from_debian(f"python{version}", part)
        program = part / "root" / "usr" / "bin" / f"python{version}"
        real = program.rename(program.with_name(f"{program.name}.real"))
        (loader,) = (part / "root" / "usr").glob("lib/*-linux-gnu/ld-linux-*.so.*")
        at = {path: str(cache() / name / path.relative_to(part)) for path in (loader, loader.parent, real)}
        program.write_text(
            f'#!/bin/sh\nexec "{at[loader]}" --library-path "{at[loader.parent]}" --argv0 "$0" "{at[real]}" "$@"\n',
            encoding="utf-8",
        )
        program.chmod(0o755)

    return installed(name, build) / "root" / "usr" / "bin" / f"python{version}"
