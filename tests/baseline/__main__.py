"""`python -m tests.baseline [FILE]`: the tests that are collected now become the baseline.

With a file, which a run of the tests has written because `LOCUS_BASELINE_KILLS` named it, its figures do, too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.baseline.collected import collected
from tests.baseline.recorded import KILLS, TESTS, Kills, tests_text


def main(arguments: list[str]) -> None:
    TESTS.write_text(tests_text(collected()), encoding="utf-8")
    for notes in arguments:
        kills: Kills = {}
        for line in sorted(Path(notes).read_text(encoding="utf-8").splitlines()):
            test_class, step, numbers = json.loads(line)
            kills.setdefault(test_class, {})[step] = numbers
        KILLS.write_text(json.dumps(kills, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
