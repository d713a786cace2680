"""`locus inspect`: shows the threads of a store in the browser."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
import webbrowser
from contextlib import suppress
from typing import TYPE_CHECKING

from locus.cli import commands, stores, tokens
from locus.extras import require

if TYPE_CHECKING:
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Show the threads of a store in the browser: what each checkpoint knew, what changed, where it went wrong.

  locus inspect sqlite:///agents.db
  locus inspect --no-open --port 0

It prints a link that works once, within ten minutes, and opens it. The pages are for this machine only. They change
nothing: with --write they can fork, delete and vacuum. Ctrl-C ends it."""


def configure(command: argparse.ArgumentParser) -> None:
    command.description, command.epilog = _DESCRIPTION, stores.HELP
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.usage = f"{command.prog} [STORE] [OPTIONS]"
    command.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    stores.add_options(command)
    add = command.add_argument
    add("--port", type=commands.number(0, 65_535), default=8710, metavar="N", help="the port to listen on (8710)")
    add("--no-open", action="store_true", help="do not open the browser, only print the link")
    add("--write", action="store_true", help="let the pages fork, delete and vacuum")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for module in ("starlette", "uvicorn", "prometheus_client", "httptools", "jinja2", "markdown_it", "pygments"):
        require(module, "inspect")
    from locus.server.inspector.serving import serve

    for word in options.words:
        if not stores.is_store(word):
            raise commands.UsageError(f"{word!r:.80} is no store: give its URL, such as sqlite:///agents.db")
    url, rest = stores.take_store(options, options.words)
    if rest:
        raise commands.UsageError("several stores are named: locus inspect [STORE] [OPTIONS]")
    asyncio.run(_try(url, options))

    def announce(address: str) -> None:
        sys.stdout.write(f"open {address}\n")
        sys.stdout.flush()
        if not options.no_open and _has_screen():
            # Some browsers are waited for.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    with suppress(KeyboardInterrupt):  # which is how it is ended
        serve(_store(url, options), port=options.port, writes=options.write, announce=announce)
    return commands.ExitCode.DONE


async def _try(url: str, options: argparse.Namespace) -> None:
    """Refuse a store that cannot be used, before anybody opens a page."""
    async with stores.opened(url, options) as store, store.using():
        pass


def _store(url: str, options: argparse.Namespace) -> CheckpointStore:
    from locus.transfer.stores import open_store, open_to_read

    token = tokens.token_for(url, options.token_file)
    return open_store(url, token) if options.write else open_to_read(url, token)


def _has_screen() -> bool:
    """True if there is a screen for a browser. A browser for terminals would take this terminal over."""
    on_desktop = sys.platform in ("darwin", "win32") or "BROWSER" in os.environ
    return on_desktop or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
