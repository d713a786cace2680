"""`LocusArtifactService`: the artifacts of ADK in a Locus store, each with all its versions.

An artifact is a thread (see `names`), and each version is a checkpoint that has its number as an id. So a number
is given out once, also if several processes save at the same time. The bytes of a version are a large value of the
payload, and a version with the same bytes as the one before it does not store them again. What is known of a version
without its content is one text in the metadata, because databases index every value of the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.adk.artifacts import artifact_util
from google.adk.artifacts.base_artifact_service import ArtifactVersion, BaseArtifactService, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.platform import time as platform_time
from google.genai import types
from pydantic import ValidationError
from typing_extensions import override

from locus.errors import CorruptCheckpointError
from locus.integrations.google_adk import NAMESPACE
from locus.integrations.google_adk.names import artifact_thread, thread_of
from locus.threads import AsyncStoreUser, Change, Entry, Version, metadata_of
from locus.threads.ids import check_id, joined, parted, shown_thread
from locus.threads.json import decode, encode, encode_trusted

__all__ = ["LocusArtifactService"]

_USER: Final = "user:"
_PART, _KNOWN = "part", "artifact"
_MOST_REFERENCES: Final = 5
"""How many references a load follows, as in ADK's own services: they may lead in a circle."""
_REMOVED: Final = types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b""))
"""What a rewind of ADK saves in place of an artifact that did not exist at that time. It loads as absent."""


class LocusArtifactService(AsyncStoreUser, BaseArtifactService):
    """The artifacts of ADK in a Locus store.

    `store` is a checkpointer, a storage backend, or a name or URL with its `options`. `close` closes a store that the
    service has opened by name, and leaves others open. An artifact belongs to its user, and not to a session, if its
    name begins with `user:`, or if no session is named.
    """

    def __init__(self, store: Any, *, namespace: str = NAMESPACE, **options: Any) -> None:
        self._open(store, options, ("namespace",))
        self._namespace = namespace

    @override
    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Save a version, and return its number: 0 for the first one, then one more each time."""
        part = ensure_part(artifact)
        known = {
            "mime_type": _mime_type(part, app_name, user_id, session_id),
            "custom_metadata": custom_metadata or {},
            "create_time": platform_time.get_time(),
        }
        metadata = {_KNOWN: encode(known, ("custom_metadata",))}
        fields = {_PART: part.model_dump(mode="json", exclude_none=True)}

        async def numbered(latest: Version | None) -> Change:
            version = 0 if latest is None or latest.entry is None else _version(latest.entry) + 1
            return Change(fields, metadata=metadata, checkpoint_id=str(version))

        document = self._store.document(_place(app_name, user_id, session_id, filename), self._namespace)
        saved = await document.change(numbered, content=False)
        assert saved is not None
        return int(saved.checkpoint_id)

    @override
    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        """A version, by default the newest; None if there is none. A reference to another artifact is followed."""
        for remaining in range(_MOST_REFERENCES, -1, -1):
            thread_id = _place(app_name, user_id, session_id, filename)
            document = self._store.document(thread_id, self._namespace)
            saved = await document.read(None if version is None else str(version))
            if saved is None:
                return None
            part = _part(saved.fields, thread_id)
            uri = part.file_data.file_uri if part.file_data else None
            if not artifact_util.is_artifact_ref(part) or uri is None:
                return None if part in (types.Part(), _REMOVED) else part
            app_name, user_id, session_id, filename, version = artifact_util.resolve_artifact_reference(
                file_uri=uri, app_name=app_name, user_id=user_id, session_id=session_id, remaining_depth=remaining
            )
        return None

    @override
    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        """The names of a user's artifacts, each after `user:`, and of the session's if one is given."""
        names = [f"{_USER}{name}" for name in await self._names(app_name, user_id, None)]
        if session_id is not None:
            names += await self._names(app_name, user_id, session_id)
        return sorted(names)

    @override
    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Delete an artifact with all its versions."""
        await self._store.delete(_place(app_name, user_id, session_id, filename), self._namespace)

    @override
    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """The numbers of an artifact's versions, in order."""
        entries = await self._entries(app_name, user_id, session_id, filename)
        return [_version(entry) for entry in entries]

    @override
    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """The descriptions of an artifact's versions, in order. Their content is not read."""
        entries = await self._entries(app_name, user_id, session_id, filename)
        return [_artifact_version(entry, app_name, user_id, session_id, filename) for entry in entries]

    @override
    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """The description of a version, by default the newest; None if there is none. No content is read."""
        thread_id = _place(app_name, user_id, session_id, filename)
        entry = await self._store.entry(thread_id, self._namespace, None if version is None else str(version))
        return None if entry is None else _artifact_version(entry, app_name, user_id, session_id, filename)

    async def _names(self, app_name: str, user_id: str, session_id: str | None) -> list[str]:
        """The names of the artifacts of a session, or of a user."""
        _check_owner(app_name, user_id, session_id)
        thread_of(app_name, user_id, session_id)  # refuses what no artifact belongs to
        prefix = joined(app_name, user_id, session_id or "", "")
        return [parted(thread_id)[3] for thread_id in await self._store.list_threads(prefix=prefix)]

    async def _entries(self, app_name: str, user_id: str, session_id: str | None, filename: str) -> list[Entry]:
        """The entries of an artifact's versions, in order."""
        thread_id = _place(app_name, user_id, session_id, filename)
        return (await self._store.history(thread_id, self._namespace))[::-1]


