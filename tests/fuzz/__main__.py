"""`python -m tests.fuzz --cases 1000000 --seed 1 [--target codec]`: a long run; `--replay FILE` runs one case again."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from pathlib import Path

from tests.fuzz.campaign import Campaign, has_atheris
from tests.fuzz.targets import NAMES, load

_HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "locus-fuzz"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="how many, for all targets together")
    parser.add_argument("--seed", type=int, default=1, help="the same seed on the same corpus gives the same cases")
    parser.add_argument("--target", action="append", choices=NAMES, help="only this one; may be given again")
    parser.add_argument(
        "--corpus", type=Path, default=_HOME, help="what was worth keeping, the progress and the faults"
    )
    parser.add_argument("--replay", type=Path, help="run the case in this file once more (with one --target)")
    return parser.parse_args()


def main() -> int:
    options = _options()
    if options.replay is not None:
        return _replay(options)
    if not has_atheris():
        print("atheris is not installed: the cases are changed seeds, without coverage as a guide")
    campaign = Campaign(tuple(options.target or NAMES), options.cases, options.seed, options.corpus)
    began, before = time.monotonic(), campaign.progress().total
    for name, found, fault in campaign.run():
        print(f"{found.total:>10,} cases, {name}: {found.cases[name]:,}", flush=True)
        if fault is not None:
            print(f"  FAULT. Replay it: python -m tests.fuzz --target {name} --replay {fault}", flush=True)
    done = campaign.progress()
    print(
        f"{done.total:,} cases with seed {done.seed}, {done.total - before:,} of them in "
        f"{(time.monotonic() - began) / 60:.1f} min; {sum(map(len, done.faults.values()))} faults; "
        f"Python {platform.python_version()}, {'atheris' if has_atheris() else 'without atheris'}"
    )
    return 1 if done.faults else 0


def _replay(options: argparse.Namespace) -> int:
    from tests.fuzz.judge import judged

    for name in options.target or (options.replay.resolve().parent.name,):
        judged(load(name).run, options.replay.read_bytes())
        print(f"{name}: no fault")
    return 0


if __name__ == "__main__":
    sys.exit(main())
