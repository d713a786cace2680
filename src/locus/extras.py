"""Late imports: optional dependencies, and names of packages that would import too much at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from locus.errors import MissingDependencyError


def require(module: str, extra: str) -> ModuleType:
    """Import `module`, or raise an error that names the extra to install."""
    try:
        return import_module(module)
    except ImportError as error:
        # A package that is installed, but fails in an import of its own, must not be reported as missing.
        if find_spec(module.partition(".")[0]) is not None:
            raise
        raise MissingDependencyError(f'{module} is not installed: pip install "locus-state[{extra}]"') from error


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package whose names are imported from their modules when they are first used."""

    def __getattr__(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home}"), name)

    return __getattr__
