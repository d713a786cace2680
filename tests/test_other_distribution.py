"""`locus-sdk` is imported as `locus`, too, and overwrites files of ours: what is left over is refused, not run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import locus
from locus._other_distribution import THEIRS

OURS = Path(locus.__file__).parent


def mixture(folder: Path, *, theirs: str) -> Path:
    """Our package, with one file that only the other distribution has."""
    package = folder / "locus"
    for source in OURS.rglob("*.py"):
        place = package / source.relative_to(OURS)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(source)
    (package / theirs).parent.mkdir(exist_ok=True)
    (package / theirs).touch()
    return package


def run(folder: Path, module: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path.insert(0, {str(folder)!r}); import {module}"
    return subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True)


@pytest.mark.parametrize("theirs", THEIRS)
def test_ours_installed_last(theirs: str, tmp_path: Path) -> None:
    mixture(tmp_path, theirs=theirs)
    done = run(tmp_path, "locus")
    assert done.returncode == 1
    assert "ImportError: locus-state and locus-sdk are both installed" in done.stderr
    assert "pip uninstall locus-state locus-sdk" in done.stderr


@pytest.mark.parametrize("module", ["locus.errors", "locus.memory.backends.redis", "locus.cli"])
def test_theirs_installed_last(module: str, tmp_path: Path) -> None:
    package = mixture(tmp_path, theirs=THEIRS[0])
    for name in ("__init__.py", "memory/__init__.py", "memory/backends/__init__.py"):
        (package / name).unlink()
        (package / name).touch()
    done = run(tmp_path, module)
    assert done.returncode == 1
    assert "locus-state and locus-sdk are both installed" in done.stderr


def test_without_a_mixture_nothing_is_refused(tmp_path: Path) -> None:
    package = mixture(tmp_path, theirs=THEIRS[0])
    (package / THEIRS[0]).unlink()
    assert run(tmp_path, "locus.errors").returncode == 0
