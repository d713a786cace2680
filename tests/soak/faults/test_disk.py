"""The disk is really full, or really takes no change; afterwards it does again."""

from __future__ import annotations

import asyncio
import errno
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from locus.errors import BackendUnavailableError
from tests.soak.faults.conversing import conversing, greeting, opened
from tests.soak.faults.disk import DiskFull, DiskReadOnly, FilesImmutable
from tests.soak.faults.during import During
from tests.soak.faults.harm import Duration, Harm
from tests.soak.sites.base import Strike
from tests.soak.sites.embedded import EmbeddedSite, FileSite, SQLiteSite

ROOT = Path(__file__).resolve().parents[3]


def refusal_of_the_disk(site: EmbeddedSite) -> int | None:
    """The number of the error that a new file gets."""
    try:
        with (site.disk.place / "new").open("wb", buffering=0) as file:
            file.write(bytes(10_000))
    except OSError as error:
        return error.errno
    return None


def is_refused(site: EmbeddedSite) -> bool:
    """Whether a save fails, and says so."""

    async def save() -> None:
        async with opened(site.url()) as checkpointer:
            for number in range(20):
                await checkpointer.save(greeting("x" * 100_000), f"refused {number}")

    with pytest.raises(BackendUnavailableError):
        asyncio.run(save())
    return True


async def struck(site: EmbeddedSite, harm: Callable[[Duration], Harm], look: Callable[[], object]) -> list[object]:
    """What was seen in the middle of it. A client that saves meanwhile loses nothing that it was told."""
    during = During(look)
    async with conversing(site.url()) as client:
        assert await Strike(site, harm(during)).strike(random.Random(1)) == 1
        known = len(client.acknowledged)
        async with asyncio.timeout(60):
            while len(client.acknowledged) <= known:  # noqa: ASYNC110 - the client says nothing
                await asyncio.sleep(0.005)
    await client.check(site.direct_url())
    return during.seen


async def test_a_full_disk_refuses(disk_site: EmbeddedSite) -> None:
    disk = disk_site.disk
    seen = await struck(
        disk_site,
        lambda lasting: DiskFull(disk, lasting),
        lambda: (refusal_of_the_disk(disk_site), is_refused(disk_site)),
    )
    assert seen == [(errno.ENOSPC, True)]
    assert disk.free_bytes() > 1 << 20


async def test_a_disk_that_is_read_only_refuses(file_site: FileSite) -> None:
    if not file_site.disk.is_mounted():
        pytest.skip("a disk of its own is not allowed here")
    seen = await struck(
        file_site,
        lambda lasting: DiskReadOnly(file_site.disk, lasting),
        lambda: (refusal_of_the_disk(file_site), is_refused(file_site)),
    )
    assert seen == [(errno.EROFS, True)]


async def test_immutable_files_refuse(sqlite_site: SQLiteSite) -> None:
    if not sqlite_site.disk.is_mounted():
        pytest.skip("a disk of its own is not allowed here")
    seen = await struck(
        sqlite_site, lambda lasting: FilesImmutable(sqlite_site.files, lasting), lambda: is_refused(sqlite_site)
    )
    assert seen == [True]


async def test_a_disk_in_use_is_not_made_read_only(file_site: FileSite) -> None:
    """The system refuses, and nothing is counted."""
    disk = file_site.disk
    if not disk.is_mounted():
        pytest.skip("a disk of its own is not allowed here")
    with (disk.place / "open").open("wb"):
        assert not disk.make_read_only(0.05)
    assert refusal_of_the_disk(file_site) is None


def test_the_disk_of_a_killed_process_is_unmounted(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    program = (
        "import os, signal; from pathlib import Path; from tests.soak.disk import Disk;"
        f" disk = Disk(Path({str(place)!r}), 16); disk.mount(); print(disk.is_mounted(), flush=True);"
        " os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    if "ServerError" in done.stderr:
        pytest.skip("a disk of its own is not allowed here")
    assert done.stdout == "True\n", done.stderr
    end = time.monotonic() + 30
    while place.is_mount():
        assert time.monotonic() < end
        time.sleep(0.01)
