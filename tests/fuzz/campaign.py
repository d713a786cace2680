"""Many cases of the targets, in pieces of which each is a process.

What coverage has found worth keeping is the corpus, a folder for each target outside of the repository. `progress.json`
in it says how many cases are done, so that a run that was stopped goes on where it was. A piece has a seed of its own,
made of that of the run and its number.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

from tests.fuzz.targets import SHARES

PIECE = 50_000
"""How many cases one process runs."""
LONGEST = 4_096
"""Bytes of a case."""
RSS_MB = 1_024
"""How much memory a process may have."""
GROWTH_MB = 256
"""How much a process may grow after its first cases: what a case leaves behind is a leak."""
HANG_SECONDS = 60
MOST_FAULTS = 5
"""After so many of one target, the others go on without it."""
ROOT = Path(__file__).resolve().parents[2]


def has_atheris() -> bool:
    return importlib.util.find_spec("atheris") is not None


@dataclass
class Progress:
    """How far a run has come."""

    seed: int
    cases: dict[str, int] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.cases.values())


@dataclass(frozen=True)
class Campaign:
    """A run over some targets. `cases` is their number for all targets together."""

    targets: tuple[str, ...]
    cases: int
    seed: int
    corpus: Path

    @property
    def _file(self) -> Path:
        return self.corpus / f"progress-{self.seed}.json"

    def progress(self) -> Progress:
        if not self._file.exists():
            return Progress(self.seed)
        return Progress(**json.loads(self._file.read_text()))

    def run(self) -> Iterator[tuple[str, Progress, str | None]]:
        """Run what is left: the target and the progress after each piece, and the file of a fault if there is one."""
        self.corpus.mkdir(parents=True, exist_ok=True)
        found = self.progress()
        while going := [name for name in self.targets if self._goes_on(found, name)]:
            for name in going:
                begun = found.cases.get(name, 0)
                done, fault = self._piece(name, begun, min(self.share(name) - begun, PIECE))
                found.cases[name] = begun + done
                if fault is not None:
                    found.faults.setdefault(name, []).append(fault)
                draft = self._file.with_suffix(".new")
                draft.write_text(json.dumps(asdict(found), indent=1))
                draft.replace(self._file)
                yield name, found, fault

    def share(self, name: str) -> int:
        """How many of the cases a target gets."""
        return -(-self.cases * SHARES[name] // sum(SHARES[one] for one in self.targets))

    def _goes_on(self, found: Progress, name: str) -> bool:
        return found.cases.get(name, 0) < self.share(name) and len(found.faults.get(name, ())) < MOST_FAULTS

    def _piece(self, name: str, begun: int, count: int) -> tuple[int, str | None]:
        """One process: how many cases it ran, and the file with the case of a fault."""
        folder = self.corpus / name
        folder.mkdir(exist_ok=True)
        faults = self.corpus / "faults" / name
        faults.mkdir(parents=True, exist_ok=True)
        seed = int.from_bytes(sha256(f"{self.seed} {name} {begun}".encode()).digest()[:4]) & 0x7FFFFFFF
        command = [
            sys.executable, "-m", "tests.fuzz.process", name, str(count), str(seed or 1), str(folder), str(faults),
        ]  # fmt: skip
        before = {path.name for path in faults.iterdir()}
        paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        ended = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        said = ended.stdout.decode(errors="replace")
        new = sorted({path.name for path in faults.glob("[clot]*-*")} - before)  # crashes, leaks, lack of memory, hangs
        if ended.returncode == 0 and not new:
            return count, None
        (faults / f"said-{seed}.txt").write_text(said[-20_000:])
        numbers = re.findall(r"^(?:#|stat::number_of_executed_units: *)(\d+)", said, re.MULTILINE)
        where = faults / (new[0] if new else f"said-{seed}.txt")
        return max([1, *map(int, numbers[-1:])]), str(where)
