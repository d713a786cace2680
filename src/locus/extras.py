"""Late imports: optional dependencies, and names of packages that would import too much at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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


def lazy_names(package: str, modules: Mapping[str, Collection[str]]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package whose names are imported when they are first used, from these modules."""
    homes = {name: module for module, names in modules.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return __getattr__
