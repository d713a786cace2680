"""`locus copy`: copies threads from one store to another."""

from __future__ import annotations

import argparse
from functools import partial

from locus.cli import tokens, transfer
from locus.errors import ConfigurationError

_DESCRIPTION = """\
Copy threads from one store to another, with their history, forks, namespaces, metadata, times and pending writes.
The items of long-term memory and effects are copied, too, with all their versions, unless --threads chooses some
threads.

  locus copy sqlite:///agents.db postgresql://locus@localhost/agents
  locus copy --token-file token https://locus.example.org sqlite:///agents.db

The source is only read. Threads that are already at the destination are verified and brought up to date."""


_SOURCE, _DESTINATION = "--source-token-file", "--destination-token-file"


def configure(command: argparse.ArgumentParser) -> None:
    transfer.describe(command, _DESCRIPTION, run)
    command.add_argument("source", metavar="SRC", help="the store to copy from: sqlite:///agents.db, redis://…")
    command.add_argument("destination", metavar="DST", help="the store to copy to: postgresql://…, file:./threads")
    transfer.add_options(command)
    tokens.add_option(command, _SOURCE, "SRC, if DST is a server, too")
    tokens.add_option(command, _DESTINATION, "DST, if SRC is a server, too")


def run(options: argparse.Namespace) -> int:
    from locus.transfer.copies import copy_store

    source_token, destination_token = _tokens(options)
    work = partial(copy_store, source_token=source_token, destination_token=destination_token)
    return transfer.run(options, work)


def _tokens(options: argparse.Namespace) -> tuple[str | None, str | None]:
    """The tokens for both stores. Of two servers, neither must get the token of the other one."""
    from locus.transfer.stores import resolve_url

    source, destination = resolve_url(options.source), resolve_url(options.destination)
    files = options.source_token_file, options.destination_token_file
    if not (tokens.is_server(source) and tokens.is_server(destination)):
        common = options.token_file
        files = (files[0] or common, files[1]) if tokens.is_server(source) else (files[0], files[1] or common)
        return tokens.token_for(source, files[0]), tokens.token_for(destination, files[1])
    if options.token_file is not None or (files == (None, None) and tokens.in_environment()):
        raise ConfigurationError(
            f"SRC and DST are two servers: name the token of each with {_SOURCE} and {_DESTINATION}"
        )
    first, second = (None if file is None else tokens.read_token(file) for file in files)
    return first, second
