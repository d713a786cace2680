"""Oracle Database for code that is not async: the same names and methods, blocking, from any thread.

They work on the event loop of `locus.memory.sync`, whose connections live on between calls.
"""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from locus.memory.backends.oracle.backend import OracleBackend, SyncOracleBackend
from locus.memory.backends.oracle.oracle_versioned import OracleCheckpointSaver
from locus.memory.sync_saver import SyncCheckpointSaver


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
        return f"{type(self).__name__}({self._oracle.threads.engine.identity!r})"


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
