"""`locus show`: shows a checkpoint."""

from __future__ import annotations

import argparse
import json
import re
from typing import TYPE_CHECKING, Any

from locus.cli import commands
from locus.cli.terminal import Cell, Styled, Terminal, columns_of
from locus.errors import ConfigurationError
from locus.looking.visible import one_line, visible
from locus.looking.wording import ago, bytes_text, clock

if TYPE_CHECKING:
    from locus.memory.model.parts import ItemPage
    from locus.memory.model.records import Entry, Stored
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Show a checkpoint: its conversation, its state, its pending writes, its metadata.

  locus show THREAD                     the latest checkpoint
  locus show THREAD@~3                  three before it
  locus show THREAD@#42 --messages 0:20
  locus show THREAD --state metadata"""

_LAST = 10
_MOST = 10_000
_SLICE = re.compile(r"(-?[0-9]{1,12})?:(-?[0-9]{1,12})?")
_LONG = 2_000
"""Characters of one message that are shown on a terminal."""


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


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.revisions import resolve

    entry = await resolve(store, options.rev, checkpoint=options.checkpoint, namespace=options.ns)
    if options.raw:
        await _raw(store, entry, terminal)
    elif options.state is not None:
        await _state(store, entry, options.state, terminal)
    elif options.writes:
        await _writes(store, entry, terminal)
    elif options.meta:
        from locus.memory.checkpointer import metadata_of

        terminal.document(metadata_of(entry))
    else:
        await _conversation(store, entry, options.messages, terminal)
    return None


def _header(entry: Entry, terminal: Terminal) -> None:
    from locus.looking.describe import metadata_shown

    metadata = metadata_shown(entry)
    facts: list[tuple[str, Cell]] = [
        ("thread", visible(entry.thread_id)),
        ("checkpoint", Styled(f"{visible(entry.checkpoint_id)} (#{entry.seq})", "id")),
        ("saved", f"{clock(entry.created_at)} ({ago(entry.created_at)})"),
        ("parent", visible(entry.parent_id) if entry.parent_id else "none"),
        ("namespace", visible(entry.namespace) or "(root)"),
    ]
    if metadata:
        facts.append(("metadata", one_line(json.dumps(metadata, ensure_ascii=False))))
    terminal.table(columns_of(facts))


async def _read(store: CheckpointStore, entry: Entry) -> Stored:
    stored = await store.read(entry.thread_id, entry.checkpoint_id, entry.namespace)
    if stored is None:
        raise await store.not_found(entry.thread_id, entry.checkpoint_id, entry.namespace)
    return stored


async def _conversation(store: CheckpointStore, entry: Entry, wanted: str | None, terminal: Terminal) -> None:
    from locus.looking.describe import dotted
    from locus.looking.reading import conversation

    start, count = _slice(wanted) if wanted is not None else (-_LAST, _LAST)
    found = await conversation(store, entry, start, count)
    if terminal.json:
        from locus.memory.checkpointer import entry_dict

        path, page = found or (None, None)
        shown = {} if path is None or page is None else {"path": list(path), **page._asdict()}
        terminal.document({**entry_dict(entry), "items": [], "total": 0, "start": 0, **shown})
        return
    _header(entry, terminal)
    terminal.line("")
    if found is None:
        terminal.note("this payload has no conversation that is known: --state shows all of it")
        return
    path, page = found
    if page.start:
        terminal.line(Styled(f"… {page.start:,} before these: --messages 0:{page.start}", "faint"))
    _turns(page, terminal)
    behind = page.total - page.start - len(page.items)
    if behind > 0:
        terminal.line(Styled(f"… {behind:,} more: --messages {page.total - behind}:", "faint"))
    if not page.items:
        terminal.line(
            Styled(f"{dotted(path)} is empty there" if not page.total else "nothing is in that range", "faint")
        )


def _turns(page: ItemPage, terminal: Terminal) -> None:
    from locus.memory.conversations import turn_of

    for at, item in enumerate(page.items, page.start):
        turn = turn_of(item)
        name = f" {visible(turn.name)}" if turn.name else ""
        terminal.line(Styled(f"[{at}] ", "faint"), Styled(f"{visible(turn.role) or '?'}{name}", turn.role or "faint"))
        if turn.text:
            long = len(turn.text) > _LONG and terminal.interactive
            terminal.text(turn.text[:_LONG] + "…" if long else turn.text, indent="    ")
        for call in turn.calls:
            arguments = json.dumps(call.arguments, ensure_ascii=False)
            terminal.line("    ", Styled(f"→ {visible(call.name)}", "tool"), f"({one_line(arguments, 400)})")


def _slice(text: str) -> tuple[int, int]:
    found = _SLICE.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"--messages takes A:B, such as 0:20 or -5:, got {text!r:.40}")
    start = int(found[1] or 0)
    if found[2] is None:
        return start, _MOST
    stop = int(found[2])
    if (start < 0) != (stop < 0):
        raise ConfigurationError("--messages A:B counts both from the front, or both from the end")
    return start, max(0, min(stop - start, _MOST))


async def _state(store: CheckpointStore, entry: Entry, path: str, terminal: Terminal) -> None:
    from locus.memory.model.payloads import dict_from

    value: Any = dict_from(await _read(store, entry))
    terminal.document(at_path(value, path) if path else value)


def at_path(value: Any, path: str) -> Any:
    """What is at a path, `a.b.0`, in a payload. A name that has a dot in it is found, too."""
    from locus.looking.paths import key_of, position_of

    names = path.split(".")
    while names:
        if isinstance(value, list) and (at := position_of(names[0], len(value))) is not None:
            value, names = value[at], names[1:]
        elif isinstance(value, dict) and (found := key_of(value, names)) is not None:
            value, names = value[found[0]], names[found[1] :]
        elif isinstance(value, list):
            raise ConfigurationError(
                f"nothing is at {path!r:.80}: the list before {names[0]!r:.40} has {len(value):,} items"
            )
        elif isinstance(value, dict):
            from locus.hints import did_you_mean

            raise ConfigurationError(f"nothing is at {path!r:.80}{did_you_mean(names[0], value)}")
        else:
            raise ConfigurationError(f"nothing is at {path!r:.80}: what comes before {names[0]!r:.40} has no parts")
    return value


async def _writes(store: CheckpointStore, entry: Entry, terminal: Terminal) -> None:
    from locus.memory.model.codec import decode

    writes = await store.get_writes(entry.thread_id, entry.checkpoint_id, task_id=None, namespace=entry.namespace)
    if terminal.json:
        for write in writes:
            terminal.record({**write._asdict(), "value": decode(write.value)})
        return
    _header(entry, terminal)
    terminal.line("")
    terminal.table(
        [
            [Styled(visible(w.task_id), "id"), str(w.idx), Styled(visible(w.channel), "tool"), one_line(w.value, 400)]
            for w in writes
        ]
    )
    if not writes:
        terminal.line(Styled("no pending writes", "faint"))


async def _raw(store: CheckpointStore, entry: Entry, terminal: Terminal) -> None:
    stored = await _read(store, entry)
    runs = [
        {
            "branch": run.branch,
            "number": run.number,
            "start": run.start,
            "length": run.length,
            "bytes": len(run.items.encode()),
        }
        for found in stored.runs.values()
        for run in found
    ]
    if terminal.json:
        terminal.document({"head": stored.head, "manifest": stored.manifest, "runs": runs})
        return
    _header(entry, terminal)
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
