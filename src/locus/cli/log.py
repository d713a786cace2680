"""`locus log`: lists the checkpoints of a thread."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from locus.cli import commands
from locus.cli.terminal import Cell, Styled, Terminal, text_of
from locus.errors import ConfigurationError
from locus.looking.formatting import clock, cut, dotted, one_line, visible

if TYPE_CHECKING:
    from locus.looking.previews import Preview
    from locus.looking.turns import Save, Turn
    from locus.memory.model.records import Entry
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Say what was said in a thread, newest first: the number of each checkpoint, its time, and what it added.

  →  a call   ←  its result   ✗  an error   ◷  a question to a person   ⑂  another way from an earlier checkpoint

  locus log THREAD --graph         with its forks, as git draws them
  locus log THREAD --stat          what became longer, and the metadata
  locus log THREAD --follow        and wait for new ones
  locus log THREAD --until 14:03   what was said by then"""

_MOST = 8
"""The most rows of one checkpoint."""
_SPEAKER = 12
_WITH_FACTS = 60
"""The columns of a terminal from which on there is room for tokens, times and the like."""
_MADE, _SHORT = 20, 10
"""The length of the ids that Locus makes, and the part of them that is shown. Other ids are shown whole."""
_PAGE = 500


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "THREAD")
    add = command.add_argument
    add("--graph", action="store_true", help="draw the lines of the history and its forks")
    add("--stat", action="store_true", help="show ids, metadata, and how many items each list became longer")
    add("--all", action="store_true", help="also list checkpoints that added no words")
    commands.add_utc(command)
    commands.add_namespace(command)
    add("--all-ns", action="store_true", help="list the checkpoints of all namespaces")
    commands.add_limit(command)
    add("--before", metavar="REV", help="only checkpoints older than this one: its id, #NUMBER or ~STEPS")
    add(
        "--until",
        type=moment,
        metavar="TIME",
        help="only what was saved by then: 14:03, yesterday, '2026-11-16 14:03', 90min",
    )
    add("--follow", action="store_true", help="wait for new checkpoints, and list them as they come")


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.revisions import checkpoint_of, namespace_of, resolve, resolve_thread
    from locus.memory.origins import origin_of

    if options.follow and (options.before is not None or options.until is not None):
        raise ConfigurationError("--follow waits for what comes next; it goes with neither --before nor --until")
    thread_id = options.thread
    namespace = None
    if options.all_ns:
        if not await store.history(thread_id, 1, None, None):
            await resolve_thread(store, thread_id)  # which says that there is none
    else:
        namespace = await namespace_of(store, thread_id, options.ns)
        if options.ns is not None:
            await resolve_thread(store, thread_id, namespace)
    before_seq = None
    if options.before is not None:
        meant = checkpoint_of(thread_id, options.before.removeprefix(f"{thread_id}@"))
        before_seq = meant.number
        if before_seq is None:
            before = await resolve(
                store, thread_id, checkpoint=options.before.removeprefix(f"{thread_id}@"), namespace=namespace
            )
            before_seq = before.seq
    if options.until is not None:
        if options.until > datetime.now(UTC) + timedelta(minutes=1):
            terminal.note("that time is still to come: for an earlier day, say '2026-11-16 14:03'")
        before_seq = await _first_after(store, thread_id, namespace, before_seq, options.until)
    async with store.using() as engine:
        page = await engine.history(thread_id, namespace, options.limit + 1, before_seq)
    entries = page[: options.limit]
    if not entries:
        terminal.note("no checkpoints by then" if options.until is not None else "no checkpoints before that")
    await _print(store, options, terminal, entries, latest=before_seq is None)
    if len(page) > options.limit and not terminal.json and not options.follow:
        terminal.note(f"older ones: --before '#{entries[-1].seq}'")
    elif not terminal.json:
        origin = await origin_of(store, thread_id)
        if origin is not None:
            terminal.note(f"forked from {visible(origin.thread_id)}@{visible(origin.checkpoint_id)}")
    if options.follow:
        terminal.flush()
        await _follow(store, options, terminal, namespace, entries[0].seq if entries else 0)
    return None


