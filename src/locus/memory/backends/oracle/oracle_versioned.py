"""The versioned saver in Oracle Database."""

from __future__ import annotations

from typing import Any

from pydantic import PrivateAttr, SecretStr

from locus.memory.backends.oracle.config import OracleOptions
from locus.memory.saver import CheckpointSaver
from locus.memory.store import Threads


class OracleCheckpointSaver(OracleOptions, CheckpointSaver):
    """Versions of dicts with parents, namespaces and pending writes: a `CheckpointSaver` in Oracle Database.

    The options are those of `OracleBackend`, and the same tables serve both.
    """

    _threads: Threads = PrivateAttr()

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
        self._threads = self.open_threads()

    @property
    def threads(self) -> Threads:  # type: ignore[override]  # nobody sets it
        return self._threads

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.threads.engine.identity!r})"

    __str__ = __repr__
