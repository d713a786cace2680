"""The public classes for Oracle Database, and the factory behind `oracle://` URLs.

`OracleBackend` keeps plain dicts, and `OracleCheckpointSaver` versions of dicts with parents and pending writes. Both
use the same tables. `OracleSyncBackend` and `OracleSyncCheckpointSaver` have the same methods, blocking, for any
thread; their connections belong to the event loop of `locus.memory.runtime.portal`, and stay open between calls.

`schema` describes the tables, and `commit` a save. python-oracledb is needed only once an object is created. It works
in thin mode, so no Oracle client has to be installed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, cast, overload

from pydantic import PrivateAttr, SecretStr

from locus.core.state import AgentState
from locus.extras import require
from locus.memory.backends.oracle import schema as oracle_schema
from locus.memory.backends.oracle.config import OracleConfig
from locus.memory.backends.oracle.schema import OracleFlavour, checked_name
from locus.memory.backends.sql.backend import SQLBackend, SyncSQLBackend
from locus.memory.backends.sql.schema import checked_format
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.arguments import taking
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, Unset
from locus.memory.runtime.once import made_once
from locus.memory.saver import CheckpointSaver
from locus.memory.store import CheckpointStore
from locus.memory.sync import SyncCheckpointSaver

__all__ = [
    "OracleBackend",
    "OracleCheckpointSaver",
    "OracleSyncBackend",
    "OracleSyncCheckpointSaver",
    "from_location",
]


P = ParamSpec("P")
Options = dict[str, Any]


def only_given(parameters: Callable[P, Options]) -> Callable[P, Options]:
    """Leave out options that were not given: a config knows which of its fields were set."""
    signature = inspect.signature(parameters)

    @wraps(parameters)
    def filtered(*args: P.args, **kwargs: P.kwargs) -> Options:
        given = {*signature.bind(*args, **kwargs).arguments, *kwargs}
        return {name: value for name, value in parameters(*args, **kwargs).items() if name in given}

    return filtered


@only_given
def options(
    dsn: str | None = None,
    user: str = "admin",
    password: str | SecretStr = "",
    wallet_location: str | None = None,
    wallet_password: str | SecretStr | None = None,
    host: str | None = None,
    port: int = 1521,
    service_name: str | None = None,
    table_name: str = "locus",
    schema_name: str | None = None,
    min_pool_size: int = 1,
    max_pool_size: int = 5,
    auto_create_table: bool = True,
    **kwargs: Any,
) -> Options:
    """The parameters of all four classes, as a user gave them. `OracleConfig` describes them, and `kwargs`."""
    given = locals()
    del given["kwargs"]
    return given | kwargs


class OracleHandle(OracleConfig):
    """The options and the store that they open. It connects when it is first used."""

    _store: CheckpointStore = PrivateAttr()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        require("oracledb", "oracle")
        from locus.memory.backends.oracle.engine import OracleEngine

        self._store = CheckpointStore(OracleEngine(self), ttl_seconds=self.ttl_seconds, cache_mb=self.cache_mb)

    @property
    def store(self) -> CheckpointStore:
        return self._store

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store.engine.identity!r})"

    __str__ = __repr__


class OracleBackend(OracleHandle, SQLBackend):  # type: ignore[override]  # nobody sets `store`
    """Keeps plain dicts in Oracle Database. `oracle_checkpointer(...)` keeps `AgentState` there.

    Say where the database is with a `dsn` (a TNS alias, or `host:port/service_name`), or with `host`, `port` and
    `service_name`. For an Autonomous Database, give the alias and the folder of its wallet. See `OracleConfig` for all
    options. Each event loop gets its own pool of connections.
    """

    @taking(options)
    def __init__(self, given: Options) -> None:
        super().__init__(**given)

    @overload
    async def save(
        self,
        state: AgentState,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        parent: str | None | Unset = ANY,
        if_latest: str | None | Unset = ANY,
    ) -> str: ...

    @overload
    async def save(
        self,
        thread_id: str,
        data: dict[str, Any],
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        parent: str | None | Unset = ANY,
        if_latest: str | None | Unset = ANY,
    ) -> str: ...

    async def save(  # type: ignore[misc]  # mypy wants the names of both at the same positions
        self,
        state: AgentState | str | None = None,
        thread_id: str | dict[str, Any] | None = None,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        data: dict[str, Any] | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        parent: str | None | Unset = ANY,
        if_latest: str | None | Unset = ANY,
    ) -> str:
        """Save a state, `save(state, thread_id)`, or a dict, `save(thread_id, data)`, and return the checkpoint's id.

        The type of the state decides which of the two is meant. See `BaseCheckpointer.save` for the laws.
        """
        more: Any = {"namespace": namespace, "parent": parent, "if_latest": if_latest}
        if isinstance(state, AgentState):
            return await Checkpointer(self.store).save(state, cast(str, thread_id), checkpoint_id, metadata, **more)
        if state is not None:  # by position: `save(thread_id, data)`
            thread_id, data = state, cast(dict[str, Any], thread_id) if data is None else data
        return await super().save(cast(str, thread_id), cast(dict[str, Any], data), checkpoint_id, metadata, **more)

    @made_once
    def sync(self) -> SyncOracleBackend:
        """This backend with blocking methods, which any thread may call."""
        return SyncOracleBackend(self)

    @staticmethod
    def ddl(
        table_name: str = "locus", schema_name: str | None = None, grantee: str | None = None, from_format: int = 0
    ) -> str:
        """A script that creates the tables, for a user who may. Then use `auto_create_table=False`.

        `grantee` is a user who works with the tables but does not own them. `from_format` is the format of existing
        tables that the script should bring to the newest format.
        """
        name = None if grantee is None else checked_name(grantee, "grantee")
        version = checked_format(from_format, oracle_schema.FORMAT)
        return oracle_schema.ddl(OracleFlavour(table_name, schema_name), name, version)


class OracleCheckpointSaver(OracleHandle, CheckpointSaver):  # type: ignore[override]  # nobody sets `store`
    """A `CheckpointSaver` in Oracle Database: versions of dicts with parents, namespaces and pending writes.

    It takes the options of `OracleBackend`, and uses the same tables.
    """

    @taking(options)
    def __init__(self, given: Options) -> None:
        super().__init__(**given)


class SyncOracleBackend(SyncSQLBackend):
    """The blocking methods of an existing `OracleBackend`: its `sync` returns them."""

    def __init__(self, backend: OracleBackend) -> None:
        super().__init__(backend)
        self._oracle = backend

    def save(  # type: ignore[override]  # a state comes before its thread, a dict after
        self,
        state: AgentState | str | None = None,
        thread_id: str | dict[str, Any] | None = None,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        data: dict[str, Any] | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        parent: str | None | Unset = ANY,
        if_latest: str | None | Unset = ANY,
    ) -> str:
        """Save a state, `save(state, thread_id)`, or a dict, `save(thread_id, data)`."""
        more: Any = {"data": data, "namespace": namespace, "parent": parent, "if_latest": if_latest}
        return self._run(self._oracle.save(cast(Any, state), cast(Any, thread_id), checkpoint_id, metadata, **more))


class OracleSyncBackend(SyncOracleBackend):
    """An `OracleBackend` whose methods block."""

    @taking(options)
    def __init__(self, given: Options) -> None:
        super().__init__(OracleBackend(**given))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._oracle.store.engine.identity!r})"


class OracleSyncCheckpointSaver(SyncCheckpointSaver):
    """An `OracleCheckpointSaver` whose methods block."""

    @taking(options)
    def __init__(self, given: Options) -> None:
        super().__init__(OracleCheckpointSaver(**given))


def from_location(location: str = "", **given: Any) -> Checkpointer:
    """`"oracle://user:password@host:1521/service_name?table_name=agents"`."""
    from locus.memory.backends.adapters import StorageBackendAdapter

    backend = OracleBackend.from_url(f"oracle:{location}", **given) if location else OracleBackend(**given)
    return StorageBackendAdapter(backend)
