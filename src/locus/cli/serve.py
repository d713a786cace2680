"""`locus serve`: serves the threads of a store over HTTP."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from locus.cli import stores, tokens
from locus.errors import ConfigurationError
from locus.extras import require

if TYPE_CHECKING:
    from locus.server.config import ServerConfig

STORE_VARIABLE = "LOCUS_SERVER_STORE"
TOKENS_VARIABLE = "LOCUS_SERVER_TOKENS"

_DESCRIPTION = """\
Serve the threads of a store over HTTP.

  locus serve --store sqlite:///agents.db --port 8700

In Python: HTTPCheckpointer("http://127.0.0.1:8700"). The API is described by /openapi.json."""

_TOKENS = """\
A token is written as "TOKEN [read|write [PREFIX]]". It allows reading or writing (default: write) the threads whose
ids begin with the prefix (default: all); a prefix ends with / or :. "saves=NUMBER" and "megabytes=NUMBER" at the end
give it a daily quota of its own ("unlimited": none). Tokens can also be given in the environment
variable LOCUS_SERVER_TOKENS, and the URL of the store in LOCUS_SERVER_STORE. Unlike options, variables do not appear
in process lists. LOCUS_SERVER_LOG_KEY is the key of the digests that stand for threads in logs; without it they differ
after each start. Without a token the server only accepts connections from this machine.

SIGHUP makes the server read its token file again. If that cannot be used, the tokens stay as they are.

The store can be another Locus server, http:// or https://. Its token comes from LOCUS_TOKEN, from the file that
LOCUS_TOKEN_FILE names, or from --store-token-file."""


def configure(command: argparse.ArgumentParser) -> None:
    command.description, command.epilog = _DESCRIPTION, _TOKENS
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    add = command.add_argument
    add("words", nargs="*", metavar="STORE", help="the store to serve, if it is not named with -s")
    add(
        "-s",
        "--store",
        metavar="URL",
        default=argparse.SUPPRESS,
        help="the store to serve: sqlite:///agents.db, postgresql://…, memory",
    )
    add("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    add("--port", type=int, default=8700, help="the port to listen on (8700)")
    add("--workers", type=int, default=1, metavar="N", help="the number of worker processes (1)")
    add("--token", action="append", default=[], metavar="TOKEN", help="a bearer token; may be repeated")
    add("--token-file", metavar="FILE", help="a file with one token per line; read again on SIGHUP")
    tokens.add_option(command, "--store-token-file", "the store, if that is at http(s)://")
    add("--max-body", type=float, default=64.0, metavar="MB", help="the largest request body (64)")
    add("--header-timeout", type=float, default=15.0, metavar="SECONDS", help="how long request headers may take (15)")
    add("--body-timeout", type=float, default=30.0, metavar="SECONDS", help="how long a request body may take (30)")
    add("--send-timeout", type=float, default=30.0, metavar="SECONDS", help="how long a client may not read (30)")
    add("--max-values", type=int, default=1_000_000, metavar="N", help="the most JSON values in a body (1000000)")
    add("--max-connections", type=int, default=500, metavar="N", help="the most connections of a process (500)")
    add("--rate-limit", metavar="RATE[/BURST]", help="the most requests per second of each token, in each process")
    add("--daily-saves", type=int, metavar="N", help="the most saves of each token in a day, UTC")
    add(
        "--daily-megabytes",
        type=float,
        metavar="MB",
        help="the most megabytes that each token may send to save in a day",
    )
    add("--quota-file", metavar="FILE", help="count these in a file, which is kept (while the server runs)")
    add("--audit", metavar="FILE", help="write which token did what to a file (-: standard output)")
    add("--inspector", action="store_true", help="also serve pages for people to look at threads, under /ui")
    add(
        "--inspector-write", action="store_true", help="let these pages fork, delete and vacuum, if the token may write"
    )
    add(
        "--inspector-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name under which people reach these pages, besides --host and localhost; may be repeated",
    )
    add(
        "--query-timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="how long a search or a list of threads may take (30)",
    )
    add(
        "--grace",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="how long shutdown waits for requests in progress (30)",
    )
    add("--log-level", default="info", choices=["debug", "info", "warning", "error"], help="(info)")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for module in ("starlette", "uvicorn", "prometheus_client", "httptools"):
        require(module, "server")
    if options.inspector:
        for module in ("jinja2", "markdown_it", "pygments"):
            require(module, "inspect")
    from locus.server.serving import serve

    serve(_config(options))
    return 0


def _config(options: argparse.Namespace) -> ServerConfig:
    from locus.server.config import ServerConfig, read_some_tokens
    from locus.server.logs import KEY_VARIABLE, key_from_environment

    store = _store(options)
    token_file = str(Path(options.token_file).absolute()) if options.token_file else None
    config = ServerConfig(
        store=store,
        host=options.host,
        port=options.port,
        workers=options.workers,
        tokens=_given_tokens(options.token),
        max_body_bytes=_bytes(options.max_body, "--max-body"),
        header_seconds=options.header_timeout,
        body_seconds=options.body_timeout,
        query_seconds=options.query_timeout,
        grace_seconds=options.grace,
        log_level=options.log_level,
        max_values=options.max_values,
        send_seconds=options.send_timeout,
        max_connections=options.max_connections,
        rate=options.rate_limit,
        audit=options.audit,
        log_key=key_from_environment(),
        token_file=token_file,
        file_tokens="" if token_file is None else read_some_tokens(token_file),
        store_token=tokens.token_for(store, options.store_token_file),
        daily_saves=options.daily_saves,
        daily_bytes=None if options.daily_megabytes is None else _bytes(options.daily_megabytes, "--daily-megabytes"),
        quota_file=options.quota_file,
        inspector=options.inspector,
        inspector_writes=options.inspector_write,
        inspector_hosts=tuple(options.inspector_host),
    )
    secret = (*stores.VARIABLES, TOKENS_VARIABLE, KEY_VARIABLE, tokens.TOKEN_VARIABLE)
    for name in secret:  # worker processes would inherit them
        os.environ.pop(name, None)
    return config


def _store(options: argparse.Namespace) -> str:
    """The URL of the store to serve. It must be named: a file in the folder is not served to others by chance."""
    from locus.transfer.stores import resolve_url

    words = list(options.words)
    named = stores.named_by_option(options) or (words.pop(0) if words else None)
    given = named or os.environ.get(STORE_VARIABLE) or os.environ.get(stores.VARIABLES[0])
    if words or not given:
        raise ConfigurationError("say where the threads are kept: --store sqlite:///agents.db")
    return resolve_url(given)


def _given_tokens(given: list[str]) -> str:
    """The tokens from the options and the variable. An empty one is refused: it would leave the server open."""
    from locus.server.auth import parse_tokens

    places = [("--token", text) for text in given]
    if TOKENS_VARIABLE in os.environ:
        places.append((f"the variable {TOKENS_VARIABLE}", os.environ[TOKENS_VARIABLE]))
    for place, text in places:
        if not parse_tokens(text):
            raise ConfigurationError(f"{place} holds no token: give one, or leave it out to serve without tokens")
    return "\n".join(text for _, text in places)


def _bytes(megabytes: float, option: str) -> int:
    if not 0 <= megabytes <= 2**40:  # which NaN is not, either
        raise ConfigurationError(f"{option} is a number of megabytes")
    return int(megabytes * 1024 * 1024)