def _place(app_name: str, user_id: str, session_id: str | None, filename: str) -> str:
    """The thread of an artifact."""
    owner, name = _scope(session_id, check_id(filename, "filename"))
    _check_owner(app_name, user_id, owner)
    return artifact_thread(app_name, user_id, owner, name)


def _check_owner(app_name: str, user_id: str, session_id: str | None) -> None:
    """Refuse the names that all services of ADK refuse, such as `..`, with ADK's error.

    Here they would be data like any other. But programs rely on that error to tell bad input.
    """
    for name, value in (("app_name", app_name), ("user_id", user_id), ("session_id", session_id)):
        if isinstance(value, str):
            artifact_util.validate_path_segment(value, name)


def _scope(session_id: str | None, filename: str) -> tuple[str | None, str]:
    """The session that an artifact belongs to (None: it is the user's), and its name there."""
    return (None, filename.removeprefix(_USER)) if filename.startswith(_USER) else (session_id, filename)


def _mime_type(part: types.Part, app_name: str, user_id: str, session_id: str | None) -> str | None:
    """The MIME type of a part to save. A part that cannot be an artifact is refused."""
    if part.inline_data is not None:
        return part.inline_data.mime_type
    if part.text is not None:
        return "text/plain"
    if part.file_data is None:
        raise InputValidationError("an artifact has inline data, a text or file data, and this has none of them")
    if not artifact_util.is_artifact_ref(part):
        return part.file_data.mime_type
    parsed = artifact_util.parse_artifact_uri(part.file_data.file_uri or "")
    if parsed is None:
        raise InputValidationError("the reference to another artifact is not valid")
    artifact_util.validate_artifact_reference_scope(
        app_name=app_name, user_id=user_id, session_id=session_id, parsed_uri=parsed
    )
    return None  # that of the other artifact is known when it is loaded


def _version(entry: Entry) -> int:
    if not entry.checkpoint_id.isdecimal():
        raise CorruptCheckpointError(f"{shown_thread(entry.thread_id)} holds a version of an artifact without a number")
    return int(entry.checkpoint_id)


def _artifact_version(
    entry: Entry, app_name: str, user_id: str, session_id: str | None, filename: str
) -> ArtifactVersion:
    version, (owner, name) = _version(entry), _scope(session_id, filename)
    shown = name if owner is not None else f"{_USER}{name}"
    uri = artifact_util.get_artifact_uri(app_name, user_id, shown, version, owner)
    try:
        return ArtifactVersion(version=version, canonical_uri=uri, **decode(metadata_of(entry)[_KNOWN]))
    except (KeyError, TypeError, ValidationError):
        raise CorruptCheckpointError(
            f"version {version} of an artifact in {shown_thread(entry.thread_id)} does not say what it is"
        ) from None


def _part(fields: Mapping[str, Any], thread_id: str) -> types.Part:
    try:
        return types.Part.model_validate_json(encode_trusted(fields[_PART]))
    except (KeyError, ValidationError):
        raise CorruptCheckpointError(f"{shown_thread(thread_id)} holds something else than an artifact") from None
