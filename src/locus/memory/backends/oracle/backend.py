"""Oracle Database: threads in the JSON columns of a server that many processes share. 21c and later, 26ai included.

The tables are shown in `oracle_schema`, a save in `oracle_save`. python-oracledb is needed when a backend is made;
it works in thin mode, so that no Oracle client has to be installed.

The versioned saver in Oracle Database.

Oracle Database for code that is not async: the same names and methods, blocking, from any thread.

They work on the event loop of `locus.memory.sync`, whose connections live on between calls.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, overload

from pydantic import PrivateAttr, SecretStr

from locus.core.state import AgentState
from locus.memory.backends.oracle import schema as oracle_schema
from locus.memory.backends.oracle.config import OracleOptions, options_of
from locus.memory.backends.oracle.schema import OracleFlavour, checked_name
from locus.memory.backends.sql.backend import SQLBackend, SyncSQLBackend
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, Unset
from locus.memory.runtime.portal import PORTAL
from locus.memory.saver import CheckpointSaver
from locus.memory.store import CheckpointStore
from locus.memory.sync import SyncCheckpointSaver

__all__ = ["OracleBackend", "from_location"]


class OracleBackend(OracleOptions, SQLBackend):
    """Threads in Oracle Database. `load` gives plain dicts; `oracle_checkpointer(...)` gives `AgentState`.

    Where it is, is said by a `dsn` (a TNS alias, `host:port/service_name`) or by `host`, `port` and `service_name`;
    an Autonomous Database by the alias and the folder of its wallet. See `OracleOptions` for all options. Every event
    loop gets a pool of its own.
    """

    _store: CheckpointStore = PrivateAttr()

    def __init__(
        self,
        dsn: str | None = None,
        user: str = "admin",
        password: str | SecretStr = "",
        wallet_location: str | None = None,
        wallet_password: str | SecretStr | None = None,
        host: str | None = None,
        port: int = 1521,
        service_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            dsn=dsn,
            user=user,
            password=password,
            wallet_location=wallet_location,
            wallet_password=wallet_password,
            host=host,
            port=port,
            service_name=service_name,
            **kwargs,
        )
        self._store = self.open_store()

    @property
    def store(self) -> CheckpointStore:  # type: ignore[override]  # nobody sets it
        return self._store

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

    async def save(self, *args: Any, **kwargs: Any) -> str:
        """Keep a state, `save(state, thread_id)`, or a dict, `save(thread_id, data)`, and return the checkpoint's id.

        Which of the two is meant is told by the type of the state. See `BaseCheckpointer.save` for the laws.
        """
        if "state" in kwargs or (args and isinstance(args[0], AgentState)):
            return await Checkpointer(self.store).save(*args, **kwargs)
        return await super().save(*args, **kwargs)

    @cached_property
    def sync(self) -> SyncOracleBackend:
        return SyncOracleBackend(self)

    @staticmethod
    def ddl(table_name: str = "locus", schema_name: str | None = None, grantee: str | None = None) -> str:
        """The statements that create the tables, for whoever may: then `auto_create_table=False` will do.

        `grantee` is a user who shall work with the tables, and does not own them.
        """
        name = None if grantee is None else checked_name(grantee, "grantee")
        return oracle_schema.ddl(OracleFlavour(table_name, schema_name), name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store.engine.identity!r})"

    __str__ = __repr__


class SyncOracleBackend(SyncSQLBackend):
    """An `OracleBackend`, blocking."""

    def __init__(self, backend: OracleBackend) -> None:
        super().__init__(backend)
        self._oracle = backend

    def save(self, *args: Any, **kwargs: Any) -> str:
        """Of a state, `save(state, thread_id)`, or of a dict, `save(thread_id, data)`."""
        return PORTAL.run(self._oracle.save(*args, **kwargs))


def from_location(location: str = "", **options: Any) -> Checkpointer:
    """`"oracle://user:password@host:1521/service_name?table_name=agents"`."""
    from locus.memory.backends.adapters import oracle_checkpointer

    return oracle_checkpointer(**(options_of(f"oracle:{location}") | options if location else options))


class OracleCheckpointSaver(OracleOptions, CheckpointSaver):
    """Versions of dicts with parents, namespaces and pending writes: a `CheckpointSaver` in Oracle Database.

    The options are those of `OracleBackend`, and the same tables serve both.
    """

    _store: CheckpointStore = PrivateAttr()

    def __init__(
        self,
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
    ) -> None:
        super().__init__(
            dsn=dsn,
            user=user,
            password=password,
            wallet_location=wallet_location,
            wallet_password=wallet_password,
            host=host,
            port=port,
            service_name=service_name,
            table_name=table_name,
            schema_name=schema_name,
            min_pool_size=min_pool_size,
            max_pool_size=max_pool_size,
            auto_create_table=auto_create_table,
            **kwargs,
        )
        self._store = self.open_store()

    @property
    def store(self) -> CheckpointStore:  # type: ignore[override]  # nobody sets it
        return self._store

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store.engine.identity!r})"

    __str__ = __repr__


class OracleSyncBackend(SyncOracleBackend):
    """An `OracleBackend` whose methods block."""

    def __init__(
        self,
        dsn: str | None = None,
        user: str = "admin",
        password: str | SecretStr = "",
        wallet_location: str | None = None,
        wallet_password: str | SecretStr | None = None,
        host: str | None = None,
        port: int = 1521,
        service_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            OracleBackend(dsn, user, password, wallet_location, wallet_password, host, port, service_name, **kwargs)
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._oracle.store.engine.identity!r})"


class OracleSyncCheckpointSaver(SyncCheckpointSaver):
    """An `OracleCheckpointSaver` whose methods block."""

    def __init__(
        self,
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
    ) -> None:
        super().__init__(
            OracleCheckpointSaver(
                dsn,
                user,
                password,
                wallet_location,
                wallet_password,
                host,
                port,
                service_name,
                table_name,
                schema_name,
                min_pool_size,
                max_pool_size,
                auto_create_table,
                **kwargs,
            )
        )
