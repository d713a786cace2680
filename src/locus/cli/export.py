"""`locus export`: writes threads to a file."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from locus.cli import commands
from locus.cli.terminal import ProgressLine, Terminal
from locus.errors import ConfigurationError
from locus.memory.runtime.private import create_file

if TYPE_CHECKING:
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Write threads to a file, or to standard output.

  jsonl    every checkpoint with its history, forks and pending writes; `locus import jsonl` reads it back
  json     the state of each checkpoint that is named
  md, html the conversation of each checkpoint that is named, to hand on; html is one page that needs nothing else

  locus export THREAD OTHER-THREAD -o threads.jsonl
  locus export '*' -o all.jsonl
  locus export THREAD@~3 --format html -o talk.html"""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "THREAD", many=True)
    command.add_argument("-o", "--output", metavar="FILE", help="the file to write; it must not exist yet")
    command.add_argument(
        "--format", choices=["jsonl", "json", "md", "markdown", "html"], help="(by the file's ending, or jsonl)"
    )
    commands.add_namespace(command)


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    if not options.thread:
        raise commands.UsageError("name the threads to export")
    format_named = "md" if options.format == "markdown" else options.format
    kind = format_named or _by_ending(options.output) or ("json" if options.json else "jsonl")
    options.thread = await _named(store, options.thread)
    if kind == "jsonl" and options.ns is not None:
        raise ConfigurationError("jsonl has every namespace of a thread: --ns is for the other formats")
    if options.output is None:
        if not terminal.interactive and isinstance(sys.stdout, io.TextIOWrapper):
            # What is read back is UTF-8, whatever this machine prefers. A terminal shows what it can.
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogatepass")
        await _write(store, options, kind, sys.stdout, terminal)
        return None
    with new_file(options.output) as file:
        await _write(store, options, kind, file, terminal)
    return None


async def _named(store: CheckpointStore, words: Sequence[str]) -> list[str]:
    """The threads that are named, and those that match patterns. The id of a thread may look like a pattern."""
    names: list[str] = []
    for word in words:
        if not {"*", "?"} & set(word) or await store.history(word, 1, None, None):
            names.append(word)
            continue
        matching = await store.list_threads(None, word)
        if not matching:
            raise ConfigurationError(f"no thread matches {word!r:.80}")
        names += matching
    return list(dict.fromkeys(names))


@contextmanager
def new_file(name: str) -> Iterator[TextIO]:
    """A new file that gets its name only when it is complete. An existing file is not replaced."""
    target = Path(name)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        if target.exists():
            raise FileExistsError
        # For its owner, like a store on this machine.
        with os.fdopen(create_file(part), "w", encoding="utf-8", errors="surrogatepass") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(part, target)
    except FileExistsError:
        raise ConfigurationError(f"{name!r:.200} exists already: choose another file") from None
    except OSError as error:
        raise ConfigurationError(f"{name!r:.200} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def _by_ending(name: str | None) -> str | None:
    ending = Path(name or "").suffix.lower().removeprefix(".")
    return {"jsonl": "jsonl", "json": "json", "md": "md", "markdown": "md", "html": "html", "htm": "html"}.get(ending)


async def _write(
    store: CheckpointStore, options: argparse.Namespace, kind: str, file: TextIO, terminal: Terminal
) -> None:
    if kind == "jsonl":
        await _write_lines(store, options, file, terminal)
        return
    from locus.looking.reading import read_conversation, read_whole
    from locus.looking.revisions import resolve

    entries = [await resolve(store, text, namespace=options.ns) for text in options.thread]
    if kind == "json":
        from locus.memory.checkpointer import entry_dict
        from locus.memory.model.payloads import dict_from

        documents = [{**entry_dict(entry), "state": dict_from(await read_whole(store, entry))} for entry in entries]
        terminal_json = Terminal(file, terminal.err, json=True, interactive=file is sys.stdout and terminal.interactive)
        terminal_json.document(documents[0] if len(documents) == 1 else documents)
        terminal_json.flush()
        return
    from locus.looking.documents import markdown, page

    conversations = [await read_conversation(store, entry) for entry in entries]
    file.write(markdown(conversations) if kind == "md" else page(conversations))


async def _write_lines(store: CheckpointStore, options: argparse.Namespace, file: TextIO, terminal: Terminal) -> None:
    from locus.looking.documents import exported_lines
    from locus.looking.revisions import resolve_thread

    with ProgressLine(terminal.err, "lines") as progress:
        count = 0
        for thread_id in dict.fromkeys(options.thread):
            written = 0
            lines: AsyncGenerator[str, None] = exported_lines(store, thread_id)
            async with aclosing(lines):
                async for line in lines:
                    # On a terminal nothing may drive it, and JSON has escapes for that.
                    shown = json.dumps(json.loads(line)) if file is sys.stdout and terminal.interactive else line
                    file.write(f"{shown}\n")
                    written += 1
                    progress.show(count + written)
            if not written:
                await resolve_thread(store, thread_id)  # which says that there is none
            count += written
