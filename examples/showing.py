"""How the demo looks."""

from __future__ import annotations

import signal
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from examples.costing import EARLY, FRESH, Cost
from examples.talking import shown
from locus.memory.checkpointer import HistoryEntry
from locus.memory.diffs import StateDiff

COLOURS = {"user": "cyan", "assistant": "green", "tool": "yellow"}
BAR = 44


def console(plain: bool) -> Console:
    """As wide as the terminal, up to 100 columns; 100 where there is none."""
    terminal = sys.stdout.isatty()
    made = Console(color_system=None if plain else "auto", highlight=False)
    made.width = min(made.width, 100) if terminal else 100
    return made


def title(console: Console, number: int, text: str) -> None:
    console.rule(f"[bold]{number}[/]  {text}", align="left", style="blue")
    console.print()


def saved(console: Console, event: dict[str, Any]) -> None:
    """A message that was saved, in one line."""
    line = Text("  ")
    line.append(f"{event['role']:<10}", COLOURS.get(event["role"], ""))
    line.append(event["text"])
    line.truncate(console.width - 32, overflow="ellipsis", pad=True)
    line.append(f"  saved {event['checkpoint_id'][:8]}… {event['ms']:5.1f} ms", "dim")
    console.print(line, no_wrap=True)


def killed(console: Console, pid: int, code: int, last: dict[str, Any]) -> None:
    console.print()
    moment = "in the middle of a turn" if last["messages"] % 4 else "between two turns"
    title(console, 2, f"SIGKILL, {moment}")
    name = signal.Signals(-code).name if code < 0 else "no signal"
    console.print(f"  process {pid} is gone: return code [bold red]{code}[/] ({name})")
    console.print(f"  it had acknowledged {last['messages']} messages; the last as {last['checkpoint_id']}:")
    console.print(f"  [{COLOURS[last['role']]}]{last['role']}[/]  {escape(last['text'])}\n")


def found(console: Console, event: dict[str, Any], acknowledged: int) -> None:
    console.print(f"  process {event['pid']} found {event['messages']} messages ({acknowledged} were acknowledged)")
    console.print(f"  its latest checkpoint is {event['checkpoint_id']}, and it goes on from there:\n")


def history(console: Console, rows: Sequence[tuple[HistoryEntry, int] | None]) -> None:
    """Checkpoints with the number of messages in each; `None` stands for those that are left out."""
    table = Table("seq", "checkpoint", "parent", "saved at (UTC)", "metadata", "messages", box=None, padding=(0, 1))
    table.columns[-1].justify = "right"
    for column in table.columns:
        column.no_wrap = True
    for row in rows:
        if row is None:
            table.add_row(*"⋮⋮⋮⋮⋮⋮", style="dim")
            continue
        entry, messages = row
        about = ", ".join(f"{key}: {value}" for key, value in entry.metadata.items())
        parent = f"{entry.parent_id[:8]}…" if entry.parent_id else "–"
        when = f"{entry.created_at:%H:%M:%S.%f}"[:-3]
        table.add_row(str(entry.seq), entry.checkpoint_id, parent, when, about, str(messages))
    console.print(table)
    console.print()


def tree(console: Console, entries: Sequence[HistoryEntry]) -> None:
    """All checkpoints as a tree: one line for each stretch without a fork."""
    children: defaultdict[str | None, list[HistoryEntry]] = defaultdict(list)
    for entry in reversed(entries):
        children[entry.parent_id].append(entry)

    def grow(branch: Tree, entry: HistoryEntry) -> None:
        stretch = [entry]
        while len(following := children[stretch[-1].checkpoint_id]) == 1:
            stretch.append(following[0])
        node = branch.add(_stretch(stretch))
        for child in following:
            grow(node, child)

    root = Tree(Text(f"thread {entries[0].thread_id}", "bold"), guide_style="blue")
    for entry in children[None]:
        grow(root, entry)
    table = Table.grid(padding=(0, 2))
    table.add_row("", root)
    console.print(table)
    console.print()


def _stretch(stretch: Sequence[HistoryEntry]) -> Text:
    first, last = stretch[0], stretch[-1]
    text = Text().append(f"seq {first.seq}–{last.seq}", "bold")
    text.append(f"  {len(stretch)} checkpoints, up to {last.checkpoint_id}")
    turns = sorted({first.metadata["turn"], last.metadata["turn"]})
    text.append(f"  turn {'–'.join(map(str, turns))}", "dim")
    text.append(f"  {last.metadata['line']}" if "line" in last.metadata else "", "magenta")
    return text


def difference(console: Console, found: StateDiff, a: str, b: str) -> None:
    console.print(f"  diff {a} → {b}\n")
    for sign, colour, messages in (("−", "red", found.removed), ("+", "green", found.added)):
        for message in messages:
            line = Text(f"  {sign} {message.role.value:<10}", colour)
            line.append(shown(message), colour)
            line.truncate(console.width - 2, overflow="ellipsis")
            console.print(line, no_wrap=True)
    for before, after in found.changed:
        console.print(f"  ~ {escape(shown(before))} → {escape(shown(after))}", style="yellow")
    fields = ", ".join(found.fields) or "none"
    console.print(f"\n  other fields that differ: {fields}\n")


def hits(console: Console, query: str, found: Sequence[dict[str, Any]], ms: float) -> None:
    console.print(f"  “{query}”: {len(found)} checkpoints brought it in ({ms:.1f} ms, indexing included)\n")
    for hit in found:
        line = Text().append(f"  seq {hit['seq']:<4}", "bold").append(f"{hit['checkpoint_id']}  ")
        line.append(hit["snippet"], "dim")
        line.truncate(console.width - 2, overflow="ellipsis")
        line.highlight_words([query], "bold magenta", case_sensitive=False)
        console.print(line, no_wrap=True)
    console.print()


def cost(console: Console, found: Cost) -> None:
    table = Table.grid(padding=(0, 2))
    times = {f"save at turn {EARLY}": found.early_ms, f"save at turn {found.turns:,}": found.late_ms}
    for name, ms in times.items():
        table.add_row("", name, f"{ms:.2f} ms", _bar(ms, max(times.values()), "green"))
    table.add_row("", "", "", Text(f"medians of {FRESH * 10} saves each, taken in turn", "dim"))
    table.add_row()
    sizes = {
        "content": (found.content_bytes, "green", "all messages as JSON, once"),
        "on the disk": (found.disk_bytes, "green", f"with {found.turns:,} states, each of them loadable"),
        "whole states": (found.whole_states_bytes, "red", "calculated, not measured: everything, at every turn"),
    }
    for name, (size, colour, remark) in sizes.items():
        bar = _bar(size, found.whole_states_bytes, colour)
        table.add_row("", name, f"{size / 1e6:,.1f} MB", bar)
        table.add_row("", "", "", Text(remark, "dim"))
    console.print(table)
    console.print(
        f"\n  A save at turn {found.turns:,} took {found.late_ms / found.early_ms:.2f}× one at turn {EARLY}. "
        f"The disk holds {found.disk_bytes / found.content_bytes:.2f}× the content;\n  whole states would be "
        f"{found.whole_states_bytes / found.content_bytes:,.0f}×. All {4 * found.turns:,} messages loaded in "
        f"{found.load_ms:.0f} ms, equal to what was saved.\n"
    )


def _bar(value: float, largest: float, colour: str) -> Text:
    return Text("█" * max(1, round(BAR * value / largest)), colour)
