"""Reads sessions of Google ADK from the tables of `SqliteSessionService` and `DatabaseSessionService`.

    sessions      app_name, user_id, id, state, create_time, update_time
    events        id, app_name, user_id, session_id, invocation_id, timestamp, event_data
    user_states   app_name, user_id, state, update_time
    app_states    app_name, state, update_time

Each session becomes a thread that `LocusSessionService` continues, and so does the state of each user and each app.
The first checkpoint of a session is empty of events; each event becomes another, in the order of their times, in which
ADK reads them. ADK stores only the newest state, and the changes of each event. Values that no event has changed
therefore belong to every checkpoint, and each event adds its changes. The newest checkpoint has the state that ADK has.

Databases of ADK before 1.22 hold pickles, and are refused: `adk migrate session` makes new tables of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from locus.errors import ConfigurationError, ConflictError, CorruptCheckpointError, SerializationError
from locus.integrations.google_adk import NAMESPACE
from locus.memory.model.codec import decode, encode
from locus.memory.model.payloads import dict_payload
from locus.memory.model.plan import Planner, encode_manifest, run_of
from locus.memory.model.records import Base, Extent
from locus.memory.model.trace import FieldTrace, Trace
from locus.threads.ids import joined, parted
from locus.transfer.content import ITEMS, MovedCheckpoint, StoredContent, WholeContent, log_metadata
from locus.transfer.items import ThreadItems
from locus.transfer.sources import read_moment
from locus.transfer.sources.sql import ServerReader, SourceRow, SQLiteReader, TableSource

_TABLES: Final = ("sessions", "events", "user_states", "app_states")
_METADATA: Final = "adk_internal_metadata"
_BRANCH: Final = "events"
_PREFIXES: Final = ("app:", "user:", "temp:")
_ATTEMPTS: Final = 10
_ID: Final = "import"
"""The id of the first checkpoint of a thread. For the checkpoint of an event, the event's id is appended."""


class StateRow(NamedTuple):
    """The row of a state: its JSON, and the times of its first and last write."""

    state: Any
    created: Any
    updated: Any


class EventRow(NamedTuple):
    id: str
    invocation_id: str
    at: Any
    data: Any


_EVENTS: Final = (
    "SELECT id, invocation_id, timestamp, {json:event_data} FROM {events}"
    " WHERE app_name = ? AND user_id = ? AND session_id = ?"
)
_OLD: Final = (
    "these tables are of an old version of ADK, which pickled events; pickles are not read. Make new tables with "
    "`adk migrate session`, and import those"
)


class GoogleADKSource(TableSource):
    """Sessions of ADK, and the states of its users and apps: tables of one of its session services.

    A file may be of `SqliteSessionService` or of `DatabaseSessionService`, a server of the latter.
    """

    def __init__(self, database: SQLiteReader | ServerReader) -> None:
        super().__init__(database)
        self._tables = {table: database.place(table) for table in _TABLES}
        self._as_text = "::text" if database.name.startswith("postgresql") else ""
        self._order = ""

    @property
    def name(self) -> str:
        name = self._database.name
        return name if isinstance(self._database, SQLiteReader) else f"{name}/{self._tables['sessions']}"

    async def _check(self) -> None:
        """Raise `ConfigurationError` if these are not tables of ADK, or those of a version that is too old."""
        columns = {table: await self._database.columns(table) for table in _TABLES}
        # Old tables have a column for each field of an event, with pickled actions.
        if "actions" in columns["events"] and "event_data" not in columns["events"]:
            raise ConfigurationError(_OLD)
        missing = ", ".join(sorted(table for table, names in columns.items() if not names))
        is_server = isinstance(self._database, ServerReader)
        if missing:
            hint = "is it a file of SqliteSessionService or DatabaseSessionService?"
            if is_server:
                hint = "name the schema of ADK's tables with ?schema_name=… in the URL, if they have one of their own"
            raise ConfigurationError(f"{self._database.name} has no table {missing} of ADK: {hint}")
        if is_server:
            return
        # DatabaseSessionService has this table, and orders events of the same time by their ids.
        self._order = "timestamp, id" if await self._database.columns(_METADATA) else "timestamp, rowid"

    async def _all(self, statement: str, values: tuple[str, ...] = ()) -> list[SourceRow]:
        """The rows of a statement, in which `{sessions}` stands for that table and `{json:state}` for a JSON column."""
        for table, place in self._tables.items():
            statement = statement.replace(f"{{{table}}}", place)
        for column in ("state", "event_data"):
            statement = statement.replace(f"{{json:{column}}}", f"{column}{self._as_text}")
        return await self._database.all(statement, values)

    async def events(self, names: tuple[str, ...]) -> list[EventRow]:
        """The events of a session, in the order in which ADK reads them."""
        if self._order:
            return [EventRow(*row) for row in await self._all(f"{_EVENTS} ORDER BY {self._order}", names)]
        # Sorted here, because servers order texts in different ways.
        rows = [EventRow(*row) for row in await self._all(_EVENTS, names)]
        return sorted(rows, key=lambda row: (_moment(row.at), row.id))

    async def ids(self) -> Iterable[str]:
        await self._check()
        rows = [
            *await self._all("SELECT app_name FROM {app_states}"),
            *await self._all("SELECT app_name, user_id FROM {user_states}"),
            *await self._all("SELECT app_name, user_id, id FROM {sessions}"),
        ]
        return [joined(*map(str, row)) for row in rows]

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[MovedCheckpoint, None]:
        names = parted(thread_id)
        if len(names) < 3:
            for shared in await self._shared(names):
                yield _shared_state(thread_id, shared)
            return
        for row, events in await self._session_rows(thread_id, names):
            for checkpoint in _session(thread_id, row, events):
                yield checkpoint

    async def _session_rows(self, thread_id: str, names: tuple[str, ...]) -> list[tuple[StateRow, list[EventRow]]]:
        """A session with its events; empty if it does not exist. Reads again if the session changes meanwhile."""
        statement = (
            "SELECT {json:state}, create_time, update_time FROM {sessions}"
            " WHERE app_name = ? AND user_id = ? AND id = ?"
        )
        rows = await self._all(statement, names)
        for _ in range(_ATTEMPTS):
            events = await self.events(names) if rows else []
            before, rows = rows, await self._all(statement, names)
            if rows == before:
                return [(StateRow(*row), events) for row in rows]
        raise ConflictError(f"session {thread_id!r} is changed while it is read; stop its agent, and try again")

    async def _shared(self, names: tuple[str, ...]) -> list[StateRow]:
        of_user = len(names) == 2
        table, where = ("{user_states}", " AND user_id = ?") if of_user else ("{app_states}", "")
        statement = f"SELECT {{json:state}}, update_time, update_time FROM {table} WHERE app_name = ?{where}"
        return [StateRow(*row) for row in await self._all(statement, names)]