async def _first_after(
    store: CheckpointStore, thread_id: str, namespace: str | None, before_seq: int | None, until: datetime
) -> int | None:
    """The number of the first checkpoint after a moment: the oldest in an unbroken series of newest ones."""
    while True:
        async with store.using() as engine:
            page = await engine.history(thread_id, namespace, _PAGE, before_seq)
        for entry in page:
            if entry.created_at <= until:
                return before_seq
            before_seq = entry.seq
        if len(page) < _PAGE:
            return before_seq


def moment(text: str) -> datetime:
    """A type for argparse: a time of today or a date and time, both local, or an age such as `90min`."""
    from locus.cli.vacuum import age
    from locus.looking.revisions import local_moment

    with suppress(argparse.ArgumentTypeError, OverflowError):
        return datetime.now().astimezone() - timedelta(days=age(text))
    meant = local_moment(text)
    if meant is None:
        raise argparse.ArgumentTypeError("a time: 14:03, yesterday, '2026-11-16 14:03', or how long ago: 90min, 2h, 3d")
    return meant


def beginning(text: str) -> datetime:
    """A type for argparse: as `moment`, but the beginning of the minute, the second or the day that is named."""
    from locus.looking.revisions import beginning_of

    return beginning_of(moment(text), text)


async def _print(
    store: CheckpointStore, options: argparse.Namespace, terminal: Terminal, entries: Sequence[Entry], *, latest: bool
) -> None:
    from locus.looking.graph import Node, drawn
    from locus.looking.saves import saves_of
    from locus.looking.turns import turns_of

    saves = await saves_of(store, entries)
    turns = turns_of(saves, newest=latest)
    if terminal.json:
        for save in saves:
            terminal.record(_record(save, turns, grown=options.stat))
        return
    shown = _Shown(options, terminal, entries, turns, latest=latest)
    rows: list[list[Cell]] = []
    if options.graph:
        of_node = {Node.of(save.entry): save for save in saves}
        for row in drawn(list(of_node)):
            if row.node is None:
                rows.append([row.lanes])
                continue
            rows += [[row.lanes, *cells] for cells in shown.rows(of_node[row.node])]
    else:
        with_words = [save for save in saves if save.previews]
        told = saves if options.all or options.stat or not with_words else with_words
        for save in told:
            rows += shown.rows(save)
        if len(told) < len(saves):
            terminal.note(f"{len(saves) - len(told):,} more without words: --all")
    terminal.table(rows)


def _record(save: Save, turns: Sequence[Turn], *, grown: bool) -> dict[str, Any]:
    """A row as JSON."""
    from dataclasses import asdict

    from locus.memory.checkpointer import entry_dict

    status = [turn.status for turn in turns if turn.saves[-1] is save and turn.status is not None]
    facts = {name: value for name, value in asdict(save.facts).items() if value is not None}
    added = {"added": {dotted(path): by for path, by in save.grown.items()}} if grown else {}
    said = [{**asdict(preview), "line": preview.line} for preview in save.previews]
    return {**entry_dict(save.entry), "said": said, **facts, **({"status": status[-1]} if status else {}), **added}


