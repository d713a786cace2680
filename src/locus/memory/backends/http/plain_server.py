"""The dialect that any server of checkpoints can speak: four requests, and whole states.

    POST   /threads/{thread_id}/checkpoints                    checkpoint_id, thread_id, created_at, state, metadata
    GET    /threads/{thread_id}/checkpoints/{checkpoint_id}    the state, bare or under "state"
    GET    /threads/{thread_id}/checkpoints?limit=10           newest first: ids or objects, bare, or under
                                                               "checkpoints" or "data"
    DELETE /threads/{thread_id}/checkpoints/{checkpoint_id}

Such a server has no namespaces, lineage, pending writes, lists of threads or search. A condition (`if_latest`) is
checked before the save, not in one step with it. Checkpoints have no numbers; where one is needed, it is counted from
the oldest that is listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from locus.errors import CapabilityError, CorruptCheckpointError
from locus.memory.backends.http.client import (
    HTTPClient,
    HTTPUnavailableError,
    Response,
    is_from_locus_server,
    raise_error,
)
from locus.memory.engine import CheckpointerCapabilities
from locus.memory.model.codec import EXACT, Dialect, canonical, decode, encode, encode_trusted
from locus.memory.model.manifest import by_branch
from locus.memory.model.payloads import payload_text
from locus.memory.model.records import (
    ANY,
    DEFAULT_NAMESPACE,
    Commit,
    Entry,
    Outcome,
    Stored,
    Unset,
    Verdict,
)

NO_LIMIT: Final = 1_000_000
_UNKNOWN_TIME: Final = datetime.fromtimestamp(0, UTC)
_ENVELOPE_FIELDS = frozenset({"checkpoint_id", "thread_id", "created_at", "metadata", "id", "data"})
_LIST_FIELDS = ("checkpoints", "data", "items")


def plain_segment(value: str) -> str:
    """Escape an id for a segment of a path: everything that could be taken for something else."""
    return quote(value, safe="") if value.strip(".") else value.replace(".", "%2E")


class PlainServer:
    """A server that is no Locus server."""

    capabilities = CheckpointerCapabilities(persistent_checkpoint_ids=True)
    keeps_writes = False
    keeps_runs = False
    dialect: Dialect = EXACT

    def __init__(self, client: HTTPClient) -> None:
        self._client = client
        self.became_locus_server = False

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: str | None = None,
        *,
        retry: bool = True,
    ) -> Response | None:
        """Send a request, and return the response; None for 404."""
        sent = None if body is None else body.encode()
        response = await self._client.request(method, path, query, sent, retry=retry)
        self.became_locus_server = self.became_locus_server or is_from_locus_server(response)
        if response.status_code == 404:
            return None
        if not response.is_success and response.status_code != 409:
            raise_error(response)
        return response

    async def commit(self, commit: Commit) -> Outcome:
        self._check(commit)
        if not isinstance(commit.if_latest, Unset):
            latest = await self._latest_id(commit.thread_id)
            if latest != commit.if_latest:
                return Outcome(Verdict.CONFLICT, latest=latest)
        entry = commit.entry(Outcome(Verdict.COMMITTED))
        runs = by_branch((*commit.runs, *commit.values))
        state = payload_text(Stored(entry, commit.head, commit.manifest, runs))
        names = {"checkpoint_id": commit.checkpoint_id, "thread_id": commit.thread_id}
        body = (
            f'{encode_trusted(names)[:-1]},"created_at":"{commit.created_at.isoformat()}",'
            f'"state":{state},"metadata":{commit.metadata}}}'
        )
        path = f"/threads/{plain_segment(commit.thread_id)}/checkpoints"
        response = await self._ask("POST", path, body=body)
        if response is None:
            raise HTTPUnavailableError(
                f"{self._client.config.address} has no place for checkpoints: it answered 404 to a save"
            )
        if response.status_code == 409 and not await self._is_kept(commit, state):
            raise_error(response)
        return Outcome(Verdict.COMMITTED)

    @staticmethod
    def _check(commit: Commit) -> None:
        if commit.namespace != DEFAULT_NAMESPACE:
            raise CapabilityError(f"this server has no namespaces, and cannot keep {commit.namespace!r}")
        if commit.parent_required and commit.parent_id is not ANY and commit.parent_id is not None:
            raise CapabilityError("this server keeps no lineage: leave out `parent`")
        if commit.expires_at is not None:
            raise CapabilityError("this server lets no thread expire: leave out ttl_seconds")

    async def _is_kept(self, commit: Commit, state: str) -> bool:
        """Tell whether a save that was refused as a duplicate is stored already: then it was sent twice."""
        there = await self.read(commit.thread_id, commit.namespace, commit.checkpoint_id)
        return there is not None and canonical(decode(there.head)) == canonical(decode(state))

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        if namespace != DEFAULT_NAMESPACE:
            return None
        wanted = checkpoint_id if checkpoint_id is not None else await self._latest_id(thread_id)
        if wanted is None:
            return None
        path = f"/threads/{plain_segment(thread_id)}/checkpoints/{plain_segment(wanted)}"
        response = await self._ask("GET", path)
        if response is None:
            return None
        data = response.json()
        if not isinstance(data, dict):
            raise CorruptCheckpointError("the server's checkpoint is no object")
        wrapped = isinstance(data.get("state"), dict) and (len(data) == 1 or not _ENVELOPE_FIELDS.isdisjoint(data))
        about = data if wrapped else {}
        return Stored(_entry(thread_id, about, wanted), encode(data["state"] if wrapped else data), "[]")

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        """Read an entry with its number, for which the whole list is needed."""
        if namespace != DEFAULT_NAMESPACE:
            return None
        listed = await self._listed(thread_id, NO_LIMIT)
        for index, entry in enumerate(listed):
            if checkpoint_id in (None, entry.checkpoint_id):
                stored = await self.read(thread_id, namespace, entry.checkpoint_id)
                metadata = stored.entry.metadata if stored and entry.metadata == "{}" else entry.metadata
                return replace(entry, seq=len(listed) - index, metadata=metadata)
        stored = await self.read(thread_id, namespace, checkpoint_id) if checkpoint_id is not None else None
        return stored.entry if stored else None

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        if namespace not in (None, DEFAULT_NAMESPACE):
            return []
        if before_seq is None:
            return (await self._listed(thread_id, NO_LIMIT if limit is None else limit))[:limit]
        listed = await self._listed(thread_id, NO_LIMIT)
        numbered = [replace(entry, seq=len(listed) - index) for index, entry in enumerate(listed)]
        return [entry for entry in numbered if entry.seq < before_seq][:limit]

    async def _latest_id(self, thread_id: str) -> str | None:
        return next((entry.checkpoint_id for entry in await self._listed(thread_id, 1)), None)

    async def _listed(self, thread_id: str, limit: int) -> list[Entry]:
        if limit == 0:
            return []
        response = await self._ask("GET", f"/threads/{plain_segment(thread_id)}/checkpoints", {"limit": limit})
        data = response.json() if response is not None else []
        if isinstance(data, dict):
            data = next((data[name] for name in _LIST_FIELDS if name in data), None)
        if not isinstance(data, list):
            raise HTTPUnavailableError("the server's list of checkpoints cannot be read: it is no list")
        return [_entry(thread_id, item if isinstance(item, dict) else {"checkpoint_id": item}) for item in data]

    async def delete(self, thread_id: str, namespace: str | None, seqs: Mapping[int, str] | None) -> int:
        """Delete the oldest checkpoints first, so that a failure leaves the newest."""
        if namespace not in (None, DEFAULT_NAMESPACE):
            return 0
        if seqs is not None:
            doomed = list(seqs.values())
        else:
            doomed = [entry.checkpoint_id for entry in reversed(await self._listed(thread_id, NO_LIMIT))]
        deleted = 0
        for checkpoint_id in doomed:
            path = f"/threads/{plain_segment(thread_id)}/checkpoints/{plain_segment(checkpoint_id)}"
            deleted += await self._ask("DELETE", path, retry=False) is not None
        return deleted


def _entry(thread_id: str, data: Mapping[str, Any], checkpoint_id: str | None = None) -> Entry:
    name = checkpoint_id if checkpoint_id is not None else data.get("checkpoint_id", data.get("id"))
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise HTTPUnavailableError("the server's list of checkpoints cannot be read: one has no id")
    metadata = data.get("metadata")
    # `rev` is what a deletion tells checkpoints apart by; here that is the id.
    return Entry(
        thread_id,
        DEFAULT_NAMESPACE,
        str(name),
        None,
        0,
        str(name),
        _time(data.get("created_at")),
        encode(metadata) if isinstance(metadata, dict) else "{}",
    )


def _time(value: object) -> datetime:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else _UNKNOWN_TIME
    except ValueError:
        return _UNKNOWN_TIME
    return found if found.tzinfo else found.replace(tzinfo=UTC)
