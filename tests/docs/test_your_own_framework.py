"""The integration of the page "Your own framework" keeps the laws, in a project that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import find_blocks
from tests.docs.shell import ROOT
from tests.inner_pytest import NO_STRANGERS

PAGE = ROOT / "docs" / "integrations" / "your-own.md"
PARTS = ("class Notebook(", "class LocusNotebook(", "class TestParley(")
"""What the blocks contain that make up the framework, the integration and its tests, in this order."""


def test_the_integration_of_the_page_passes_the_suite(tmp_path: Path) -> None:
    blocks = [block for block in find_blocks(PAGE) if block.language == "python"]
    parts = [next(block.text for block in blocks if part in block.text) for part in PARTS]
    (tmp_path / "test_parley.py").write_text("\n".join(parts), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nmarkers = crash: kills\n", encoding="ascii")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *NO_STRANGERS, "test_parley.py"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": "."}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n10 passed in " in done.stdout, done.stdout


def test_it_uses_the_port_alone() -> None:
    text = "\n".join(block.text for block in find_blocks(PAGE) if block.language == "python")
    lines = {line.split()[1] for line in text.splitlines() if line.startswith("from locus")}
    public = {
        "locus.errors",
        "locus.threads",
        "locus.threads.json",
        "locus.testing",
        "locus.testing.framework_sessions",
    }
    assert lines == public
