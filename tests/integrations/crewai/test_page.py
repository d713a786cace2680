"""The page about CrewAI does what it says."""

from __future__ import annotations

from pathlib import Path

from tests.docs.blocks import run_document
from tests.docs.pages import WITH_CREWAI
from tests.versions.declared import ROOT


def test_the_page_about_crewai(tmp_path: Path) -> None:
    assert run_document(ROOT / WITH_CREWAI, tmp_path) > 3
