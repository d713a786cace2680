"""`locus copy`: copies threads from one store to another."""

from __future__ import annotations

import argparse

from locus.cli import transfer

_DESCRIPTION = """\
Copy threads from one store to another, with their history, forks, namespaces, metadata, times and pending writes.

  locus copy sqlite:///agents.db postgresql://locus@localhost/agents

What LangGraph's long-term memory (LocusStore) keeps in the same database is copied, too, unless --threads chooses some
threads; between SQLite and PostgreSQL.

The source is only read. Threads that are already at the destination are verified and brought up to date."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = transfer.add_command(commands, "copy", "copy threads from one store to another", _DESCRIPTION, run)
    command.add_argument("source", metavar="SRC", help="the store to copy from: sqlite:///agents.db, redis://…")
    command.add_argument("destination", metavar="DST", help="the store to copy to: postgresql://…, file:./threads")
    transfer.add_options(command)


def run(options: argparse.Namespace) -> int:
    from locus.transfer.copies import copy_store

    return transfer.run(options, copy_store)
