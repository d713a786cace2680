"""`locus show`: shows a checkpoint."""

from __future__ import annotations

import argparse
import json
import re
from typing import TYPE_CHECKING

from locus.cli import commands
from locus.cli.terminal import Cell, Styled, Terminal, columns_of
from locus.core.media import bytes_text
from locus.errors import ConfigurationError
from locus.looking.formatting import ago, dotted, local_time, one_line, visible

if TYPE_CHECKING:
    from locus.memory.model.parts import ItemPage
    from locus.memory.model.records import Entry
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Show a checkpoint: its conversation, its state, its pending writes, its metadata.

  locus show THREAD                     the latest checkpoint
  locus show THREAD@14:03               what was known at 14:03 today
  locus show THREAD@2026-11-18T14:03    and on another day; @yesterday at its end
  locus show THREAD@~3                  three before it
  locus show THREAD@#42 --messages 0:20
  locus show THREAD --state metadata"""

_LAST = 10
_MOST = 10_000
_SLICE = re.compile(r"(-?[0-9]{1,12})?:(-?[0-9]{1,12})?")
_LONG = 2_000
"""The most characters of one message on a terminal."""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "REV")
    what = command.add_mutually_exclusive_group()
    what.add_argument("--messages", metavar="A:B", help=f"these messages, counted from 0 (the last {_LAST})")
    what.add_argument(
        "--state", nargs="?", const="", metavar="PATH", help="the state as JSON, or what is at a path in it: a.b.0"
    )
    what.add_argument("--writes", action="store_true", help="the pending writes")
    what.add_argument("--meta", action="store_true", help="the metadata")
    what.add_argument("--raw", action="store_true", help="what is stored: head, manifest and runs")
    commands.add_checkpoint(command)
    commands.add_namespace(command)
    commands.add_utc(command)


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.revisions import resolve

    entry = await resolve(store, options.rev, checkpoint=options.checkpoint, namespace=options.ns)
    if options.raw:
        await _raw(store, entry, options, terminal)
    elif options.state is not None:
        await _state(store, entry, options.state, terminal)
    elif options.writes:
        await _writes(store, entry, options, terminal)
    elif options.meta:
        from locus.memory.checkpointer import metadata_of

        terminal.document(metadata_of(entry))
    else:
        await _conversation(store, entry, options, terminal)
    return None


def _header(entry: Entry, options: argparse.Namespace, terminal: Terminal) -> None:
    from locus.looking.histories import readable_metadata

    metadata = readable_metadata(entry)
    facts: list[tuple[str, Cell]] = [
        ("thread", visible(entry.thread_id)),
        ("checkpoint", Styled(f"{visible(entry.checkpoint_id)} (#{entry.seq})", "id")),
        ("saved", f"{local_time(entry.created_at, utc=options.utc)} ({ago(entry.created_at)})"),
        ("parent", visible(entry.parent_id) if entry.parent_id else "none"),
        ("namespace", visible(entry.namespace) or "(root)"),
    ]
    if metadata:
        facts.append(("metadata", one_line(json.dumps(metadata, ensure_ascii=False))))
    terminal.table(columns_of(facts))


async def _conversation(store: CheckpointStore, entry: Entry, options: argparse.Namespace, terminal: Terminal) -> None:
    from locus.looking.reading import conversation

    start, count = _slice(options.messages) if options.messages is not None else (-_LAST, _LAST)
    path_and_page = await conversation(store, entry, start, count)
    if terminal.json:
        from locus.memory.checkpointer import entry_dict

        path, page = path_and_page or (None, None)
        shown = {} if path is None or page is None else {"path": list(path), **page._asdict()}
        terminal.document({**entry_dict(entry), "items": [], "total": 0, "start": 0, **shown})
        return
    _header(entry, options, terminal)
    terminal.line("")
    if path_and_page is None:
        terminal.note("this payload has no conversation that is known: --state shows all of it")
        return
    path, page = path_and_page
    if page.start:
        terminal.line(Styled(f"… {page.start:,} before these: --messages 0:{page.start}", "faint"))
    _items(page, terminal)
    behind = page.total - page.start - len(page.items)
    if behind > 0:
        terminal.line(Styled(f"… {behind:,} more: --messages {page.total - behind}:", "faint"))
    if not page.items:
        terminal.line(
            Styled(f"{dotted(path)} is empty there" if not page.total else "nothing is in that range", "faint")
        )


def _items(page: ItemPage, terminal: Terminal) -> None:
    from locus.looking.tool_calls import call_label, on_one_line, speaker_of
    from locus.memory.conversations import utterances_of

    for position, item in enumerate(page.items, page.start):
        for said in utterances_of(item):
            role = said.role or "faint"
            name = "error of " if said.failed else ""
            terminal.line(Styled(f"[{position}] ", "faint"), Styled(name + visible(speaker_of(said)), role))
            if said.text:
                long = len(said.text) > _LONG and terminal.interactive
                terminal.text(said.text[:_LONG] + "…" if long else said.text, indent="    ")
            for call in said.calls:
                arguments = one_line(on_one_line(call.arguments), 400)
                terminal.line("    ", Styled(visible(call_label(call)), "tool"), f"({arguments})")


def _slice(text: str) -> tuple[int, int]:
    bounds = _SLICE.fullmatch(text)
    if bounds is None:
        raise ConfigurationError(f"--messages takes A:B, such as 0:20 or -5:, got {text!r:.40}")
    start = int(bounds[1] or 0)
    if bounds[2] is None:
        return start, _MOST
    stop = int(bounds[2])
    if (start < 0) != (stop < 0):
        raise ConfigurationError("--messages A:B counts both from the front, or both from the end")
    return start, max(0, min(stop - start, _MOST))


async def _state(store: CheckpointStore, entry: Entry, path: str, terminal: Terminal) -> None:
    from locus.looking.reading import at_path, read_whole
    from locus.memory.model.payloads import dict_from

    value = dict_from(await read_whole(store, entry))
    terminal.document(at_path(value, path) if path else value)


async def _writes(store: CheckpointStore, entry: Entry, options: argparse.Namespace, terminal: Terminal) -> None:
    from locus.memory.model.codec import decode

    writes = await store.get_writes(entry.thread_id, entry.checkpoint_id, task_id=None, namespace=entry.namespace)
    if terminal.json:
        for write in writes:
            terminal.record({**write._asdict(), "value": decode(write.value)})
        return
    _header(entry, options, terminal)
    terminal.line("")
    terminal.table(
        [
            [
                Styled(visible(write.task_id), "id"),
                str(write.idx),
                Styled(visible(write.channel), "tool"),
                one_line(write.value, 400),
            ]
            for write in writes
        ]
    )
    if not writes:
        terminal.line(Styled("no pending writes", "faint"))


async def _raw(store: CheckpointStore, entry: Entry, options: argparse.Namespace, terminal: Terminal) -> None:
    from locus.looking.reading import read_whole

    stored = await read_whole(store, entry)
    runs = [
        {
            "branch": run.branch,
            "number": run.number,
            "start": run.start,
            "length": run.length,
            "bytes": len(run.items.encode()),
        }
        for branch in stored.runs.values()
        for run in branch
    ]
    if terminal.json:
        terminal.document({"head": stored.head, "manifest": stored.manifest, "runs": runs})
        return
    _header(entry, options, terminal)
    for name, text in (("head", stored.head), ("manifest", stored.manifest)):
        terminal.line("")
        terminal.line(Styled(name, "strong"), f"  {bytes_text(len(text.encode()))}")
        terminal.text(text, indent="    ")
    terminal.line("")
    terminal.table(
        [
            [
                Styled(visible(str(run["branch"])), "id"),
                f"run {run['number']}",
                f"{run['length']} items from {run['start']}",
                bytes_text(float(str(run["bytes"]))),
            ]
            for run in runs
        ]
    )
