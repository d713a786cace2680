"""`locus bisect`: finds the checkpoint with which something came."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shlex
import signal
from typing import TYPE_CHECKING, Any

from locus.cli import commands
from locus.cli.commands import ExitCode
from locus.cli.terminal import ProgressLine, Styled, Terminal
from locus.errors import ConfigurationError
from locus.looking.formatting import ago, dotted, local_time, visible

if TYPE_CHECKING:
    from locus.looking.bisect import Bisected
    from locus.memory.model.records import Entry
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Find the checkpoint with which something came, on the line that leads to a thread's latest checkpoint (or to --to).

  locus bisect THREAD "refund approved"
  locus bisect THREAD --path metadata.status --equals '"closed"'
  locus bisect THREAD --run ./is-broken.sh

A text and a value are looked for in every checkpoint of the line, and what came, went and came again is told. A command
is run for a few of them, by halves: it gets the state as JSON on its standard input, and LOCUS_THREAD, LOCUS_CHECKPOINT
and LOCUS_NUMBER in its environment. Exit code 0 means that all is well, and 1 to 124 that it is broken. No shell is
used: for one, say `sh -c '…'`.
The exit code of `locus bisect` is 0 if a checkpoint was found, and 1 if there is none."""

_BROKEN = range(1, 125)
_TURN = 100
"""The number of checkpoints among which the question is looked for that the answer's turn began with."""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "THREAD", "TEXT", optional=1)
    what = command.add_mutually_exclusive_group()
    what.add_argument("--appears", metavar="TEXT", help="a text, anywhere in the payload: the same as TEXT")
    what.add_argument("--path", metavar="P", help="something at this path: metadata.status, messages.-1.role")
    what.add_argument("--run", dest="command", metavar="CMD", help="what this command finds broken")
    add = command.add_argument
    add("--equals", metavar="V", help="with --path: this value there, as JSON or plain text")
    add("--from", dest="first", metavar="REV", help="begin at this checkpoint of the line: its id, #NUMBER or ~STEPS")
    add("--to", dest="last", metavar="REV", help="end at this checkpoint (the latest)")
    commands.add_namespace(command)
    commands.add_utc(command)


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking import bisect
    from locus.looking.revisions import resolve, resolve_thread

    if options.equals is not None and options.path is None:
        raise ConfigurationError("--equals belongs to --path")
    thread_id = options.thread
    _take_text(options)

    async def named(text: str) -> Entry:
        return await resolve(store, thread_id, checkpoint=text.removeprefix(f"{thread_id}@"), namespace=options.ns)

    last = await (named(options.last) if options.last else resolve_thread(store, thread_id, options.ns))
    first = await named(options.first) if options.first else None
    line = await bisect.line_of(store, last, first)
    in_metadata = False
    if options.appears is not None:
        with ProgressLine(terminal.err, "checkpoints") as progress:
            answer = await bisect.bisect_text(store, line, options.appears, progress=progress.show)
    elif options.path is not None:
        wanted = ... if options.equals is None else _value(options.equals)
        with ProgressLine(terminal.err, "checkpoints") as progress:
            answer, in_metadata = await bisect.bisect_path(
                store, line, options.path.split("."), wanted, progress=progress.show
            )
    else:
        with ProgressLine(terminal.err, "runs") as progress:
            answer = await bisect.bisect_run(line, _test(store, options.command, progress))
    question = None if terminal.json else await _question(store, answer)
    _print(answer, options, terminal, question, in_metadata=in_metadata)
    return None if answer.first is not None else ExitCode.DIFFERS


def _take_text(options: argparse.Namespace) -> None:
    """Take TEXT for `--appears`, and refuse nothing to look for, or several things."""
    given = [what for what in (options.text, options.appears, options.path, options.command) if what is not None]
    if len(given) != 1:
        raise ConfigurationError("say one thing to look for: TEXT, --path P, or --run CMD")
    options.appears = options.appears if options.text is None else options.text


def _place(options: argparse.Namespace) -> list[str]:
    """The options `-s` and `--ns` with which another command finds the same thread."""
    store, namespace = getattr(options, "store", None) or getattr(options, "taken_for_store", None), options.ns
    return [*(["-s", store] if store else []), *(["--ns", namespace] if namespace is not None else [])]


