"""What several unit tests need: comparing values to the last bit, and running a script of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def exact(value: Any) -> Any:
    """Something that is equal only for values of the same types, the same key order aside, and the same bits."""
    if isinstance(value, dict):
        return ("dict", {key: exact(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return ("list", [exact(item) for item in value])
    if isinstance(value, float):
        return ("float", value.hex())
    return (type(value).__name__, value)


def run_script(code: str) -> str:
    """What a fresh interpreter prints for this code; it must end without an error."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
