"""`locus import`: imports threads of other libraries into a store."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from locus.cli import tokens, transfer

_DESCRIPTION = """\
Import threads of other libraries into a Locus store. The source is only read.

  locus import langgraph checkpoints.sqlite sqlite:///agents.db
  locus import langgraph postgresql://app@localhost/app sqlite:///agents.db
  locus import openai-agents sessions.db sqlite:///agents.db
  locus import google-adk .adk/session.db sqlite:///agents.db
  locus import agent-framework ./history sqlite:///agents.db
  locus import strands ./sessions sqlite:///agents.db
  locus import locus-sdk file:./.locus_checkpoints sqlite:///agents.db
  locus import locus-sdk s3://bucket/locus/checkpoints sqlite:///agents.db
  locus import jsonl threads.jsonl sqlite:///agents.db

langgraph        SqliteSaver and PostgresSaver (schema_name=… in the URL); continue with LocusSaver
openai-agents    SQLiteSession and AdvancedSQLiteSession; continue with LocusSession
google-adk       SqliteSessionService, and DatabaseSessionService in SQLite, PostgreSQL (schema_name=…) and MySQL;
                 continue with LocusSessionService
agent-framework  the folder of FileHistoryProvider; continue with LocusHistoryProvider
strands          FileSessionManager; continue with LocusSessionRepository
locus-sdk        version 3: FileCheckpointer, and its stores in Redis, S3 and OCI Object Storage (prefix=…), OpenSearch,
                 PostgreSQL, MySQL and Oracle Database (table_name=…)
jsonl            a file that `locus export` wrote"""


def configure(command: argparse.ArgumentParser) -> None:
    transfer.describe(command, _DESCRIPTION, run)
    add = command.add_argument
    add(
        "kind",
        metavar="KIND",
        choices=["langgraph", "locus-sdk", "openai-agents", "google-adk", "agent-framework", "strands", "jsonl"],
        help="the library that saved the threads: %(choices)s",
    )
    add("source", metavar="SRC", help="the store to import from: a file, a folder, postgresql://…, redis://…, s3://…")
    add("destination", metavar="DST", help="the store to import into: sqlite:///agents.db, postgresql://…")
    transfer.add_options(command)
    add(
        "--allow",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="langgraph: a class of yours that states contain, or a TypedDict or a graph that declares such classes, "
        "in a module that is installed or in the current folder; STORED=MODULE:CLASS if it was in the module STORED "
        "before, such as __main__, a script that was run; may be repeated",
    )
    add("--tenant", default="default", help="locus-sdk: the tenant of PgCheckpointer (default)")
    add("--sessions-table", default="agent_sessions", metavar="NAME", help="openai-agents: (agent_sessions)")
    add("--messages-table", default="agent_messages", metavar="NAME", help="openai-agents: (agent_messages)")


def run(options: argparse.Namespace) -> int:
    from locus.transfer.imports import import_store
    from locus.transfer.stores import resolve_url

    if options.allow and str(Path.cwd()) not in sys.path:
        # As `python -m` does it: the console script's own folder is of no use to anybody.
        sys.path.insert(0, str(Path.cwd()))
    work = partial(
        import_store,
        options.kind,
        allowed_types=options.allow,
        tenant=options.tenant,
        sessions_table=options.sessions_table,
        messages_table=options.messages_table,
        destination_token=tokens.token_for(resolve_url(options.destination), options.token_file),
    )
    return transfer.run(options, work)
