"""`locus effects`: shows the ledger of effects, and settles by hand what is unknown. Each action has its options."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Final

from locus.cli import commands
from locus.cli.commands import Looking
from locus.cli.terminal import Cell, Styled, Terminal, columns_of
from locus.errors import CheckpointNotFoundError, ConfigurationError
from locus.looking.formatting import ago, local_time, one_line, visible

if TYPE_CHECKING:
    from locus.effects import Effect, Effects
    from locus.memory.store import CheckpointStore

_DESCRIPTION = """\
Show the ledger of effects: what was begun, done or has failed, and what nobody knows about. Settle that by hand.

  locus effects list --state unknown
  locus effects show KEY --thread THREAD
  locus effects settle KEY done --result '{"receipt": 7}' --note "on the statement" --apply
  locus effects settle KEY failed --note "it never arrived" --apply

An effect that is settled as failed counts as not made: the next caller makes it."""

_SPACE: Final = "effects"
_NOTHING: Final = "no effect was ever recorded in this store"
_STYLES = {"unknown": "error", "failed": "warning", "begun": "strong", "paused": "faint", "done": "added"}


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = command.add_subparsers(title="actions", required=True, metavar="ACTION")

    def action(name: str, run: Looking, about: str, *words: str, writes: bool = False) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        commands.configure(made, commands.guarded(run, _NOTHING), *words, writes=writes, space=_SPACE)
        made.add_argument("--thread", metavar="THREAD", help="the thread that the effect belongs to")
        return made

    listing = action("list", _list, "list effects, by thread and key")
    listing.add_argument("--state", choices=list(_STYLES), help="only those in this state")
    commands.add_limit(listing)
    commands.add_utc(action("show", _show, "show an effect, with its result", "KEY"))
    settling = action("settle", _settle, "decide about an effect whose outcome is unknown", "KEY", "STATE", writes=True)
    settling.add_argument("--note", required=True, metavar="TEXT", help="how you know")
    settling.add_argument("--result", metavar="JSON", help="the result that every caller gets, if it is done")
    commands.add_apply(settling)
    commands.add_apply(action("forget", _forget, "forget an effect: its next caller makes it", "KEY", writes=True))


def _effects(store: CheckpointStore) -> Effects:
    from locus.effects import Effects
    from locus.memory.checkpointer import Checkpointer

    return Effects(Checkpointer(store))


async def _list(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    found = await _effects(store).find(options.state, thread_id=options.thread, limit=options.limit + 1)
    if terminal.json:
        for effect in found[: options.limit]:
            terminal.record(_record(effect))
    else:
        terminal.table([_row(effect) for effect in found[: options.limit]])
    if not found:
        terminal.note("nothing found")
    if len(found) > options.limit:
        terminal.note(f"more are there: -n {2 * options.limit}")
    return None


def _row(effect: Effect) -> list[Cell]:
    return [
        Styled(effect.state, _STYLES[effect.state]),
        Styled(visible(effect.key), "strong"),
        Styled(visible(effect.thread_id or ""), "faint"),
        f"attempt {effect.attempt}",
        Styled(ago(effect.ended_at or effect.begun_at), "faint"),
        one_line(effect.note or ""),
    ]


def _record(effect: Effect) -> dict[str, Any]:
    return {
        "key": effect.key,
        "thread_id": effect.thread_id,
        "state": effect.state,
        "attempt": effect.attempt,
        "worker": effect.worker,
        "begun_at": effect.begun_at.isoformat(),
        "ended_at": None if effect.ended_at is None else effect.ended_at.isoformat(),
        "idempotency_key": effect.idempotency_key,
        "result": effect.result,
        "error": effect.error,
        "note": effect.note,
    }


async def _found(store: CheckpointStore, options: argparse.Namespace) -> Effect:
    effect = await _effects(store).get(options.key, thread_id=options.thread)
    if effect is None:
        raise CheckpointNotFoundError(
            f"there is no effect {options.key!r:.80}{' of this thread' if options.thread else ''}: "
            "`locus effects list` shows which there are, and --thread names the thread of one"
        )
    return effect


async def _show(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    effect = await _found(store, options)
    if terminal.json:
        terminal.document(_record(effect))
        return None
    ended = effect.ended_at
    facts: list[tuple[str, Cell]] = [
        ("key", Styled(visible(effect.key), "strong")),
        ("thread", visible(effect.thread_id) if effect.thread_id is not None else "(none)"),
        ("state", Styled(effect.state, _STYLES[effect.state])),
        ("attempt", f"{effect.attempt}, by {visible(effect.worker)}"),
        ("begun", f"{local_time(effect.begun_at, utc=options.utc)} ({ago(effect.begun_at)})"),
        ("ended", "" if ended is None else f"{local_time(ended, utc=options.utc)} ({ago(ended)})"),
        ("idempotency key", effect.idempotency_key),
        ("error", one_line(effect.error or "")),
        ("result not kept", effect.unkept or ""),
        ("note", one_line(effect.note or "")),
    ]
    terminal.table(columns_of([fact for fact in facts if fact[1]]))
    if effect.state == "done" and effect.unkept is None:
        terminal.line("")
        terminal.text(json.dumps(effect.result, ensure_ascii=False, indent=2))
    return None


async def _settle(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    if options.state not in ("done", "failed"):
        raise commands.UsageError("an effect is settled as done or failed")
    if options.result is not None and options.state == "failed":
        raise commands.UsageError("--result goes with done")
    try:
        result = None if options.result is None else json.loads(options.result)
    except (ValueError, RecursionError):
        raise ConfigurationError("--result is JSON, such as '{\"receipt\": 7}' or '\"paid\"'") from None
    effect = await _found(store, options)
    if options.apply:
        effect = await _effects(store).settle(
            options.key, options.state, note=options.note, thread_id=options.thread, result=result
        )
    _tell(effect, f"settle as {options.state}", f"settled as {options.state}", options, terminal)
    return None


async def _forget(store: CheckpointStore, options: argparse.Namespace, terminal: Terminal) -> int | None:
    effect = await _found(store, options)
    if options.apply:
        await _effects(store).delete(options.key, thread_id=options.thread)
    _tell(effect, "forget", "forgot", options, terminal)
    return None


def _tell(effect: Effect, would: str, did: str, options: argparse.Namespace, terminal: Terminal) -> None:
    if terminal.json:
        terminal.document({**_record(effect), "dry_run": not options.apply})
        return
    said = Styled(f"would {would}: ", "warning") if not options.apply else Styled(f"{did}: ", "")
    terminal.line(said, visible(effect.key))
    if not options.apply:
        terminal.note("nothing was changed: --apply does it")
