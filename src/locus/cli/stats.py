"""`locus stats`: says where the bytes are."""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from locus.cli import commands
from locus.cli.commands import ExitCode
from locus.cli.terminal import Cell, ProgressLine, Styled, Terminal
from locus.cli.vacuum import age
from locus.core.media import bytes_text
from locus.errors import ConfigurationError
from locus.looking.formatting import dotted, visible

if TYPE_CHECKING:
    from locus.looking.usage import Sums
    from locus.memory.model.sizes import ThreadSizes
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Say where the bytes are: of one thread, by list or channel; or of all threads, the largest first.

  locus stats
  locus stats THREAD --by channel
  locus stats --if-vacuum keep-last=10,older-than=30d

Sizes are bytes of what is stored for the checkpoints, without what a database adds to each row. What a vacuum would
free is exact. What is shared is shown by several lines of history, as forks do."""

_RULE = re.compile(r"(keep-last|older-than)=(\S+)")


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "THREAD", optional=1)
    add = command.add_argument
    add("--top", type=commands.number(1, 10_000), default=20, metavar="N", help="how many threads are shown (20)")
    add("--by", choices=["channel", "thread"], help="by list or channel of the state, also for all threads together")
    add("--prefix", default="", metavar="TEXT", help="only threads whose ids begin with this")
    add(
        "--if-vacuum",
        type=_rules,
        metavar="RULES",
        help="what a vacuum would free: keep-last=N, older-than=AGE, or both with a comma",
    )


def _rules(text: str) -> tuple[float | None, int | None]:
    given: dict[str, str] = {}
    for rule in text.split(","):
        parts = _RULE.fullmatch(rule.strip())
        if parts is None:
            raise argparse.ArgumentTypeError("rules, such as keep-last=10 or keep-last=10,older-than=30d")
        given[parts[1]] = parts[2]
    older = age(given["older-than"]) if "older-than" in given else None
    return older, commands.number(1, 10**9)(given["keep-last"]) if "keep-last" in given else None


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.usage import Sums

    rules = options.if_vacuum or (None, None)
    if options.thread is not None:
        from locus.looking.revisions import resolve_thread

        sizes = await store.sizes(options.thread, *rules)
        if sizes is None:
            await resolve_thread(store, options.thread)
            raise ConfigurationError("this store does not tell what a thread takes")
        _one_thread(sizes, terminal)
        return None
    sums = Sums()
    with ProgressLine(terminal.err, "threads measured") as bar:
        await sums.measure(store, options.prefix, rules, options.top, bar.show)
    _all_threads(sums, options, terminal)
    for thread_id, reason in sums.damaged[:10]:
        terminal.note(f"thread {thread_id!r} cannot be measured: {reason}")
    return ExitCode.DIFFERS if sums.damaged else None


def _one_thread(sizes: ThreadSizes, terminal: Terminal) -> None:
    from locus.looking.usage import kinds

    if terminal.json:
        terminal.document({**asdict(sizes), "bytes": sizes.bytes})
        return
    terminal.line(
        Styled(visible(sizes.thread_id), "strong"),
        f"  {bytes_text(sizes.bytes)} in {sizes.checkpoints:,} checkpoints and {sizes.runs:,} runs",
    )
    shared = {dotted(each.path) or "(other)": each.shared_bytes for each in sizes.lists}
    rows: list[list[Cell]] = []
    for name, size in sorted(kinds(sizes), key=lambda kind: -kind[1]):
        if size:
            said = f"{bytes_text(shared[name])} shared by forks" if shared.get(name) else ""
            rows.append([f"{bytes_text(size):>10}", _share(size, sizes.bytes), visible(name), Styled(said, "faint")])
    terminal.table(rows)
    if sizes.freed is not None:
        freed = sizes.freed
        terminal.line(
            Styled("a vacuum would free ", "warning"),
            f"{bytes_text(freed.bytes)}: {freed.checkpoints:,} checkpoints, {freed.runs:,} runs",
        )


def _share(size: int, whole: int) -> str:
    return f"{100 * size / whole if whole else 0:3.0f} %"


def _all_threads(sums: Sums, options: argparse.Namespace, terminal: Terminal) -> None:
    sums.cut(options.top)
    if terminal.json:
        document: dict[str, Any] = {
            "threads": sums.threads,
            "checkpoints": sums.checkpoints,
            "bytes": sums.bytes,
            "by_list": dict(sorted(sums.by_list.items(), key=lambda kind: -kind[1])),
            "largest": [{**asdict(sizes), "bytes": sizes.bytes} for sizes in sums.largest],
        }
        if options.if_vacuum is not None:
            document["freed"] = {"bytes": sums.freed_bytes, "checkpoints": sums.freed_checkpoints}
        terminal.document(document)
        return
    terminal.line(
        Styled(f"{bytes_text(sums.bytes)}", "strong"), f" in {sums.threads:,} threads, {sums.checkpoints:,} checkpoints"
    )
    if options.by == "channel":
        terminal.table(
            [
                [f"{bytes_text(size):>10}", _share(size, sums.bytes), visible(name)]
                for name, size in sorted(sums.by_list.items(), key=lambda kind: -kind[1])
                if size
            ]
        )
    else:
        terminal.table(
            [
                [f"{bytes_text(sizes.bytes):>10}", _share(sizes.bytes, sums.bytes), visible(sizes.thread_id)]
                for sizes in sums.largest
            ]
        )
        if len(sums.largest) < sums.threads:
            terminal.note(f"{sums.threads - len(sums.largest):,} smaller ones are not listed: --top says how many are")
    if options.if_vacuum is not None:
        terminal.line(
            Styled("a vacuum would free ", "warning"),
            f"{bytes_text(sums.freed_bytes)}: {sums.freed_checkpoints:,} checkpoints",
        )
