"""Finds a Java on the machine. As root on Debian it is installed if there is none.

A Java from a Python package would not do: those leave out languages that OpenSearch looks for when it starts.
"""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.servers.errors import ServerError
from tests.servers.install import debian_package

PACKAGE = "default-jre-headless"


@cache
def find_java(versions: range) -> tuple[Path, int]:
    """A Java of one of these versions, and its version."""
    found = suitable_java(versions)
    if found is None:
        needed = f"Java {versions[0]} to {versions[-1]} is needed, and is neither in JAVA_HOME nor on PATH"
        try:
            debian_package(PACKAGE)
        except ServerError as error:
            raise ServerError(f"{needed}; {error}") from error
        found = suitable_java(versions)
        if found is None:
            raise ServerError(f"{needed}, also after the installation of {PACKAGE}")
    return found


def suitable_java(versions: range) -> tuple[Path, int] | None:
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = [Path(home) / "bin" / "java"] if home else []
    candidates += [Path(on_path)] if on_path else []
    candidates += sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    for java in candidates:
        version = java_version(java)
        if version in versions:
            return java, version
    return None


def java_version(java: Path) -> int:
    """The major version, or 0 if this is none."""
    if not java.is_file():
        return 0
    told = subprocess.run([str(java), "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stderr
    match = re.search(r'version "(\d+)', told)
    return int(match[1]) if match else 0
