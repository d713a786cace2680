"""The key spaces that a store has, and the format that it is stored in."""

from __future__ import annotations

from collections.abc import Iterable

from locus.errors import CapabilityError, ConfigurationError, LocusError
from locus.memory.engine import Maintains, NothingThereError
from locus.memory.long_term.store import SPACE, ItemStore, has_old_items
from locus.memory.model.records import StoredFormat
from locus.memory.model.spaces import KEY_SPACES
from locus.memory.store import CheckpointStore


async def stored_format(store: CheckpointStore) -> StoredFormat | None:
    """The format of a store, before anything is set up or migrated."""
    engine = store.engine
    if not isinstance(engine, Maintains):
        return None
    try:
        return await engine.stored_format()
    except LocusError:
        raise
    except engine.driver_errors as error:
        raise engine.translate(error) from error


async def spaces_of(store: CheckpointStore, names: Iterable[str] = KEY_SPACES) -> dict[str, CheckpointStore]:
    """The key spaces of a store that are there, by name. If it is opened for reading only, none is made.

    Items that an older version has kept in a table of their own count as there, and their first use moves them.
    """
    found: dict[str, CheckpointStore] = {}
    for name in names:
        try:
            space = ItemStore(store, name).store
            formats = await stored_format(space)
            if formats is not None and not formats.found:
                if name != SPACE or not await has_old_items(store.engine, space.engine):
                    continue
                if space.engine.reading_only:
                    raise ConfigurationError(
                        "this store has items of an older version, which the first use of its memory moves: run "
                        "`locus migrate --apply` once"
                    )
            async with space.using():
                found[name] = space
        except (CapabilityError, NothingThereError):
            continue
    return found


async def is_there(store: CheckpointStore) -> bool:
    """Whether a store that is opened for reading only has ever had threads."""
    try:
        async with store.using():
            return True
    except NothingThereError:
        return False
