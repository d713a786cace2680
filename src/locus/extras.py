"""Optional dependencies: imported where they are used, and missed with a line that says what to install."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from locus.errors import MissingDependencyError


def require(module: str, extra: str) -> ModuleType:
    """Import `module`, or raise an error that names the extra which brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        # An installed package that fails to import something of its own is another problem than a missing one.
        if find_spec(module.partition(".")[0]) is not None:
            raise
        raise MissingDependencyError(f'{module} is not installed: pip install "locus-sdk[{extra}]"') from error
