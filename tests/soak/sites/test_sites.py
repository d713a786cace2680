"""Every site has what a campaign asks of it, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.soak.sites import SITES


@pytest.mark.redis("sites")
@pytest.mark.parametrize("name", ["sqlite", "file", "redis"])
async def test_a_site_is_started_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    site = SITES[name](tmp_path / "site")
    assert site.name == name
    await site.start()
    try:
        assert site.versions()
        assert site.url()
        assert site.direct_url()
        names = [fault.name for fault in site.faults()]
        assert len(names) == len(set(names)) > 0
    finally:
        await site.stop()
    # The watchdog of the servers may have been started: it ends with this process.
    left = {child.pid for child in psutil.Process().children(recursive=True) if "watchdog" not in str(child.cmdline())}
    assert left <= before
    assert not (tmp_path / "site" / "disk").is_mount()


@pytest.mark.parametrize("name", SITES)
def test_a_site_is_made_without_being_started(name: str, tmp_path: Path) -> None:
    assert SITES[name](tmp_path).name == name
