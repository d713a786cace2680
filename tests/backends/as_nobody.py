"""What a process finds that has no right to write, whoever runs the tests."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NOBODY = 65534
FAILED = 100


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may look into, which pytest's own are not."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    for folder in [made, *made.rglob("*")]:
        if folder.is_dir():
            folder.chmod(0o755)
    shutil.rmtree(made)


def as_nobody(work: Callable[[], int], *expected: type[Exception]) -> int:
    """The number that the work comes to, below 100; 100 for an expected error, and 101 for another.

    The child can import nothing, so all that the work needs has been imported before.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads, from 3.12 on
        pid = os.fork()
    if pid == 0:
        code = FAILED + 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            code = work()
        except expected:
            code = FAILED
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
