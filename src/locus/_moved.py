"""Import paths that were documented once and have moved. They work for one more release, with a `DeprecationWarning`.

Delete this module, and the line in `locus/__init__.py` that installs it, with the release after 0.2.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

HOMES = {
    "locus.memory.backends.object_engine": "locus.memory.backends.objects.engine",
    "locus.memory.backends.oracle_sync": "locus.memory.backends.oracle",
    "locus.memory.backends.oracle_versioned": "locus.memory.backends.oracle",
    "locus.memory.codec": "locus.memory.model.codec",
    "locus.memory.keys": "locus.memory.model.ids",
    "locus.memory.matching": "locus.memory.model.matching",
    "locus.memory.records": "locus.memory.model.records",
    "locus.memory.sync_saver": "locus.memory.sync",
    "locus.memory.tables": "locus.memory.model.table",
    "locus.memory.thread_checkpointer": "locus.memory.checkpointer",
    "locus.memory.threads": "locus.memory.store",
    "locus.memory.worker": "locus.memory.runtime.worker",
    "locus.moving": "locus.transfer",
    "locus.testing.durable": "locus.testing.contract",
    "locus.testing.laws.metadata": "locus.testing.laws.search.metadata",
}
"""Modules, and where what was in them is now."""

NAMES = {"ThreadCheckpointer": "Checkpointer", "Threads": "CheckpointStore"}
"""Names that have changed as well."""


class Finder(MetaPathFinder, Loader):
    """Finds the modules of `HOMES`. It is asked only for what nobody else finds."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in HOMES else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__

        def moved(attribute: str) -> Any:
            if attribute.startswith("__"):
                raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
            home, now = HOMES[name], NAMES.get(attribute, attribute)
            found = getattr(import_module(home), now)
            warnings.warn(f"{name}.{attribute} is {home}.{now} now", DeprecationWarning, stacklevel=2)
            return found

        module.__dict__["__getattr__"] = moved


def install() -> None:
    sys.meta_path.append(Finder())
