"""URLs and names of stores. Nothing is opened: a checkpointer connects when it is first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

from locus.memory.checkpointer import BaseCheckpointer
from locus.memory.registry import get_checkpointer
from locus.memory.runtime.url import StoreURL, flag, folder_of, path_of, refuse_url, split_options
from tests.fuzz.judge import expects

_SECRET: Final = "s3cret-word"
_OPTIONS: Final[dict[str, Callable[[str], Any]]] = {"a": str, "n": int, "f": flag, "x": float}


def run(data: bytes) -> int:
    text = data.decode(errors="surrogateescape").replace("\0", "%00")
    failed: Exception | None = None
    for read in (_taken_apart, _options, _path, _opened):
        try:
            read(text)
        except Exception as error:  # noqa: BLE001 - each of them is to have its turn
            # What a password may be part of is shown by no error.
            expects(not _holds_password(text) or _SECRET not in str(error), "an error shows a password")
            failed = failed or error
    if failed is not None:
        raise failed
    return len(text)


def _holds_password(text: str) -> bool:
    """Whether the secret stands where passwords do, and nowhere else."""
    before, at, after = text.rpartition("@")
    return bool(at) and before.endswith(_SECRET) and _SECRET not in after + before.removesuffix(_SECRET)


def _taken_apart(text: str) -> None:
    url = StoreURL(text, "this is no URL")
    expects(not _holds_password(text) or _SECRET not in repr(url), "a repr shows a password")
    url.changed(query="a=1", path="/x")
    url.options(_OPTIONS)
    _ = url.port


def _options(text: str) -> None:
    split_options(text, _OPTIONS, "no option {name}: {known}")


def _path(text: str) -> None:
    path_of(text)
    folder_of(text)
    refuse_url(text, "sqlite")


def _opened(text: str) -> None:
    with patch("locus.memory.registry._plugins", dict):  # to look for them takes longer than all the rest
        found = get_checkpointer(text)
    expects(isinstance(found, BaseCheckpointer), "no checkpointer came out")
    expects(not _holds_password(text) or _SECRET not in repr(found), "a repr shows a password")


SEEDS: Final = [
    text.encode()
    for text in (
        "memory",
        "sqlite:agents.db?durability=normal&timeout=5",
        "sqlite:///agents.db",
        "file:./dir?pretty=true",
        f"postgresql://user:{_SECRET}@one:5432,two:5433/app?pool_max=3&schema_name=x",
        f"mysql://user:{_SECRET}@localhost:3306/app?table_prefix=x_",
        f"redis://:{_SECRET}@localhost:6379/0?prefix=x&buckets=4",
        f"rediss://user:{_SECRET}@[::1]:6379/0",
        f"opensearch://user:{_SECRET}@localhost:9200/index?replicas=1",
        f"oracle://user:{_SECRET}@localhost:1521/FREEPDB1",
        "s3://bucket/prefix?region=eu-central-1&endpoint_url=http://localhost:8333",
        "oci://namespace/bucket/prefix",
        f"https://{_SECRET}@locus.example/base?timeout=3",
        "http://localhost:8080",
        "valkey://localhost/?cluster=true",
    )
]
