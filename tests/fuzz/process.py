"""A process that runs cases of one target: `python -m tests.fuzz.process TARGET CASES SEED CORPUS FAULTS`.

With atheris the cases are guided by coverage. Without it they are changed seeds: the same changes, and no guide. The
first fault ends it, and is left in the folder of faults.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import random
import resource
import signal
import sys
from collections.abc import Callable
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.fuzz.campaign import GROWTH_MB, HANG_SECONDS, LONGEST, RSS_MB, has_atheris
from tests.fuzz.changes import WORDS, changed

WARM = 2_000
"""So many cases fill the caches. What is added after that is growth."""


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Grown(AssertionError):
    """The process takes more and more memory."""


class Watched:
    """A target whose process may not grow."""

    def __init__(self, run: Callable[[bytes], None]) -> None:
        self._run = run
        self._cases = 0
        self._warm_mb = 0.0

    def __call__(self, data: bytes) -> None:
        self._run(data)
        self._cases += 1
        if self._cases == WARM:
            self._warm_mb = peak_mb()
        elif self._cases > WARM and self._cases % 1_000 == 0 and peak_mb() - self._warm_mb > GROWTH_MB:
            raise Grown(f"{self._cases:,} cases took {peak_mb() - self._warm_mb:.0f} MB more than the first {WARM:,}")


def keep(folder: Path, data: bytes) -> Path:
    path = folder / f"crash-{sha256(data).hexdigest()[:40]}"
    path.write_bytes(data)
    return path


def _escaped(word: bytes) -> str:
    """A word as libFuzzer's dictionaries have it, which take no long ones."""
    return "".join(f"\\x{byte:02x}" for byte in word[:60])


def guided(name: str, cases: int, seed: int, corpus: Path, faults: Path) -> None:
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["locus"], exclude=["locus.testing"]):
        from tests.fuzz.targets import load

        target = load(name)
    from tests.fuzz.judge import judged

    for data in target.seeds:
        path = corpus / f"seed-{sha256(data).hexdigest()[:16]}"
        if not path.exists():
            path.write_bytes(data)
    words = corpus.with_name(f"{name}.dict")
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in WORDS if word))
    watched = Watched(lambda data: judged(target.run, data, counting=False))
    options = {
        "runs": cases,
        "seed": seed,
        "max_len": LONGEST,
        "timeout": HANG_SECONDS,
        "report_slow_units": HANG_SECONDS,
        "rss_limit_mb": RSS_MB,
        "artifact_prefix": f"{faults}/",
        "print_final_stats": 1,
        "dict": words,
    }
    atheris.Setup([name, *(f"-{option}={value}" for option, value in options.items()), str(corpus)], watched)
    atheris.Fuzz()


def unguided(name: str, cases: int, seed: int, corpus: Path, faults: Path) -> None:
    from tests.fuzz.judge import judged
    from tests.fuzz.targets import load

    target = load(name)
    known = [*target.seeds, *(path.read_bytes() for path in sorted(corpus.iterdir()))]
    chance, watched = random.Random(seed), Watched(lambda data: judged(target.run, data, counting=False))
    data = b""

    def hang(*_: object) -> None:
        keep(faults, data)
        raise TimeoutError(f"a case took longer than {HANG_SECONDS} s")

    signal.signal(signal.SIGALRM, hang)
    for number in range(cases):
        data = changed(chance, known)[:LONGEST]
        signal.alarm(HANG_SECONDS)
        try:
            watched(data)
        except BaseException:
            keep(faults, data)
            print(f"#{number + 1}")
            raise
        finally:
            signal.alarm(0)


def main() -> None:
    name, cases, seed, corpus, faults = sys.argv[1:]
    faulthandler.enable()
    logging.getLogger("locus").setLevel(logging.CRITICAL + 1)  # a million refused requests
    os.environ["LOCUS_FUZZ"] = name
    work = guided if has_atheris() else unguided
    work(name, int(cases), int(seed), Path(corpus), Path(faults))


if __name__ == "__main__":
    main()
