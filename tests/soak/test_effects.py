"""Effects under kills and cut connections: every framework on three stores. Prints what was counted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from locus.testing.effects import pay_under_kills
from tests.backends.postgresql.store import new_store
from tests.backends.redis.stores import RedisStore
from tests.effects.payments import FRAMEWORKS, MODULES
from tests.servers.proxy import Proxy

KILLS = int(os.environ.get("LOCUS_SOAK_KILLS", "40"))
"""How many workers are killed for each framework and store: 40 of each are 1,080."""

STORES = (
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.server("postgresql")),
    pytest.param("redis", marks=pytest.mark.server("redis")),
)


@contextmanager
def opened(name: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[str, Any]]:
    """The URL of a store, and what cuts the connections to it."""
    if name == "sqlite":
        yield f"sqlite:{folder / 'ledger.db'}", None
        return
    server = request.getfixturevalue(f"{name}_server")
    with Proxy(server.port) as proxy:
        if name == "postgresql":
            with new_store(server.url, proxy) as store:
                yield store.url, proxy.cut
        else:
            kept = RedisStore(server, proxy)
            yield kept.url, proxy.cut
            kept.remove()


@pytest.mark.soak
@pytest.mark.crash
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("framework", ["", *FRAMEWORKS], ids=lambda name: name or "directly")
async def test_effects_keep_their_terms(
    framework: str, store: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(store, request, tmp_path) as (url, cut):
        tally = await pay_under_kills(
            url,
            kills=KILLS,
            seed=1,
            folder=tmp_path,
            turn=f"tests.effects.payments:{framework}" if framework else "",
            modules=("tests.effects.payments", *MODULES.get(framework, ())) if framework else (),
            cut=cut,
        )
    with capsys.disabled():
        print(f"\n{framework or 'directly'} on {store}: {tally}")
    assert tally.findings == []
