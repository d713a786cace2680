"""`locus erase`: deletes everything of a tenant."""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from locus.cli import commands
from locus.cli.commands import ExitCode
from locus.cli.terminal import ProgressLine, Styled, Terminal
from locus.errors import BackendUnavailableError, ConfigurationError, LocusError
from locus.looking.formatting import visible
from locus.memory.model.spaces import KEY_SPACES

if TYPE_CHECKING:
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Delete every thread whose id begins with a prefix, with all its checkpoints, pending writes, effects and entries of
indexes; and the items of long-term memory whose namespaces begin with it (acme/ means the namespace ("acme", …)).
Shows what would be deleted; --apply does it. It can be repeated: what is gone is gone.

  locus erase acme/
  locus erase acme/ --apply"""

_PAGE = 500
_SHOWN = 5


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    commands.configure(command, run, "PREFIX", writes=True, space="memory")
    command.add_argument("--any-prefix", action="store_true", help="take a prefix that does not end with / or :")
    commands.add_apply(command)


async def run(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    from locus.looking.spaces import is_there, spaces_of
    from locus.looking.usage import thread_ids

    prefix = options.prefix
    if not prefix:
        raise ConfigurationError("the prefix is empty, and that would be everything: name a tenant, such as acme/")
    if not prefix.endswith(("/", ":")) and not options.any_prefix:
        raise ConfigurationError(
            "the prefix does not end with / or :, so it would take others along, as acme those of acme-corp; add "
            "--any-prefix if that is what you want"
        )
    count = unlisted = 0
    shown: list[str] = []
    failed: list[tuple[str, LocusError]] = []

    async def erased(thread_id: str) -> bool:
        try:
            if options.apply:
                await store.delete(thread_id, None, None)
        except BackendUnavailableError:
            raise
        except LocusError as error:
            failed.append((thread_id, error))
            return False
        return True

    spaces = await spaces_of(store)
    kept = {name: await _erased_items(store, name, options) for name in spaces}
    items = kept.pop("memory", 0)
    if not spaces or await is_there(store):
        with ProgressLine(terminal.err, "threads") as bar:
            async for thread_id in thread_ids(store, prefix):
                if await erased(thread_id):
                    count += 1
                    shown += [thread_id] if len(shown) < _SHOWN else []
                    bar.show(count)
            async for thread_id in _unlisted(store, prefix):
                unlisted += await erased(thread_id)
    if terminal.json:
        terminal.document(
            {
                "prefix": prefix,
                "threads": count,
                "unlisted": unlisted,
                "items": items,
                **kept,
                "failed": [thread_id for thread_id, _error in failed],
                "dry_run": not options.apply,
            }
        )
    else:
        verb = Styled("deleted " if options.apply else "would delete ", "" if options.apply else "warning")
        counted = {KEY_SPACES["memory"]: items, **{KEY_SPACES[name]: number for name, number in kept.items()}}
        also = "".join(f" and {number:,} {what}" for what, number in counted.items() if number)
        terminal.line(verb, f"{count:,} threads{also}")
        for thread_id in shown:
            terminal.line(f"  {visible(thread_id)}")
        if count > len(shown):
            terminal.line(f"  … {count - len(shown):,} more")
        if unlisted:
            terminal.line(verb, f"what is left of {unlisted:,} threads that have expired, or never had a checkpoint")
        if not options.apply:
            terminal.note("nothing was changed: --apply does it")
    for thread_id, reason in failed:
        terminal.note(f"thread {thread_id!r} was not deleted: {reason}")
    return ExitCode.DIFFERS if failed else None


async def _erased_items(store: CheckpointStore, space: str, options: argparse.Namespace) -> int:
    """Remove what a key space has of a tenant, and return how much that was."""
    from locus.memory.long_term.names import path_of, tenant_paths
    from locus.memory.long_term.store import ItemStore

    # The names of effects begin as the ids of their threads do.
    paths = {path_of(options.prefix.split("/"))[:-1]} if space == "effects" else tenant_paths(options.prefix)
    items = ItemStore(store, space)
    return sum([await items.erase_under(path, dry_run=not options.apply) for path in paths])


async def _unlisted(store: CheckpointStore, prefix: str) -> AsyncGenerator[str, None]:
    after = ""
    while page := await store.unlisted_threads(prefix, after, _PAGE):
        for thread_id in page:
            yield thread_id
        after = page[-1]
