"""Reads sessions of Strands from the folder of its `FileSessionManager`.

    session_<id>/session.json
                 agents/agent_<id>/agent.json
                 agents/agent_<id>/messages/message_<number>.json
                 multi_agents/multi_agent_<id>/multi_agent.json

Each session becomes a thread that `LocusSessionRepository` continues. The files hold only the newest version of a
session, which becomes the first checkpoint of the thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from locus.errors import BackendUnavailableError, CorruptCheckpointError
from locus.integrations.strands.document import list_name, metadata_of, new_session, stored_message, with_id
from locus.memory.model.codec import decode, encode
from locus.transfer.content import MovedCheckpoint, WholeContent
from locus.transfer.sources import read_moment
from locus.transfer.sources.folder import FolderStore

NAMESPACE = "strands"
_SESSION, _AGENT, _MESSAGE, _MULTI_AGENT = "session_", "agent_", "message_", "multi_agent_"


class StrandsSource(FolderStore):
    """The sessions in the folder of a `FileSessionManager`."""

    def _ids(self) -> Iterator[str]:
        """The ids of the sessions. Like Strands, it ignores folders without a `session.json`."""
        for path in _entries(self._path, _SESSION):
            if (path / "session.json").exists():
                yield path.name.removeprefix(_SESSION)

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[MovedCheckpoint, None]:
        data, created_at = await asyncio.to_thread(_session, self._path / f"{_SESSION}{thread_id}")
        yield MovedCheckpoint(
            namespace=NAMESPACE,
            checkpoint_id="import",
            parent_id=None,
            created_at=created_at,
            metadata=encode(metadata_of("import")),
            content=WholeContent(data),
        )


def _session(folder: Path) -> tuple[dict[str, Any], datetime]:
    """A session as `LocusSessionRepository` saves it, and the time of its last change."""
    session = _read(folder / "session.json")
    agents: dict[str, Any] = {}
    message_ids: dict[str, list[int]] = {}
    lists: dict[str, list[Any]] = {}
    times = [session.get("updated_at")]
    for path in _entries(folder / "agents", _AGENT):
        agent_id, agent = path.name.removeprefix(_AGENT), _read(path / "agent.json")
        ids: list[int] = []
        messages: list[dict[str, Any]] = []
        for number, file in _messages(path / "messages"):
            message = _read(file)
            if message.get("message_id") != number:
                raise CorruptCheckpointError(f"{str(file)!r} has the message of another number")
            times.append(message.get("updated_at"))
            messages.append(stored_message(message, len(messages)))
            _, ids = with_id(ids, number)
        agents[agent_id], message_ids[agent_id] = agent, ids
        lists[list_name(agent_id)] = messages
        times.append(agent.get("updated_at"))
    multi_agents = {
        path.name.removeprefix(_MULTI_AGENT): _read(path / "multi_agent.json")
        for path in _entries(folder / "multi_agents", _MULTI_AGENT)
    }
    stored = new_session(session, agents, multi_agents)
    for agent_id, ids in message_ids.items():
        stored = stored.with_ids(agent_id, ids)
    data = {**stored.fields(), **lists}
    return data, max(map(read_moment, filter(None, times)), default=datetime.fromtimestamp(0, UTC))


def _entries(folder: Path, prefix: str) -> list[Path]:
    """The folders with a prefix. Links are skipped, as Strands does, because somebody else may have put them there."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.glob(f"{prefix}*") if path.is_dir() and not path.is_symlink())


def _messages(folder: Path) -> list[tuple[int, Path]]:
    """The files of an agent's messages, in the order of their numbers."""
    files: list[tuple[int, Path]] = []
    for path in folder.glob(f"{_MESSAGE}*.json"):
        try:
            files.append((int(path.stem.removeprefix(_MESSAGE)), path))
        except ValueError:
            raise CorruptCheckpointError(f"{str(path)!r} has no number in its name") from None
    return sorted(files)


def _read(path: Path) -> dict[str, Any]:
    if path.is_symlink():
        raise CorruptCheckpointError(f"{str(path)!r} is a link, and sessions of Strands have none")
    try:
        data = decode(path.read_bytes())
    except FileNotFoundError:
        raise CorruptCheckpointError(f"there is no file {str(path)!r}: the session is not whole") from None
    except OSError as error:
        raise BackendUnavailableError(f"{str(path)!r} cannot be read now: {error}") from error
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(f"{str(path)!r} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise CorruptCheckpointError(f"{str(path)!r} is no part of a session")
    return data
