"""Looks for faults of an OpenSearch cluster and of the index, for `locus doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from locus.memory.backends.opensearch.client import Client, Failure
from locus.memory.model.findings import SECOND, clock, not_told
from locus.memory.model.records import Finding


def findings(client: Client) -> list[Finding]:
    results: list[Finding] = []
    before = datetime.now(UTC)
    for line in _asked(client, "_cat/health", format="json", h="epoch") or []:
        results += clock(datetime.fromtimestamp(int(line["epoch"]), UTC), before, SECOND)
    status = _asked(client, f"_cluster/health/{client.index}")
    results += [not_told("how the cluster is")] if status is None else health(status)
    indices = _asked(client, f"{client.index}/_settings", flat_settings="true")
    if indices is None:
        return [*results, not_told("how the index is set up")]
    nodes = int((status or {}).get("number_of_data_nodes", 1))
    return [*results, *(finding for index in indices.values() for finding in settings(index["settings"], nodes))]


def _asked(client: Client, path: str, **params: str) -> Any:
    """Ask the cluster; None if this user may not ask, or a managed cluster does not say."""
    try:
        return client.send("GET", path, expected=(401, 403, 404), **params)
    except Failure as failure:
        if failure.status not in (401, 403, 404):
            raise
        return None


def health(status: Mapping[str, Any]) -> list[Finding]:
    if status.get("status") == "red":
        what = "a part of the index is not there (the cluster is red): some threads can be neither read nor saved"
        return [Finding("error", what, "bring the missing node back, or restore the index from a snapshot")]
    if status.get("status") == "yellow":
        what = "a copy of the index is missing (the cluster is yellow): the loss of one more node may lose threads"
        return [Finding("warning", what, "bring the missing node back, or add one")]
    return []


def settings(index: Mapping[str, Any], nodes: int = 1) -> list[Finding]:
    """Make findings of the settings of the index, in flat form: all values are text. `nodes` could hold it."""
    results: list[Finding] = []
    if index.get("index.translog.durability", "request") != "request":
        results.append(
            Finding(
                "warning",
                "a crash of the machine may lose the saves of the last seconds: index.translog.durability is async",
                "set index.translog.durability to request",
            )
        )
    if index.get("index.blocks.read_only_allow_delete") == "true":
        results.append(
            Finding(
                "error",
                "the index takes no saves: a disk is almost full (the block read_only_allow_delete)",
                "free space or add a node; then set index.blocks.read_only_allow_delete to null",
            )
        )
    blocks = [name for name in ("read_only", "write", "read") if index.get(f"index.blocks.{name}") == "true"]
    results += [
        Finding("error", f"the index is blocked (index.blocks.{name})", f"set index.blocks.{name} to null")
        for name in blocks
    ]
    if index.get("index.number_of_replicas") == "0":
        results.append(_without_replicas(nodes))
    return results


def _without_replicas(nodes: int) -> Finding:
    what = "the index has no replicas: what a node has is lost with its disk"
    if nodes < 2:
        return Finding("note", what, "add a node and set index.number_of_replicas, or make snapshots")
    what += f", and out of reach while it is down, though the cluster has {nodes} nodes"
    return Finding("warning", what, "set index.number_of_replicas to 1, or index.auto_expand_replicas to 0-1")
