"""`locus memory`: shows, finds, removes and moves the items of long-term memory. Each action has options of its own."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import aclosing, nullcontext
from typing import TYPE_CHECKING, Any, Final

from locus.cli import commands
from locus.cli.commands import Looking
from locus.cli.export import new_file
from locus.cli.terminal import Cell, Styled, Terminal, columns_of
from locus.errors import CheckpointNotFoundError, ConfigurationError
from locus.looking.formatting import ago, local_time, one_line, visible

if TYPE_CHECKING:
    from locus.memory.long_term import Found, Item, LongTermMemory
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Show, search, forget and move the items of long-term memory: what agents know across threads.

A PATH is a namespace, with a slash behind each label: users/ada/memories/. In a label ~1 stands for a slash, and ~0
for a tilde.

  locus memory list users/ada/
  locus memory search green tea --under users/ada/
  locus memory show users/ada/memories/ KEY
  locus memory forget --source THREAD --apply"""

_SPACE: Final = "memory"
_NO_KEY = "no item {key} is in {path}; `locus memory list {path}` shows which there are"


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = command.add_subparsers(title="actions", required=True, metavar="ACTION")

    def action(
        name: str, run: Looking, about: str, *words: str, optional: int = 0, many: bool = False, writes: bool = False
    ) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        commands.configure(
            made,
            commands.guarded(run, "nothing was ever put into the long-term memory of this store"),
            *words,
            optional=optional,
            many=many,
            writes=writes,
            space=_SPACE,
        )
        return made

    listing = action("list", _list, "list the items below a namespace", "PATH", optional=1)
    listing.add_argument("--namespaces", action="store_true", help="list the namespaces that have items")
    commands.add_limit(listing)
    _add_offset(listing)
    showing = action("show", _show, "show an item, with its value", "PATH", "KEY")
    showing.add_argument("--version", type=commands.number(1, 10**9), metavar="N", help="this version of it")
    commands.add_utc(showing)
    searching = action("search", _search, "find items by their words, or by their meaning", "WORDS", many=True)
    _add_under(searching, "only below this namespace")
    searching.add_argument(
        "--filter", action="append", default=[], metavar="K=V", help="only items whose values have this (JSON or text)"
    )
    searching.add_argument("--by", choices=["hybrid", "words", "vector"], default="hybrid", help="what counts (hybrid)")
    _add_embed(searching, "what has made the vectors of the items: minilm, static, openai:…")
    commands.add_limit(searching, 10)
    _add_offset(searching)
    history = action("history", _history, "list the versions of an item, newest first", "PATH", "KEY")
    commands.add_limit(history)
    commands.add_utc(history)
    forgetting = action(
        "forget", _forget, "remove items, with all their versions", "PATH", "KEY", optional=2, writes=True
    )
    forgetting.add_argument("--source", metavar="THREAD", help="what this thread has taught")
    forgetting.add_argument("--all", action="store_true", help="everything below PATH")
    commands.add_apply(forgetting)
    exporting = action("export", _export, "write items to a file, as JSON Lines", "PATH", optional=1)
    exporting.add_argument("-o", "--output", metavar="FILE", help="the file to write; it must not exist yet")
    importing = action(
        "import", _import, "put the items of a file that differ from those of the store", "FILE", writes=True
    )
    _add_under(importing, "put them below this namespace")
    _add_embed(importing, "what makes the vectors of the items: minilm, static, openai:…")
    commands.add_apply(importing)


def _add_under(command: argparse.ArgumentParser, about: str) -> None:
    command.add_argument("--under", default="", metavar="PATH", help=about)


def _add_embed(command: argparse.ArgumentParser, about: str) -> None:
    command.add_argument("--embed", metavar="NAME", help=about)


def _add_offset(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--offset", type=commands.number(0, 10**9), default=0, metavar="N", help="leave out so many at the beginning"
    )


def _memory(store: CheckpointStore, embed: str | None = None) -> LongTermMemory:
    from locus.memory.checkpointer import Checkpointer
    from locus.memory.long_term import LongTermMemory

    return LongTermMemory(Checkpointer(store), embed=embed)


def _namespace(path: str | None) -> tuple[str, ...]:
    from locus.memory.long_term.names import namespace_from

    return namespace_from(path or "")


def _path(namespace: Sequence[str]) -> str:
    from locus.memory.long_term.names import path_of

    return visible(path_of(namespace)) or "(root)"


