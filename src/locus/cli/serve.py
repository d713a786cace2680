"""`locus serve`: serves the threads of a store over HTTP."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from locus.errors import ConfigurationError
from locus.extras import require

if TYPE_CHECKING:
    from locus.server.config import ServerConfig

_DESCRIPTION = """\
Serve the threads of a store over HTTP.

  locus serve --store sqlite:///agents.db --port 8700

In Python: HTTPCheckpointer("http://127.0.0.1:8700"). The API is described by /openapi.json."""

_TOKENS = """\
A token is written as "TOKEN [read|write [PREFIX]]". It allows reading or writing (default: write) the threads whose
ids begin with the prefix (default: all); a prefix ends with / or :. Tokens can also be given in the environment
variable LOCUS_SERVER_TOKENS, and the URL of the store in LOCUS_SERVER_STORE. Unlike options, variables do not appear
in process lists. Without a token the server only accepts connections from this machine."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "serve",
        help="serve the threads of a store over HTTP",
        description=_DESCRIPTION,
        epilog=_TOKENS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command.add_argument
    add("--store", metavar="URL", help="the store to serve: sqlite:///agents.db, postgresql://…, memory")
    add("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    add("--port", type=int, default=8700, help="the port to listen on (8700)")
    add("--workers", type=int, default=1, metavar="N", help="the number of worker processes (1)")
    add("--token", action="append", default=[], metavar="TOKEN", help="a bearer token; may be repeated")
    add("--token-file", metavar="FILE", help="a file with one token per line")
    add("--max-body", type=float, default=64.0, metavar="MB", help="the largest request body (64)")
    add("--header-timeout", type=float, default=15.0, metavar="SECONDS", help="how long request headers may take (15)")
    add("--body-timeout", type=float, default=30.0, metavar="SECONDS", help="how long a request body may take (30)")
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
    from locus.server.serving import serve

    serve(_config(options))
    return 0


def _config(options: argparse.Namespace) -> ServerConfig:
    from locus.server.config import ServerConfig

    store = options.store or os.environ.get("LOCUS_SERVER_STORE")
    if not store:
        raise ConfigurationError("say where the threads are kept: --store sqlite:///agents.db")
    return ServerConfig(
        store=store,
        host=options.host,
        port=options.port,
        workers=options.workers,
        tokens=_tokens(options),
        max_body_bytes=int(options.max_body * 1024 * 1024),
        header_seconds=options.header_timeout,
        body_seconds=options.body_timeout,
        query_seconds=options.query_timeout,
        grace_seconds=options.grace,
        log_level=options.log_level,
    )


def _tokens(options: argparse.Namespace) -> str:
    from locus.memory.model.arguments import possible_path

    lines = [*options.token, os.environ.get("LOCUS_SERVER_TOKENS", "")]
    if options.token_file:
        with possible_path(options.token_file):
            lines.append(Path(options.token_file).read_text(encoding="utf-8"))
    return "\n".join(lines)