def _end_at(entry: Entry, last: Entry) -> str:
    """The options that make the line end at a checkpoint of another line, which may be in another namespace."""
    where = [] if entry.namespace == last.namespace else ["--ns", entry.namespace]
    return shlex.join(["--to", f"#{entry.seq}", *where])


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _test(store: CheckpointStore, command: str, progress: ProgressLine) -> Any:
    """A test for `bisect_run`: true if the user's command finds a checkpoint broken."""
    from locus.memory.model.payloads import dict_from

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(f"the command of --run cannot be read: {error}") from None
    if not words:
        raise ConfigurationError("--run takes a command")
    runs = 0

    async def test(entry: Entry) -> bool:
        nonlocal runs
        stored = await store.read(entry.thread_id, entry.checkpoint_id, entry.namespace)
        if stored is None:
            raise await store.not_found(entry.thread_id, entry.checkpoint_id, entry.namespace)
        state = json.dumps(dict_from(stored), ensure_ascii=False).encode(errors="surrogatepass")
        about = {
            "LOCUS_THREAD": entry.thread_id,
            "LOCUS_CHECKPOINT": entry.checkpoint_id,
            "LOCUS_NUMBER": str(entry.seq),
        }
        usable = {name: value for name, value in about.items() if "\0" not in value}
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, env={**os.environ, **usable}
            )
        except OSError as error:
            raise ConfigurationError(f"the command of --run cannot be run: {error.strerror}") from None
        try:
            await process.communicate(state)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                await process.wait()
        runs += 1
        progress.show(runs)
        code = process.returncode
        if code == 0:
            return False
        if code in _BROKEN:
            return True
        raise ConfigurationError(
            f"the command of --run ended with {code} for #{entry.seq}: 0 means well, 1 to 124 means broken"
        )

    return test


async def _question(store: CheckpointStore, answer: Bisected) -> tuple[Entry, str] | None:
    """The checkpoint with which the turn of the answer began, and the question; None if that is not known."""
    from locus.looking.saves import saves_of
    from locus.looking.turns import turns_of

    first = answer.first
    if first is None:
        return None
    before = [entry for entry in answer.line if entry.seq <= first.seq]
    for turn in reversed(turns_of(await saves_of(store, before[-_TURN:]), newest=False)):
        question = turn.question
        if question is not None and any(save.entry.rev == first.rev for save in turn.saves):
            return next(save.entry for save in turn.saves if question in save.previews), question.text
    return None


def _print(
    answer: Bisected,
    options: argparse.Namespace,
    terminal: Terminal,
    question: tuple[Entry, str] | None,
    *,
    in_metadata: bool,
) -> None:
    from dataclasses import asdict

    from locus.memory.checkpointer import entry_dict

    first, before, elsewhere = answer.first, answer.before, answer.elsewhere
    if terminal.json:
        terminal.document(
            {
                "found": None if first is None else entry_dict(first),
                "before": None if before is None else entry_dict(before),
                "flips": [
                    {"seq": flip.entry.seq, "checkpoint_id": flip.entry.checkpoint_id, "holds": flip.holds}
                    for flip in answer.flips
                ],
                "looked_at": answer.looked_at,
                "line": len(answer.line),
                "in_metadata": in_metadata,
                "passage": None if answer.passage is None else asdict(answer.passage),
                "elsewhere": None if first is not None or elsewhere is None else entry_dict(elsewhere),
            }
        )
        return
    if first is None:
        terminal.line(f"not in any of {len(answer.line):,} checkpoints")
        if elsewhere is not None:
            terminal.text(f"but on another line, in #{elsewhere.seq}: {_end_at(elsewhere, answer.line[-1])}")
        return
    thread = visible(first.thread_id)
    terminal.line(
        Styled(f"{thread}@#{first.seq}", "strong"),
        "  ",
        Styled(visible(first.checkpoint_id), "id"),
        f"  {local_time(first.created_at, utc=options.utc)} ({ago(first.created_at)})",
    )
    if question is not None:
        terminal.text(f"asked in #{question[0].seq}: {question[1]}", "faint", indent="  ")
    passage = answer.passage
    if passage is not None:
        mark = re.compile(re.escape(visible(options.appears))) if options.appears else None
        who = passage.role if passage.in_conversation else dotted(passage.path)
        terminal.text(f"{who}: {passage.text}" if who else passage.text, indent="  ", mark=mark)
    if before is None:
        terminal.line("it is there from the first checkpoint of the line on")
    else:
        line = ["locus", "diff", *_place(options), *(f"{entry.thread_id}@#{entry.seq}" for entry in (before, first))]
        terminal.command(line)
    if in_metadata:
        terminal.text("it is in the metadata that checkpoints were saved with; the state has nothing there")
    if len(answer.flips) > 1:
        words = ", ".join(f"{'came' if flip.holds else 'went'} with #{flip.entry.seq}" for flip in answer.flips[:20])
        more = ", …" if len(answer.flips) > 20 else ""
        terminal.line(Styled(f"it {words}{more}", "warning"))