@dataclass
class _Shown:
    """How the checkpoints of a page are shown."""

    options: argparse.Namespace
    terminal: Terminal
    entries: Sequence[Entry]
    turns: Sequence[Turn]
    latest: bool
    """Whether the first of them is the latest of the thread."""

    def rows(self, save: Save) -> list[list[Cell]]:
        """The rows of a save: one for each thing that was said; one in all, with `--stat` and in a drawing."""
        entry, options = save.entry, self.options
        newest = self.latest and entry == self.entries[0]
        begins: list[Cell] = [Styled(f"#{entry.seq}", "latest" if newest else "strong")]
        if options.stat:
            begins.append(Styled(visible(short_id(entry.checkpoint_id, self.entries)), "id"))
        begins.append(Styled(clock(entry.created_at, utc=options.utc), "faint"))
        if options.all_ns:
            begins.append(visible(entry.namespace) or "(root)")
        if options.stat:
            return [[*begins, self._grown(save, newest)]]
        rows = save.rows
        said: list[list[Cell]] = [[*_said(preview, line)] for preview, line in rows[-_MOST:]]
        if len(rows) > _MOST or save.added > len(save.previews):
            said.insert(0, ["", Styled(f"… {max(save.added, len(rows)):,} in all: locus show says them", "faint")])
        if options.graph and len(said) > 1:
            said = [[said[0][0], " · ".join(text_of(words) for _, words in said)]]
        said = said or [["", Styled(self._quiet(save), "faint")]]
        said[0][1] = self._after_fork(save, said[0][1])
        facts = self._facts(save)
        if facts and self.terminal.interactive:
            said[-1] += [Styled(facts, "faint")] if self.terminal.columns >= _WITH_FACTS else []
        elif facts:
            said[-1][1] = f"{text_of(said[-1][1])}  ({facts})"
        blank: list[Cell] = [""] * len(begins)
        return [[*(blank if at else begins), *cells] for at, cells in enumerate(said)]

    def _grown(self, save: Save, newest: bool) -> str:
        from locus.looking.histories import about

        words = [f"{by:+} {dotted(path)}" for path, by in save.grown.items()]
        said = ", ".join([*words, *filter(None, [about(save.entry)])])
        return one_line(f"latest {said}" if newest else said)

    def _quiet(self, save: Save) -> str:
        from locus.looking.histories import about

        return one_line(about(save.entry)) or "nothing was said"

    def _after_fork(self, save: Save, cell: Cell) -> Cell:
        from_id = next((turn.forked_from for turn in self.turns if turn.saves[0] is save), None)
        if from_id is None or self.options.graph:
            return cell
        seq = next((entry.seq for entry in self.entries if entry.checkpoint_id == from_id), None)
        mark = f"⑂ from {visible(from_id) if seq is None else f'#{seq}'}: "
        return Styled(mark + cell.text, cell.style) if isinstance(cell, Styled) else mark + cell

    def _facts(self, save: Save) -> str:
        from locus.looking.formatting import facts_text
        from locus.looking.turns import Status

        status = [turn.status for turn in self.turns if turn.saves[-1] is save]
        open_ended = [one for one in status if one not in (None, Status.ANSWERED, Status.WAITING)]
        words = [str(open_ended[-1])] if open_ended else []
        facts = save.facts
        return " · ".join([*words, *facts_text(facts.tokens, facts.model, facts.cost, facts.seconds)])


def _said(preview: Preview, line: str) -> tuple[Cell, Cell]:
    """The speaker, and what is said."""
    from locus.looking.previews import Kind

    words = one_line(line)
    if preview.kind in (Kind.CALLED, Kind.RETURNED):
        return "", Styled(words, "tool")
    if preview.kind is Kind.FAILED:
        return "", Styled(words, "error")
    if preview.kind is Kind.WAITS:
        return "", Styled(words, "warning")
    speaker = preview.name if preview.name and preview.role == "assistant" else preview.role or "item"
    return Styled(cut(one_line(speaker), _SPEAKER), preview.role), words


def short_id(checkpoint_id: str, entries: Sequence[Entry]) -> str:
    """The beginning of an id that tells it from the others on the page."""
    short = checkpoint_id[:_SHORT]
    alone = sum(entry.checkpoint_id.startswith(short) for entry in entries) == 1
    return short if alone and len(checkpoint_id) == _MADE and checkpoint_id.isalnum() else checkpoint_id


async def _follow(
    store: CheckpointStore, options: argparse.Namespace, terminal: Terminal, namespace: str | None, seen: int
) -> None:
    from locus.looking.histories import Following

    following = Following(store, options.thread, namespace, seen)
    while True:
        await asyncio.sleep(following.pause)
        fresh = await following.look()
        for entry in fresh:
            await _print(store, options, terminal, [entry], latest=entry is fresh[-1])
        terminal.flush()