def _shared_state(thread_id: str, row: StateRow) -> MovedCheckpoint:
    """The checkpoint that `LocusSessionService` keeps for the state of a user or an app."""
    state = _object(row.state, f"the state {thread_id!r}")
    content = WholeContent({"state": state, "origins": {}})
    return MovedCheckpoint(NAMESPACE, _ID, None, _moment(row.updated), "{}", content)


def _session(thread_id: str, row: StateRow, event_rows: list[EventRow]) -> Iterator[MovedCheckpoint]:
    """The checkpoints of a session: the first without events, then one for each event, with the state after it."""
    final = _object(row.state, f"the state of session {thread_id!r}")
    events = [_event(thread_id, event_row) for event_row in event_rows]
    deltas = [_delta(event) for event in events]
    changed = {key for delta in deltas for key in delta}
    state = {key: value for key, value in final.items() if key not in changed}
    items, at, parent = ThreadItems(), _moment(row.created), None
    known: Mapping[str, FieldTrace] = {}
    for count, (event, delta) in enumerate([({}, {}), *zip(events, deltas, strict=True)]):
        state = final if count == len(events) else state | delta
        if count:
            items.add([run_of(_BRANCH, count - 1, count - 1, [encode(event)])])
            at = _moment(event["timestamp"])
        fields: dict[str, Any] = {"state": state} if state else {}
        if not count:
            fields["last_update_time"] = _seconds(row.created)
        extents = [Extent(_BRANCH, count - 1, 0, count)] if count else []
        checkpoint_id = f"{_ID}-{event['id']}" if count else _ID
        plan = Planner(f"state-{count}-", Trace(Base("", ""), known)).plan(
            dict_payload(fields)._replace(plain={ITEMS[0]: []})
        )
        items.add((*plan.runs, *plan.values))
        known = plan.fields
        manifest = encode_manifest({**({ITEMS: tuple(extents)} if extents else {}), **plan.cuts})
        yield MovedCheckpoint(
            namespace=NAMESPACE,
            checkpoint_id=checkpoint_id,
            parent_id=parent,
            created_at=at,
            metadata=log_metadata("import", extents),
            content=StoredContent(plan.head, manifest, items),
        )
        parent = checkpoint_id


def _event(thread_id: str, row: EventRow) -> dict[str, Any]:
    """An event as a dict. Its id and invocation come from columns of the row, and so does its time if it has none."""
    data = _object(row.data, f"event {row.id!r} of session {thread_id!r}") if row.data is not None else {}
    at = data.get("timestamp")
    if not isinstance(at, int | float) or isinstance(at, bool):
        at = _moment(row.at).timestamp()
    return {**data, "id": row.id, "invocation_id": row.invocation_id, "timestamp": at}


def _delta(event: dict[str, Any]) -> dict[str, Any]:
    """The changes of an event to the state of its session."""
    actions = event.get("actions")
    delta = actions.get("state_delta") if isinstance(actions, dict) else None
    return {key: value for key, value in (delta or {}).items() if not key.startswith(_PREFIXES)}


def _object(text: Any, what: str) -> dict[str, Any]:
    try:
        value = decode(text)
        encode(value)
    except (CorruptCheckpointError, SerializationError, TypeError) as error:
        raise CorruptCheckpointError(f"{what} is no JSON; correct the row, or remove it, and try again") from error
    if not isinstance(value, dict):
        raise CorruptCheckpointError(f"{what} is no JSON object; correct the row, or remove it, and try again")
    return value


def _moment(value: Any) -> datetime:
    """A time of ADK: seconds since 1970, or a time in UTC, as text in SQLite."""
    if not isinstance(value, int | float):
        return read_moment(value, "time of ADK's")
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise CorruptCheckpointError(f"{value!r:.40} is no time of ADK's") from error


def _seconds(value: Any) -> float:
    """A time of ADK as seconds since 1970. Numbers are returned unchanged, because a datetime would round them."""
    moment = _moment(value)
    return float(value) if isinstance(value, int | float) else moment.timestamp()