async def _list(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    memory, under, most = _memory(store), _namespace(options.path), options.limit
    if options.namespaces:
        names = await memory.list_namespaces(under, limit=most + 1, offset=options.offset)
        for name in names[:most]:
            if terminal.json:
                terminal.record({"namespace": list(name)})
            else:
                terminal.line(Styled(_path(name), "strong"))
        _say_more(names, options, terminal)
        return None
    items = await memory.search(under, limit=most + 1, offset=options.offset)
    if terminal.json:
        _records(items[:most], terminal)
    else:
        terminal.table([_row(item) for item in items[:most]])
    _say_more(items, options, terminal)
    return None


def _row(item: Item) -> list[Cell]:
    return [
        Styled(_path(item.namespace), "faint"),
        Styled(visible(item.key), "strong"),
        f"v{item.version}",
        Styled(ago(item.updated_at), "faint"),
        one_line(_said(item)),
    ]


def _said(item: Item) -> str:
    from locus.memory.long_term.facts import text_of

    return text_of(item)


def _say_more(found: Sequence[Any], options: argparse.Namespace, terminal: Terminal) -> None:
    if not found:
        terminal.note("nothing found")
    if len(found) > options.limit:
        terminal.note(f"more: --offset {options.offset + options.limit}")


def _records(items: Sequence[Item], terminal: Terminal) -> None:
    from locus.transfer.memory_lines import record_of

    for item in items:
        terminal.record(record_of(item))


async def _show(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.transfer.memory_lines import record_of

    item = await _memory(store).get_item(_namespace(options.path), options.key, version=options.version)
    if item is None:
        raise _nothing(options)
    if terminal.json:
        terminal.document(record_of(item))
        return None
    facts: list[tuple[str, Cell]] = [
        ("namespace", _path(item.namespace)),
        ("key", Styled(visible(item.key), "strong")),
        ("version", f"{item.version}"),
        ("put", f"{local_time(item.updated_at, utc=options.utc)} ({ago(item.updated_at)})"),
        ("first put", local_time(item.created_at, utc=options.utc)),
        ("source", visible(item.source) if item.source is not None else "(unknown)"),
    ]
    if item.expires_at is not None:
        facts.append(("ends", local_time(item.expires_at, utc=options.utc)))
    if item.metadata:
        facts.append(("metadata", one_line(json.dumps(item.metadata, ensure_ascii=False))))
    if item.vectors is not None:
        facts.append(("vectors", f"of {visible(item.vectors.model)}"))
    terminal.table(columns_of(facts))
    terminal.line("")
    terminal.text(json.dumps(item.value, ensure_ascii=False, indent=2))
    return None


def _nothing(options: argparse.Namespace) -> CheckpointNotFoundError:
    path = _path(_namespace(options.path))
    return CheckpointNotFoundError(_NO_KEY.format(key=repr(options.key)[:80], path=path))


async def _search(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.searching import mark_pattern, marks_of

    query = " ".join(options.words)
    found = await _memory(store, options.embed).search(
        _namespace(options.under),
        query,
        filter=dict(map(_condition, options.filter)),
        limit=options.limit + 1,
        offset=options.offset,
        by=options.by,
    )
    found = [one for one in found if one.score is not None]
    if terminal.json:
        _found_records(found[: options.limit], terminal)
    else:
        marks = mark_pattern(marks_of(query))
        for one in found[: options.limit]:
            near = "" if one.similarity is None else f"  similarity {one.similarity:.3f}"
            terminal.line(
                Styled(f"{one.score:.3f}", "id"),
                Styled(f"  {_path(one.namespace)}", "faint"),
                Styled(f"  {visible(one.key)}", "strong"),
                Styled(near, "faint"),
            )
            terminal.text(one_line(_said(one)), indent="    ", mark=marks)
    _say_more(found, options, terminal)
    return None


def _found_records(found: Sequence[Found], terminal: Terminal) -> None:
    from locus.transfer.memory_lines import record_of

    for one in found:
        terminal.record({**record_of(one), "score": one.score, "similarity": one.similarity})


def _condition(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigurationError("give --filter K=V, such as kind=tool or weight=2")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value


async def _history(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    versions = await _memory(store).history(_namespace(options.path), options.key, limit=options.limit + 1)
    if not versions:
        raise _nothing(options)
    if terminal.json:
        _records(versions[: options.limit], terminal)
    else:
        terminal.table(
            [
                [
                    Styled(f"v{item.version}", "id"),
                    Styled(local_time(item.updated_at, utc=options.utc), "faint"),
                    visible(item.source or ""),
                    one_line(_said(item)),
                ]
                for item in versions[: options.limit]
            ]
        )
    if len(versions) > options.limit:
        terminal.note(f"older ones are there: -n {2 * options.limit}")
    return None


async def _forget(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    memory, under, dry = _memory(store), _namespace(options.path), not options.apply
    if options.key is not None:
        if options.source is not None or options.all:
            raise commands.UsageError("a KEY goes with neither --source nor --all: name a PATH, or leave it out")
        if dry:
            count = int(await memory.exists(under, options.key))
        else:
            count = int(await memory.delete(under, options.key))
        if not count:
            raise _nothing(options)
    elif options.source is not None:
        count = await memory.erase(under, source=options.source, dry_run=dry)
    elif options.all and options.path is not None:
        count = await memory.erase(under, dry_run=dry)
    else:
        raise commands.UsageError("say what to forget: PATH KEY, PATH --all, or --source THREAD")
    what = "versions" if options.source is not None else "items"
    if terminal.json:
        terminal.document({what: count, "dry_run": dry})
    else:
        terminal.line(Styled("would forget " if dry else "forgot ", "warning" if dry else ""), f"{count:,} {what}")
        _say_dry(options, terminal)
    return None


def _say_dry(options: argparse.Namespace, terminal: Terminal) -> None:
    if not options.apply:
        terminal.note("nothing was changed: --apply does it")


async def _export(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.memory.long_term.store import ItemStore
    from locus.transfer.memory_lines import record_of

    with new_file(options.output) if options.output else nullcontext(sys.stdout) as file:
        lines = Terminal(file, terminal.err, json=True)
        async with aclosing(ItemStore(store).pages(_namespace(options.path))) as pages:
            async for page in pages:
                for item in page:
                    lines.record(record_of(item))
                lines.flush()
    return None


async def _import(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.transfer.memory_lines import import_lines

    memory = _memory(store, options.embed).scoped(_namespace(options.under))
    done = await import_lines(memory, options.file, dry_run=not options.apply)
    if terminal.json:
        terminal.document({**vars(done), "dry_run": not options.apply})
        return None
    verb = Styled("put " if options.apply else "would put ", "added" if options.apply else "warning")
    ended = f", {done.ended:,} have ended" if done.ended else ""
    terminal.line(verb, f"{done.put:,} items; {done.present:,} are there already{ended}")
    _say_dry(options, terminal)
    return None
