"""`import_store`: imports threads from the stores of other libraries. To add a library, open its source here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from typing import Any

from locus.errors import ConfigurationError
from locus.memory.runtime.url import folder_of, refuse_address
from locus.transfer.move import move
from locus.transfer.report import Progress, Report
from locus.transfer.sources import Source
from locus.transfer.stores import open_existing, open_store, resolve_url

KINDS = ("langgraph", "locus-sdk", "openai-agents", "google-adk", "agent-framework", "strands", "jsonl")
_POSTGRESQL = ("postgresql", "postgres")
_SQL = (*_POSTGRESQL, "mysql")
_REDIS = ("redis", "rediss", "unix")
_OPENSEARCH = ("opensearch", "opensearchs")
_BUCKETS = ("s3", "oci")


async def import_store(
    kind: str,
    source: str,
    destination: str,
    *,
    pattern: str = "*",
    dry_run: bool = False,
    jobs: int = 4,
    progress: Progress = lambda _report: None,
    allowed_types: Sequence[Any] = (),
    tenant: str = "default",
    sessions_table: str = "agent_sessions",
    messages_table: str = "agent_messages",
    destination_token: str | None = None,
) -> Report:
    """Import threads from the store of another library; see `move.move`.

    `allowed_types` are the classes that states of LangGraph may contain, or their names ("my_app.state:Ticket"). A
    `TypedDict` or a graph stands for all classes that it declares. If a class has moved to another module since, name
    the old module first ("__main__=my_app.state:Ticket"). `missing` of the report names classes that are not allowed.
    `tenant` is the tenant of a `PgCheckpointer` of locus-sdk. The two tables are those of sessions of openai-agents.
    `destination_token` is for a destination on a server.
    """
    target = open_store(destination, destination_token)
    target.engine.begins_beside = True  # it may be where the threads come from
    name = target.engine.identity
    origin: Source | None = None
    try:
        origin = await _opened(kind, resolve_url(source), allowed_types, tenant, sessions_table, messages_table)
        opened = await open_existing(destination, destination_token) if dry_run else target
        try:
            report = await move(
                origin, opened, name=name, pattern=pattern, dry_run=dry_run, jobs=jobs, progress=progress
            )
            report.missing = list(getattr(origin, "missing", ()))
            return report
        finally:
            if opened is not None:
                await opened.close()
    finally:
        if origin is not None:
            await origin.close()
        await target.close()


async def _opened(
    kind: str, url: str, allowed_types: Sequence[Any], tenant: str, sessions_table: str, messages_table: str
) -> Source:
    """Open a source. Each has a module, imported when it is used, because some need extras."""
    match kind:
        case "langgraph":
            return _langgraph(url, allowed_types)
        case "locus-sdk":
            return await _locus_sdk(url, tenant)
        case "openai-agents":
            from locus.transfer.sources.openai_agents import OpenAIAgentsSource

            _refuse_others(url, "sqlite")
            return OpenAIAgentsSource(url, sessions_table, messages_table)
        case "google-adk":
            from locus.transfer.sources.google_adk import GoogleADKSource
            from locus.transfer.sources.sql import ServerReader, SQLiteReader

            if _scheme(url) in _SQL:
                return GoogleADKSource(ServerReader(url))
            _refuse_others(url, "sqlite", "postgresql", "mysql")
            return GoogleADKSource(SQLiteReader(url))
        case "agent-framework":
            from locus.transfer.sources.agent_framework import AgentFrameworkSource

            _refuse_others(url, "file")
            return AgentFrameworkSource(_folder(url))
        case "strands":
            from locus.transfer.sources.strands import StrandsSource

            _refuse_others(url, "file")
            return StrandsSource(_folder(url))
        case "jsonl":
            from locus.transfer.jsonl import JSONLinesSource

            path = _folder(url)
            refuse_address(path, "the file")
            return JSONLinesSource(path)
    raise ConfigurationError(f"nothing is known of {kind!r:.40}; threads come from {', '.join(KINDS)}")


def _langgraph(url: str, allowed_types: Sequence[Any]) -> Source:
    from locus.extras import require

    require("langgraph.checkpoint.base", "langgraph")
    from locus.integrations.langgraph.schemas import listed_classes
    from locus.transfer.sources.langgraph import PostgreSQLTables, SQLiteTables
    from locus.transfer.sources.sql import ServerReader, SQLiteReader

    classes: list[type] = []
    aliases: dict[tuple[str, str], type] = {}
    for name in allowed_types:
        stored, equals, place = name.rpartition("=") if isinstance(name, str) else ("", "", name)
        for kind in listed_classes([_named(place) if isinstance(place, str) else place]):
            if not isinstance(kind, type):
                raise ConfigurationError(f"{kind!r:.80} is no class")
            classes.append(kind)
            if equals:
                aliases[stored, kind.__name__] = kind
    if _scheme(url) in _POSTGRESQL:
        return PostgreSQLTables(ServerReader(url), classes, aliases)
    _refuse_others(url, "sqlite", "postgresql")
    return SQLiteTables(SQLiteReader(url), classes, aliases)


def _named(name: str) -> Any:
    """Import an object by its name: `my_app.state:Ticket`, or `my_app.state:Order.Line`."""
    module, colon, attributes = name.partition(":")
    if not colon:
        raise ConfigurationError(f"a class is named with its module, as my_app.state:Ticket, got {name!r:.80}")
    try:
        return reduce(getattr, attributes.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        hint = f"; a class of a script is named with its file: __main__=my_script:{attributes:.80}"
        raise ConfigurationError(
            f"the class {name!r:.80} cannot be imported: {error}{hint if module == '__main__' else ''}"
        ) from error


async def _locus_sdk(url: str, tenant: str) -> Source:
    """Open a store of locus-sdk 3."""
    _refuse_others(url, "file", *_SQL, "oracle", *_REDIS, *_OPENSEARCH, *_BUCKETS)
    scheme = _scheme(url)
    if scheme in (*_SQL, "oracle"):
        from locus.transfer.sources.locus_sdk.sql import open_tables
        from locus.transfer.sources.sql import ServerReader

        return await open_tables(ServerReader(url), tenant)
    if scheme in _BUCKETS:
        from locus.transfer.sources.locus_sdk.bucket import open_bucket

        return open_bucket(url)
    if scheme in _OPENSEARCH:
        from locus.transfer.sources.locus_sdk.opensearch import OldIndex

        return OldIndex(url)
    if scheme in _REDIS:
        from locus.transfer.sources.locus_sdk.redis import OldRedis

        return OldRedis(url)
    from locus.transfer.sources.locus_sdk.folder import OldFolder

    return OldFolder(_folder(url))


def _scheme(url: str) -> str:
    """The part of a URL before the colon; "" for a plain path."""
    name, colon, _ = url.partition(":")
    return name if colon and "/" not in name and len(name) > 1 else ""


def _refuse_others(url: str, *schemes: str) -> None:
    scheme = _scheme(url)
    if scheme and scheme not in schemes:
        raise ConfigurationError(f"this is read from {', '.join(dict.fromkeys(schemes))}, not from {scheme!r:.40}")


def _folder(url: str) -> str:
    """The path of a folder or a file, from a URL or itself."""
    return folder_of(url.removeprefix("file:")) if url.startswith("file:") else url
