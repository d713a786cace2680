"""The commits that keep versions of items."""

from __future__ import annotations

from datetime import datetime
from secrets import token_urlsafe
from typing import Any

from locus.memory.engine import Engine, Expires
from locus.memory.long_term.items import SOURCE, Item, payload_of
from locus.memory.model.codec import encode
from locus.memory.model.plan import Payload, Planner
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, Base, Commit, Unset

_ID_BYTES = 6
"""How many random bytes the id of a version has: it has to differ from those of the same item only."""


def commit_of_item(
    engine: Engine,
    name: str,
    item: Item,
    *,
    base: Base | None = None,
    if_latest: str | None | Unset = ANY,
    replaces: Base | None = None,
) -> Commit:
    """The commit that keeps a version: on top of `base`, which must be there, or in the place of another one."""
    metadata = {} if item.source is None else {SOURCE: item.source}
    return commit_of(
        engine,
        name,
        payload_of(item),
        item.updated_at,
        metadata,
        expires_at=item.expires_at,
        base=base,
        if_latest=if_latest,
        replaces=replaces,
    )


def commit_of(
    engine: Engine,
    name: str,
    payload: Payload,
    at: datetime,
    metadata: dict[str, Any],
    *,
    expires_at: datetime | None = None,
    base: Base | None = None,
    if_latest: str | None | Unset = ANY,
    replaces: Base | None = None,
) -> Commit:
    """The commit that keeps a payload as the newest checkpoint of an item's thread."""
    rev = token_urlsafe(_ID_BYTES)
    plan = Planner(rev, None, sort_keys=not engine.dialect.exact).plan(payload)
    return Commit(
        thread_id=name,
        namespace=DEFAULT_NAMESPACE,
        checkpoint_id=rev if replaces is None else replaces.checkpoint_id,
        rev=rev,
        created_at=at,
        metadata=encode(metadata),
        head=plan.head,
        manifest=plan.manifest,
        extents=plan.extents,
        runs=plan.runs,
        values=plan.values,
        base=base,
        parent_id=ANY if base is None else base.checkpoint_id,
        if_latest=if_latest,
        replaces=None if replaces is None else replaces.rev,
        fresh_id=replaces is None,
        expires_at=expires_at if engine.offers(Expires) else None,
    )
