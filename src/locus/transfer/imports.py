"""Moving in from other libraries: which there are, and how their stores are named."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from locus.errors import ConfigurationError
from locus.transfer.move import Source, move
from locus.transfer.report import Progress, Report
from locus.transfer.stores import existing, location, opened

if TYPE_CHECKING:
    from locus.transfer.sources.locus_sdk.source import OldStore

KINDS = ("langgraph", "locus-sdk", "openai-agents")
_SQL = ("postgresql", "postgres", "mysql")
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
    allowed_types: Sequence[str | type] = (),
    tenant: str = "default",
    sessions_table: str = "agent_sessions",
    messages_table: str = "agent_messages",
) -> Report:
    """Move threads in from the store of another library; see `moves.move`.

    `allowed_types` are the classes that LangGraph's states may hold, or their names ("my_app.state:Ticket");
    `tenant` is that of a `PgCheckpointer` of locus-sdk; the tables are those of sessions of openai-agents.
    """
    target = opened(destination)
    name = target.engine.identity
    origin: Source | None = None
    try:
        url = location(source)
        if kind == "langgraph":
            origin = langgraph(url, allowed_types)
        elif kind == "locus-sdk":
            origin = await locus_sdk(url, tenant)
        elif kind == "openai-agents":
            origin = openai_agents(url, sessions_table, messages_table)
        else:
            raise ConfigurationError(f"nothing is known of {kind!r:.40}; threads come from {', '.join(KINDS)}")
        there = await existing(destination) if dry_run else target
        try:
            return await move(origin, there, name=name, pattern=pattern, dry_run=dry_run, jobs=jobs, progress=progress)
        finally:
            if there is not None:
                await there.close()
    finally:
        if origin is not None:
            await origin.close()
        await target.close()


def openai_agents(url: str, sessions_table: str, messages_table: str) -> Source:
    from locus.transfer.sources.openai_agents import OpenAIAgentsSource

    _refuse_others(url, "sqlite")
    return OpenAIAgentsSource(url, sessions_table=sessions_table, messages_table=messages_table)


async def locus_sdk(url: str, tenant: str) -> Source:
    """Each kind of store is imported when it is asked for: some need extras that others do not."""
    from locus.transfer.sources.locus_sdk.source import LocusSDKSource

    scheme = _scheme(url)
    if scheme == "oracle":
        from locus.transfer.sources.locus_sdk.oracle import old_oracle

        return await old_oracle(url)
    if scheme in _BUCKETS:
        from locus.transfer.sources.locus_sdk.objects import old_objects

        found: OldStore = old_objects(url)
    elif scheme in _OPENSEARCH:
        from locus.transfer.sources.locus_sdk.opensearch import OldDocuments

        found = OldDocuments(url)
    else:
        found = await _server_or_folder(url, tenant)
    return LocusSDKSource(found)


async def _server_or_folder(url: str, tenant: str) -> OldStore:
    from locus.transfer.sources.locus_sdk import servers as locus_sdk_servers
    from locus.transfer.sources.locus_sdk.keys import OldFolder

    scheme = _scheme(url)
    if scheme in _SQL:
        return await locus_sdk_servers.old_table(url, tenant)
    if scheme in _REDIS:
        return locus_sdk_servers.OldRedis(url)
    _refuse_others(url, "file", *_SQL, "oracle", *_REDIS, *_OPENSEARCH, *_BUCKETS)
    return OldFolder(_folder(url))


def langgraph(url: str, allowed_types: Sequence[str | type]) -> Source:
    from locus.extras import require

    require("langgraph.checkpoint.base", "langgraph")
    from locus.transfer.sources.langgraph import LangGraphSource, PostgreSQLGraphs, SavedGraphs, SQLiteGraphs
    from locus.transfer.sources.langgraph_values import Values
    from locus.transfer.sources.sql import sql_engine

    classes = [named_class(name) if isinstance(name, str) else name for name in allowed_types]
    values = Values(classes)
    if _scheme(url) in ("postgresql", "postgres"):
        engine, _, schema = sql_engine(url)
        tables: SavedGraphs = PostgreSQLGraphs(engine, schema, values)
    else:
        _refuse_others(url, "sqlite", "postgresql")
        tables = SQLiteGraphs(url, values)
    return LangGraphSource(tables, classes)


def named_class(name: str) -> type:
    """The class that a user names: `my_app.state:Ticket`."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigurationError(f"a class is named with its module, as my_app.state:Ticket, got {name!r:.80}")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"the class {name!r:.80} cannot be imported: {error}") from error
    if not isinstance(found, type):
        raise ConfigurationError(f"{name!r:.80} is no class")
    return found


def _scheme(url: str) -> str:
    """What stands before a colon; "" for a plain path."""
    name, colon, _ = url.partition(":")
    return name if colon and "/" not in name and len(name) > 1 else ""


def _refuse_others(url: str, *schemes: str) -> None:
    scheme = _scheme(url)
    if scheme and scheme not in schemes:
        raise ConfigurationError(f"this is read from {', '.join(dict.fromkeys(schemes))}, not from {scheme!r:.40}")


def _folder(url: str) -> str:
    from locus.memory.runtime.url import path_of

    rest = url.removeprefix("file:")
    if rest == url:
        return url
    return f"/{path_of(rest)}" if rest.startswith("///") else path_of(rest)
