"""The base class for stores of other libraries that are folders."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path

from locus.errors import ConfigurationError
from locus.transfer.sources import Source


class FolderStore(Source):
    """A store of another library that is a folder with files."""

    def __init__(self, path: str) -> None:
        self._path = Path(path).expanduser().absolute()

    @property
    def name(self) -> str:
        return f"file:{self._path}"

    async def ids(self) -> Iterable[str]:
        if not self._path.is_dir():
            raise ConfigurationError(f"there is no folder {str(self._path)!r} to read from")
        return await asyncio.to_thread(lambda: [*self._ids()])

    @abstractmethod
    def _ids(self) -> Iterable[str]:
        """The ids of all threads, each once."""
