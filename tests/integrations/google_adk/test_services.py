"""The URLs of stores, as `adk web` and its kin use them."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from google.adk.cli import service_registry
from google.adk.cli.service_registry import load_services_module
from google.adk.cli.utils.service_factory import (
    create_artifact_service_from_options,
    create_session_service_from_options,
)
from google.genai import types

from locus.integrations.google_adk import LocusArtifactService, LocusSessionService, register_services
from tests.integrations.google_adk.events import ALICE


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of its own for each test."""
    monkeypatch.setattr(service_registry, "_service_registry_instance", None)


async def test_services_by_their_urls(tmp_path: Path) -> None:
    register_services()
    url = f"locus+sqlite:{tmp_path / 'a.db'}"
    sessions = create_session_service_from_options(base_dir=tmp_path, session_service_uri=url)
    artifacts = create_artifact_service_from_options(base_dir=tmp_path, artifact_service_uri=url)
    assert isinstance(sessions, LocusSessionService)
    assert isinstance(artifacts, LocusArtifactService)
    await sessions.create_session(**ALICE, session_id="s")
    await artifacts.save_artifact(**ALICE, session_id="s", filename="a", artifact=types.Part(text="a"))
    await sessions.close()
    await artifacts.close()
    async with LocusSessionService(f"sqlite:{tmp_path / 'a.db'}") as again:
        assert await again.get_session(**ALICE, session_id="s") is not None


async def test_options_of_the_store_are_passed_on(tmp_path: Path) -> None:
    register_services()
    uri = f"locus+sqlite:{tmp_path / 'a.db'}"
    with pytest.raises(ValueError, match="nonsense"):
        create_session_service_from_options(
            base_dir=tmp_path, session_service_uri=uri, session_db_kwargs={"nonsense": 1}
        )
    made = create_session_service_from_options(
        base_dir=tmp_path, session_service_uri=uri, session_db_kwargs={"durability": "full"}
    )
    assert isinstance(made, LocusSessionService)
    await made.close()


async def test_a_password_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    register_services()
    with caplog.at_level(logging.DEBUG):
        made = create_session_service_from_options(
            base_dir=tmp_path, session_service_uri="locus+postgresql://me:s3cret@localhost:1/none"
        )
    assert isinstance(made, LocusSessionService)
    assert "s3cret" not in caplog.text + repr(made)
    await made.close()


def test_a_file_in_the_folder_of_the_agents_registers_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", ["", *sys.path])
    monkeypatch.delitem(sys.modules, "services", raising=False)
    (tmp_path / "services.py").write_text(
        "from locus.integrations.google_adk import register_services\n\nregister_services()\n"
    )
    load_services_module(str(tmp_path))
    monkeypatch.delitem(sys.modules, "services")
    made = create_artifact_service_from_options(base_dir=tmp_path, artifact_service_uri="locus+memory:")
    assert isinstance(made, LocusArtifactService)
