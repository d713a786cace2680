"""The key spaces that a store has, and the format that it is stored in."""

from __future__ import annotations

from collections.abc import Iterable

from locus.errors import CapabilityError, LocusError
from locus.memory.engine import Maintains, NothingThereError
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
    """The key spaces of a store that are there, by name. If it is opened for reading only, none is made."""
    found: dict[str, CheckpointStore] = {}
    for name in names:
        try:
            space = store.key_space(name)
            formats = await stored_format(space)
            if formats is None:
                async with space.using():
                    pass
        except (CapabilityError, NothingThereError):
            continue
        if formats is None or formats.found:
            found[name] = space
    return found


async def is_there(store: CheckpointStore) -> bool:
    """Whether a store that is opened for reading only has ever had threads."""
    try:
        async with store.using():
            return True
    except NothingThereError:
        return False
