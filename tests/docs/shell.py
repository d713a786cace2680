"""Checks the shell commands that the documentation shows.

A command that is cheap and local runs for real, in the current folder. One that builds, installs or downloads
is compared with the Makefile, pyproject.toml or the files of the project. COMMANDS has them all; any other
command, and any operator but `&&`, is an error.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs.serving import start_inspector, start_server
from tests.inner_pytest import NO_STRANGERS

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
INSTALLABLE = (".", PYPROJECT["project"]["name"], "hatch")

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,-]+)\])?(?:[<>=!~].*)?")
OPERATOR = re.compile(r"[();<>|&]+")
SECONDS = 60


@dataclass(frozen=True)
class Call:
    words: list[str]
    variables: dict[str, str]
    """What is set before the command: `NAME=value command`."""
    previous: "Call | None"

    def __str__(self) -> str:
        return shlex.join(self.words)


def run_shell(text: str) -> str:
    """What the commands print, as far as they are run."""
    printed = ""
    for call in parse(text):
        if call.words[0] not in COMMANDS:
            raise ValueError(f"`{call}` can't be checked; known: {', '.join(COMMANDS)}")
        printed += COMMANDS[call.words[0]](call) or ""
    return printed


def parse(text: str) -> Iterator[Call]:
    previous = None
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, "&&"]:
            if not OPERATOR.fullmatch(word):
                words.append(word)
            elif word != "&&":
                raise ValueError(f"`{word}` in `{line}`: commands can only be joined by &&")
            elif words:
                variables = leading_variables(words)
                previous = Call(words[len(variables) :], variables, previous)
                yield previous
                words = []


def leading_variables(words: list[str]) -> dict[str, str]:
    variables = {}
    for word in words[:-1]:
        match = ASSIGNMENT.fullmatch(word)
        if match is None:
            break
        variables[match[1]] = match[2]
    return variables


def demand(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def run_for_real(call: Call) -> str:
    here = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    done = subprocess.run(
        call.words,
        env={**os.environ, "PATH": here, **call.variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    demand(done.returncode == 0, f"`{call}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_python(call: Call) -> str | None:
    """Programs of the project have tests of their own; everything else runs."""
    match call.words[1:]:
        case ["-m", "pip", *arguments]:
            check_pip(Call(["pip", *arguments], call.variables, call.previous))
        case ["-m", module, *_] if module.split(".")[0] in ("benchmarks", "examples", "scripts", "tests"):
            path = ROOT / module.replace(".", "/")
            demand(path.is_dir() or path.with_suffix(".py").is_file(), f"`{call}`: no such module")
        case [script, *_] if script.startswith(("benchmarks/", "examples/", "scripts/", "tests/")):
            demand((ROOT / script).is_file(), f"`{call}`: no such file")
        case _:
            return run_for_real(call)
    return None


def check_locus(call: Call) -> str | None:
    """A server runs on behind the commands that follow; everything else runs to its end."""
    if call.words[1:2] == ["serve"] and "--help" not in call.words:
        start_server(call.words, {**os.environ, **call.variables})
        return None
    if call.words[1:2] == ["inspect"] and "--help" not in call.words:
        start_inspector(call.words, {**os.environ, **call.variables})
        return None
    return run_for_real(Call([sys.executable, "-m", *call.words], call.variables, call.previous))


def check_make(call: Call) -> None:
    for word in call.words[1:]:
        match = ASSIGNMENT.fullmatch(word)
        if match is not None:
            check_make_variable(match[1])
        else:
            known = re.search(rf"^{re.escape(word)}:", MAKEFILE, re.MULTILINE)
            demand(known is not None, f"`{call}`: the Makefile has no target {word}")
    for name in call.variables:
        check_make_variable(name)


def check_make_variable(name: str) -> None:
    known = name.startswith("LOCUS_") or f"$({name})" in MAKEFILE
    demand(known, f"the Makefile does not use {name}")


def check_pip(call: Call) -> None:
    demand(call.words[1:2] == ["install"], f"`{call}`: only `pip install` can be checked")
    requirements = [word for word in call.words[2:] if word not in ("-e", "-U", "-q", "--upgrade")]
    demand(requirements != [], f"`{call}` installs nothing")
    for requirement in requirements:
        match = REQUIREMENT.fullmatch(requirement)
        if match is None:
            raise ValueError(f"`{call}`: {requirement} is not a requirement")
        demand(match[1] in INSTALLABLE, f"`{call}`: {match[1]} is not a package of this project")
        for extra in match[2].split(",") if match[2] else []:
            demand(extra in EXTRAS, f"`{call}`: there is no extra {extra}")


def check_hatch(call: Call) -> None:
    scripts = PYPROJECT["tool"]["hatch"]["envs"]["default"]["scripts"]
    known = call.words[1:2] == ["run"] and call.words[2:] and call.words[2] in scripts
    demand(bool(known), f"`{call}`: hatch knows `hatch run` and {', '.join(scripts)}")


def check_git(call: Call) -> None:
    demand(cloned_folder(call) is not None, f"`{call}`: only `git clone URL` can be checked")


def cloned_folder(call: Call | None) -> str | None:
    match call.words if call else []:
        case ["git", "clone", url] if "://" in url or "@" in url:
            return url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
        case ["git", "clone", _, folder]:
            return folder
    return None


def check_cd(call: Call) -> None:
    """Stays where it is: what follows a clone is checked against the project itself."""
    demand(call.words[1:] == [cloned_folder(call.previous)], f"`{call}` does not follow a `git clone` of it")


def check_pytest(call: Call) -> None:
    """Collects only, and demands that something is selected."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *NO_STRANGERS, *call.words[1:]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    demand(done.returncode == 0, f"`{call}` collects nothing:\n{done.stdout}{done.stderr}")


COMMANDS: dict[str, Callable[[Call], str | None]] = {
    "cat": run_for_real,
    "cd": check_cd,
    "curl": run_for_real,
    "echo": run_for_real,
    "git": check_git,
    "hatch": check_hatch,
    "locus": check_locus,
    "ls": run_for_real,
    "make": check_make,
    "pip": check_pip,
    "pytest": check_pytest,
    "python": check_python,
    "python3": check_python,
}
