"""`locus serve`: a server of the threads of a store."""

from __future__ import annotations

import argparse
import os
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
A token is given as "TOKEN [read|write [PREFIX]]": what it allows (write), and the threads that it reaches, by the
beginning of their ids (all); a prefix ends with / or :. Tokens may also stand in the variable LOCUS_SERVER_TOKENS,
and the store's URL in LOCUS_SERVER_STORE; unlike options, those are not shown in lists of processes. Without a
token the server can be reached from this machine only."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "serve",
        help="serve the threads of a store over HTTP",
        description=_DESCRIPTION,
        epilog=_TOKENS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command.add_argument
    add("--store", metavar="URL", help="where the threads are kept: sqlite:///agents.db, postgresql://…, memory")
    add("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    add("--port", type=int, default=8700, help="the port to listen on (8700)")
    add("--workers", type=int, default=1, metavar="N", help="processes that share the work (1)")
    add("--token", action="append", default=[], metavar="TOKEN", help="a bearer token; may be repeated")
    add("--token-file", metavar="FILE", help="a file with a token a line")
    add("--max-body", type=float, default=64.0, metavar="MB", help="the largest body of a request (64)")
    add("--header-timeout", type=float, default=15.0, metavar="SECONDS", help="until headers have to be there (15)")
    add("--body-timeout", type=float, default=30.0, metavar="SECONDS", help="until a body has to be there (30)")
    add("--grace", type=float, default=30.0, metavar="SECONDS", help="to finish what was begun, at the end (30)")
    add("--log-level", default="info", choices=["debug", "info", "warning", "error"], help="(info)")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for module in ("starlette", "uvicorn", "prometheus_client", "httptools"):
        require(module, "server")
    from locus.server.serving import serve

    serve(_options(options))
    return 0


def _options(given: argparse.Namespace) -> ServerConfig:
    from locus.server.config import ServerConfig

    store = given.store or os.environ.get("LOCUS_SERVER_STORE")
    if not store:
        raise ConfigurationError("say where the threads are kept: --store sqlite:///agents.db")
    return ServerConfig(
        store=store,
        host=given.host,
        port=given.port,
        workers=given.workers,
        tokens=_tokens(given),
        max_body_bytes=int(given.max_body * 1024 * 1024),
        header_seconds=given.header_timeout,
        body_seconds=given.body_timeout,
        grace_seconds=given.grace,
        log_level=given.log_level,
    )


def _tokens(given: argparse.Namespace) -> str:
    from pathlib import Path

    from locus.memory.model.arguments import possible_path

    lines = [*given.token, os.environ.get("LOCUS_SERVER_TOKENS", "")]
    if given.token_file:
        with possible_path(given.token_file):
            lines.append(Path(given.token_file).read_text(encoding="utf-8"))
    return "\n".join(lines)
