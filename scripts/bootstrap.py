"""Builds .venv, or finds that it is there already: `python3 scripts/bootstrap.py demo|dev`.

The standard library is all it uses, and any Python from 3.7 on can run it: it looks for one that the project
supports. PYTHON=... names one, which is then taken or refused, never replaced by another.

A stamp in .venv says what was installed (which level, for which pyproject.toml, in which folder), so that the
second call only reads a few small files. An environment never goes back from dev to demo.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "bootstrap.json"
OLDEST = (3, 11)
LEVELS = {"demo": ["-e", ".[inspect]", "rich"], "dev": ["-e", ".[dev]"]}
# The base executable, because a virtual environment can't be rebuilt by its own Python.
PROBE = "import sys; print(getattr(sys, '_base_executable', sys.executable)); print(*sys.version_info[:3])"


def main(level: str) -> None:
    stamp = read_stamp()
    level = "dev" if stamp.get("level") == "dev" else level
    named = os.environ.get("PYTHON")
    python, version = find_python([named]) if named else ("", stamp.get("python", ""))
    reusable = VENV_PYTHON.exists() and stamp.get("python") == version
    if reusable and stamp == {"level": level, "project": fingerprint(), "python": version}:
        return
    started = time.monotonic()
    if not reusable:
        if not named:
            python, version = find_python([sys.executable, *newest_first(), "python3", "python"])
        say(f"creating .venv with Python {version} ({python})")
        create_venv(python)
    # Marked as unfinished, so that an interrupted installation is taken up again and never believed.
    write_stamp(level, "", version)
    say(f"installing what `{level}` needs (a minute or so, once)")
    install(LEVELS[level], quickly=level == "dev")
    write_stamp(level, fingerprint(), version)
    say(f".venv is ready after {time.monotonic() - started:.0f} s")


def read_stamp() -> dict[str, str]:
    try:
        return dict(json.loads(STAMP.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def write_stamp(level: str, project: str, python: str) -> None:
    stamp = {"level": level, "project": project, "python": python}
    STAMP.write_text(json.dumps(stamp), encoding="utf-8")


def fingerprint() -> str:
    """Covers the folder too: an editable installation that was moved or copied points at the old place."""
    return hashlib.sha256(os.fsencode(ROOT) + (ROOT / "pyproject.toml").read_bytes()).hexdigest()


def newest_first() -> list[str]:
    return [f"python3.{minor}" for minor in range(14, OLDEST[1] - 1, -1)]


def find_python(candidates: list[str]) -> tuple[str, str]:
    """The first candidate that runs and is new enough, as (executable, version)."""
    for candidate in candidates:
        if shutil.which(candidate) is None:
            continue
        probe = subprocess.run([candidate, "-c", PROBE], capture_output=True, text=True)
        if probe.returncode == 0:
            executable, numbers = probe.stdout.splitlines()
            if tuple(int(number) for number in numbers.split()) >= OLDEST:
                return executable, numbers.replace(" ", ".")
    tried = ", ".join(candidates)
    raise failure(f"no Python {OLDEST[0]}.{OLDEST[1]} or newer among: {tried}. Name one with PYTHON=...")


def create_venv(python: str) -> None:
    shutil.rmtree(VENV, ignore_errors=True)
    if subprocess.run([python, "-m", "venv", str(VENV)], capture_output=True).returncode == 0:
        return
    # Debian ships venv without ensurepip; virtualenv brings a pip of its own.
    shutil.rmtree(VENV, ignore_errors=True)
    say("this Python has no ensurepip: using virtualenv, from a temporary folder")
    if subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode != 0:
        raise failure("this Python has neither ensurepip nor pip. On Debian: apt-get install python3-venv")
    with tempfile.TemporaryDirectory() as folder:
        run([python, "-m", "pip", "install", "--disable-pip-version-check", "--target", folder, "virtualenv"])
        run([python, "-m", "virtualenv", str(VENV)], PYTHONPATH=folder)


def install(what: list[str], *, quickly: bool) -> None:
    """With pip, or with uv where that works: it installs the 200 packages of `dev` in a fifth of the time."""
    # A module is compiled when it is first imported, and most of what the clouds' packages bring never is.
    pip = [str(VENV_PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    if quickly and uses_the_usual_index():
        try:
            run([*pip, "uv"])
            uv = [str(VENV_PYTHON), "-m", "uv", "pip", "install", "--python", str(VENV_PYTHON)]
            run([*uv, *what], UV_SYSTEM_CERTS="1")  # as pip does; behind a proxy no others may do
            return
        except SystemExit:
            say("uv could not install it; now with pip")
    run([*pip, *what])


def uses_the_usual_index() -> bool:
    """Whether pip's settings name no index of their own: uv does not read them."""
    settings = subprocess.run([str(VENV_PYTHON), "-m", "pip", "config", "list"], capture_output=True, text=True)
    return not any(line.split("=")[0].endswith(".index-url") for line in settings.stdout.splitlines())


def run(command: list[str], **variables: str) -> None:
    """Runs a command, showing a short sign of life for each line it prints; all of them if it fails."""
    lines = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            show_progress(line.strip())
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)
    if process.returncode != 0:
        sys.stderr.write("".join(lines))
        raise failure(f"this failed with exit code {process.returncode}: {' '.join(command)}")


def show_progress(line: str) -> None:
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 4
        print(f"\r\033[K  {line[:width]}", end="", flush=True)
    elif line.startswith(("Collecting", "Installing", "Resolved", "Installed")):
        print(f"  {line[:100]}", flush=True)


def say(message: str) -> None:
    print(f"» {message}", flush=True)


def failure(message: str) -> SystemExit:
    return SystemExit(f"bootstrap: {message}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in LEVELS:
        raise failure(f"usage: bootstrap.py {'|'.join(LEVELS)}")
    main(sys.argv[1])
