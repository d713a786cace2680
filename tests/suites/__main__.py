"""Runs a framework's own tests with our store in the place of its own. Nothing of theirs is kept here.

    make suites ARGS="langgraph"
    make suites ARGS="langgraph --store postgresql://…?table_name={name} -k time_travel"
    make suites ARGS="google-adk --checkout /path/to/a/clone"

The tests are those of the version that is installed here: they come with its source distribution, which pip fetches
into a cache; or they are in a clone of the repository, which you name. They run in a copy, which is removed
afterwards. Words that are no option of this command go to pytest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tests.suites.catalogue import SUITES, Suite

PLUGINS: Final = Path(__file__).parent / "plugins"
_TOOLS: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "locus-suites"


def command(suite: Suite, words: Sequence[str]) -> list[str]:
    """The command that runs the tests in the folder of the package."""
    chosen = ["-k", suite.only] if suite.only and "-k" not in words else []
    left_out = [f"--deselect={name}" for names in suite.left_out.values() for name in names]
    return [
        *(sys.executable, "-m", "pytest", "-q", "-ra", "-W", "ignore", "-o", "addopts=", "-p", suite.plugin),
        *(*chosen, *left_out, *suite.tests, *words),
    ]


def _tools(suite: Suite) -> list[str]:
    folder = _TOOLS / "-".join(tool.replace("==", "-") for tool in suite.tools)
    if suite.tools and not folder.exists():
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), *suite.tools]
        subprocess.run(install, check=True)
    return [str(folder)] if suite.tools else []


def _source(suite: Suite) -> Path:
    """The source distribution of the version that is installed, unpacked."""
    name = f"{suite.package}=={version(suite.package)}"
    folder = _TOOLS / name.replace("==", "-")
    if not folder.exists():
        with tempfile.TemporaryDirectory(prefix="locus-suites-") as fetched:
            options = ("--no-deps", "--no-binary", ":all:", "--dest", fetched)
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", *options, name], check=True)
            (archive,) = Path(fetched).glob("*.tar.gz")
            with tarfile.open(archive) as opened:
                opened.extractall(fetched, filter="data")
            _TOOLS.mkdir(parents=True, exist_ok=True)
            shutil.move(Path(fetched, archive.name.removesuffix(".tar.gz")), folder)
    return folder


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make suites ARGS=…", description=__doc__, allow_abbrev=False)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--checkout", type=Path, metavar="PATH", help="a clone of the framework's repository")
    parser.add_argument("--store", default="sqlite", metavar="URL", help="a URL in which {name} is new for each test")
    parser.add_argument("--server", metavar="URL", help="a server of PostgreSQL, for tests that make databases in it")
    options, more = parser.parse_known_args(words)
    suite = SUITES[options.suite]
    if options.checkout is None and not suite.has_source:
        parser.error(f"the source distribution of {suite.package} has no tests: name a clone with --checkout")
    if options.server is None and suite.needs_server:
        parser.error(f"the tests of {suite.package} need a server: --server postgresql://postgres@localhost/postgres")
    source = _source(suite) if options.checkout is None else options.checkout / suite.folder
    missing = [name for name in suite.tests if not (source / name).exists()]
    if missing:
        parser.error(f"{source} has no {missing[0]}: is it a clone of {suite.package}'s repository?")
    sys.stdout.write(f"{suite.package} {version(suite.package)} is installed; {suite.measured} was measured last\n")
    for reason, names in suite.left_out.items():
        sys.stdout.write(f"left out, because {reason}:\n  " + "\n  ".join(names) + "\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="locus-suites-") as folder:
        shutil.copytree(source / "tests", Path(folder, "tests"))
        shutil.copy(source / "pyproject.toml", folder)
        paths = [str(PLUGINS), *_tools(suite), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {**suite.variables, "PYTHONPATH": os.pathsep.join(paths), "LOCUS_SUITE_STORE": options.store}
        if options.server is not None:
            variables["LOCUS_SUITE_SERVER"] = options.server
        return subprocess.run(command(suite, more), cwd=folder, env=os.environ | variables).returncode


if __name__ == "__main__":
    sys.exit(main())
