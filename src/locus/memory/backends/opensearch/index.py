"""The index: the first handle creates it, and every handle checks it before use.

Its name is an alias. Every write demands an alias, so a write after the index was deleted is an error: it never
creates the index again, with a mapping that OpenSearch would guess. A program that may not create indices can use one
that somebody else created under the name itself.
"""

from __future__ import annotations

from typing import Any

from locus.errors import ConfigurationError
from locus.memory.backends.opensearch.client import BUSY, Client, Failure
from locus.memory.backends.opensearch.schema import FORMAT, MAPPING, index_settings
from locus.memory.model.codec import encode_trusted
from locus.memory.model.formats import check_format, oldest


def prepare(client: Client, shards: int, replicas: int | None, *, reading: bool = False) -> bool:
    """Create the index unless it exists, and check that Locus made it. Return whether its name is an alias.

    An older format is raised, unless the index is only read. The documents stay as they are.
    """
    indices = mappings(client)
    if indices is None:
        _create(client, shards, replicas)
        indices = mappings(client)
    if indices is None:
        raise ConfigurationError(
            f"index {client.index}-v1 is there, and nothing is called {client.index!r}: add that alias, or remove it"
        )
    if len(indices) != 1:
        raise ConfigurationError(f"{client.index!r} stands for several indices: {', '.join(sorted(indices))}")
    ((name, about),) = indices.items()
    if _checked_format(client.index, about.get("mappings", {}), reading=reading) < FORMAT and not reading:
        _raise_format(client)
    _wait_for_shards(client)
    return bool(name != client.index)


def found_format(client: Client) -> int:
    """The format of the index; 0 if there is none."""
    found = (mappings(client) or {}).values()
    return max((_checked_format(client.index, about.get("mappings", {}), reading=True) for about in found), default=0)


def exists(client: Client) -> bool:
    """Tell whether an index or an alias has that name."""
    return mappings(client) is not None


def _wait_for_shards(client: Client) -> None:
    """Wait until the shards are ready. If another process has just created the index, they are not at once."""
    for attempt in range(9):
        try:
            client.search({"size": 0})
        except Failure as failure:
            if failure.status != 503 or attempt == 8:
                raise
            BUSY.block(attempt)
        else:
            return


def mappings(client: Client) -> dict[str, Any] | None:
    """The mapping of each index that the name stands for; None if there is none."""
    try:
        found: dict[str, Any] = client.send("GET", f"{client.index}/_mapping", expected=(404,))
    except Failure as failure:
        if failure.status == 404:
            return None
        raise
    return found


def _create(client: Client, shards: int, replicas: int | None) -> None:
    settings = index_settings(shards, replicas)
    body = {
        "settings": {**settings, "replication.type": "DOCUMENT"},
        "mappings": MAPPING,
        "aliases": {client.index: {}},
    }
    try:
        _put(client, body)
    except Failure as failure:
        # Before 2.7 there was no other kind of replication, and no setting for it.
        if "replication.type" not in failure.reason:
            raise
        _put(client, {**body, "settings": settings})


def _put(client: Client, body: dict[str, Any]) -> None:
    try:
        client.send("PUT", f"{client.index}-v1", body, expected=(400,))
    except Failure as failure:
        if failure.kind != "resource_already_exists_exception":
            raise


def _checked_format(index: str, mapping: dict[str, Any], *, reading: bool) -> int:
    """Read the format of the index. A newer one that this version cannot use is refused."""
    about = mapping.get("_meta", {})
    version = about.get("locus_format")
    if not isinstance(version, int):
        raise ConfigurationError(f"the index {index!r} was not made by Locus: choose another index_name")
    check_format(version, FORMAT, about.get(oldest(reading)), f"the index {index!r} has")
    return version


def _raise_format(client: Client) -> None:
    body = {"_meta": MAPPING["_meta"]}
    try:
        client.send("PUT", f"{client.index}/_mapping", body)
    except Failure as failure:
        if failure.status not in (401, 403):
            raise
        raise ConfigurationError(
            f"this user may not change the mapping of {client.index!r}, which has an older format: have somebody send "
            f"PUT {client.index}/_mapping {encode_trusted(body)}"
        ) from failure
