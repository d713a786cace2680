"""`python -m tests.flips --changes 10000 [--store sqlite] [--seed 1]`: the figures that the docs publish."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.flips.campaign import Figures, campaign
from tests.flips.stores import ChangedFiles, ChangedObjects, ChangedRedis, ChangedSQLite
from tests.servers.redis import RedisServer

STORES = ("file", "sqlite", "redis", "objects")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.flips", description=__doc__)
    parser.add_argument("--changes", type=int, default=10_000, help="of each store")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same changes")
    parser.add_argument("--store", action="append", choices=STORES, help="only this one; may be given again")
    parser.add_argument("--examples", type=int, default=10, help="of wrong answers to show")
    options = parser.parse_args()
    misled = False
    for name in options.store or STORES:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="locus-flips-", ignore_cleanup_errors=True) as folder:
            figures = _changed(name, Path(folder), options.changes, options.seed)
        print(f"{figures.line(name)} ({time.monotonic() - began:.0f} s)", flush=True)
        for example in figures.examples[: options.examples]:
            print(f"  {example}")
        misled |= bool(figures.misleading or figures.foreign)
    return 1 if misled else 0


def _changed(name: str, folder: Path, changes: int, seed: int) -> Figures:
    if name == "redis":
        server = RedisServer(folder)
        server.start()
        store = ChangedRedis(server.port)
        try:
            return asyncio.run(campaign(store, changes, seed))
        finally:
            store.close()
            server.stop()
    if name == "objects":
        return asyncio.run(campaign(ChangedObjects(), changes, seed))
    kind = ChangedSQLite if name == "sqlite" else ChangedFiles
    return asyncio.run(campaign(kind(folder), changes, seed))


if __name__ == "__main__":
    sys.exit(main())
