"""`LocusFlowPersistence`: the states of CrewAI's flows in a Locus store, with their whole history.

A flow is the namespace `crewai` of the thread with the id of its state. Its payload is the state, and the method that
has just run is metadata. A flow that waits for a person's feedback has the question beside the state. Later checkpoints
name that one in their metadata until the feedback is there, so a flow is either paused as a whole or not at all.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.persistence import FlowPersistence
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from locus.errors import ConflictError, CorruptCheckpointError, SerializationError
from locus.threads import BlockingStoreUser, Change, Document, Version, metadata_of
from locus.threads.ids import shown_thread

__all__ = ["NAMESPACE", "LocusFlowPersistence"]

NAMESPACE: Final = "crewai"
"""The namespace of flows. For a store without namespaces, pass `namespace="default"`."""

_OWN_OPTIONS = ("namespace",)
_QUESTION: Final = "crewai:pending_feedback"
"""The field, beside those of the state, that has what a person was asked."""
_PAUSED_AT: Final = "paused_at"
"""The name, among the metadata, of the checkpoint with which a flow began to wait for feedback."""
_ANYTHING: Final[TypeAdapter[Any]] = TypeAdapter(Any)

State = dict[str, Any]


class LocusFlowPersistence(BlockingStoreUser, FlowPersistence):
    """A `FlowPersistence` of CrewAI on any Locus store, usable from any OS thread; its calls block.

    `store` is a checkpointer, a storage backend, or a name or URL with its `options` (`"sqlite:flows.db"`,
    `"https://…", token="…"`). `close` closes a store that was opened here by name, and leaves others open. A later call
    opens it again.

    States become JSON as pydantic writes it. What has no such form is refused.
    """

    persistence_type: str = "LocusFlowPersistence"

    def __init__(self, store: Any, *, namespace: str = NAMESPACE, **options: Any) -> None:
        super().__init__()
        self._open(store, options, _OWN_OPTIONS)
        self._namespace = namespace

    def init_db(self) -> None:
        """Do nothing: a store sets itself up when it is first used."""

    def save_state(self, flow_uuid: str, method_name: str, state_data: State | BaseModel) -> None:
        """Save the state of a flow as its newest. If the flow waits for feedback, it goes on waiting."""
        state = _state_json(state_data)

        async def saved(latest: Version | None) -> Change:
            return Change(state, metadata={**_facts(latest), "method": method_name})

        self._run(self._document(flow_uuid).change(saved, content=False))

    def load_state(self, flow_uuid: str) -> State | None:
        """The newest state of a flow; None if there is no such flow."""
        version = self._run(self._document(flow_uuid).read())
        return None if version is None else _state(version)

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: State | BaseModel
    ) -> None:
        """Save the state of a flow, and what it waits for, in one step."""
        fields = {**_state_json(state_data), _QUESTION: _json(context.to_dict(), "context")}
        paused_at = uuid4().hex
        metadata = {"method": context.method_name, _PAUSED_AT: paused_at}
        self._run(self._document(flow_uuid).save(fields, metadata=metadata, checkpoint_id=paused_at))

    def load_pending_feedback(self, flow_uuid: str) -> tuple[State, PendingFeedbackContext] | None:
        """The state with which a flow began to wait, and what it waits for; None if it does not wait."""
        entry = self._run(self._store.entry(flow_uuid, self._namespace))
        paused_at = None if entry is None else metadata_of(entry).get(_PAUSED_AT)
        if paused_at is None:
            return None
        version = self._run(self._document(flow_uuid).read(paused_at))
        if version is None:
            raise self._run(self._store.not_found(flow_uuid, self._namespace, paused_at))
        try:
            return _state(version), PendingFeedbackContext.from_dict(version.fields[_QUESTION])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            where = f"checkpoint {paused_at!r} of {shown_thread(flow_uuid)}"
            raise CorruptCheckpointError(f"{where} does not say what the flow waits for") from error

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Note that a flow does not wait any more. The checkpoint with which it began to stays in the history."""
        document = self._document(flow_uuid)

        async def cleared(latest: Version | None) -> Change | None:
            facts = _facts(latest)
            if latest is None or facts.pop(_PAUSED_AT, None) is None:
                return None
            version = await document.read(latest.checkpoint_id)
            if version is None:
                raise ConflictError(f"{shown_thread(flow_uuid)} was changed by another writer")
            return Change(_state(version), metadata=facts, after=version)

        self._run(document.change(cleared, content=False))

    def versions(self, flow_uuid: str, limit: int | None = 10, before: str | None = None) -> dict[str, State]:
        """The states of a flow by the ids of their checkpoints, the newest first."""
        entries = self._run(self._store.history(flow_uuid, self._namespace, limit, before))
        versions = self._run(self._document(flow_uuid).read_many([entry.checkpoint_id for entry in entries]))
        return {version.checkpoint_id: _state(version) for version in versions}

    def delete(self, flow_uuid: str) -> bool:
        """Delete a flow with its history. True if there was one."""
        return self._run(self._document(flow_uuid).delete())

    def _document(self, flow_uuid: str) -> Document:
        return self._store.document(flow_uuid, self._namespace)


def _facts(latest: Version | None) -> dict[str, Any]:
    return {} if latest is None or latest.entry is None else dict(metadata_of(latest.entry))


def _state(version: Version) -> State:
    return {name: value for name, value in version.fields.items() if name != _QUESTION}


def _state_json(state_data: State | BaseModel) -> State:
    state = _json(state_data, "state")
    if not isinstance(state, dict) or _QUESTION in state:
        raise SerializationError(f"the state of a flow is a dict or a model, without a field {_QUESTION!r}", "state")
    return state


def _json(value: Any, path: str) -> Any:
    try:
        plain = _ANYTHING.dump_python(value)  # models may be set up to write a NaN as null: only their fields are taken
        return to_jsonable_python(plain, inf_nan_mode="constants")
    except ValueError as error:
        raise SerializationError(f"{path} has a value without a JSON form: {error}", path) from error
