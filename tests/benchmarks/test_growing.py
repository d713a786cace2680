"""What large stores take is a pure function of what small ones have shown, and the page says what the function says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.growing import PAGE, GrowingSQLite, measure_store, parser, read_constants
from benchmarks.projection import (
    SIZES,
    Check,
    Constants,
    Prices,
    StoreConstants,
    TableConstants,
    project,
    projection_table,
    tables,
)

STORE = StoreConstants(
    "postgresql",
    threads=1_000,
    checkpoints=3_000,
    tables={
        "threads": TableConstants("thread", 100, 50, entry=40, entries=1),
        "runs": TableConstants("checkpoint", 2_000, 80, entry=80, entries=1, depth=2),
        "search": TableConstants("checkpoint", 10, 5),
    },
    look_seconds=3.0,
    remove_seconds=20.0,
    move_seconds=6.0,
    requests=1.5,
)


def test_bytes_grow_with_what_their_table_grows_with() -> None:
    found = project(STORE, 10, 1_000)
    assert (found.rows, found.index, found.search) == (10 * 100 + 1_000 * 2_000, 10 * 50 + 1_000 * 80, 15_000)
    assert found.bytes == 2_001_000 + 80_500 + 15_000
    assert project(STORE, 20, 2_000).bytes == 2 * found.bytes
    assert project(STORE, 20, 1_000).bytes - found.bytes == 10 * 150


def test_times_and_requests_grow_with_the_checkpoints() -> None:
    found = project(STORE, 10, 3_000_000)
    assert found.look_hours == pytest.approx(3.0 * 1_000 / 3_600)
    # 1,000 threads of three checkpoints: 2,000 were removed.
    assert found.remove_hours == pytest.approx(20.0 / 2_000 * 300_000 / 3_600)
    assert found.move_hours == pytest.approx(6.0 * 1_000 / 3_600)
    assert found.requests == 4_500_000


def test_an_index_has_a_level_more_when_a_page_cannot_name_all_below_it() -> None:
    one = replace(STORE, tables={"runs": STORE.tables["runs"]}, page_bytes=800)  # ten entries fit on a page
    depths = [project(one, 1, 10**power).depth for power in range(1, 7)]
    assert depths == [1, 2, 3, 4, 5, 6]
    assert project(replace(one, partitions=100), 1, 10**6).depth == 4
    assert project(replace(one, tables={}), 1, 10**6).depth is None


def test_prices_are_what_the_reader_pays() -> None:
    found = replace(project(STORE, 0, 0), rows=1e12, index=0.0, search=0.0, requests=2e6)
    prices = Prices(disk=0.1, memory=5.0, objects=0.02, requests=4.0, copies=3)
    assert prices.monthly(found) == pytest.approx(300)
    assert prices.monthly(replace(found, name="redis")) == pytest.approx(15_000)
    assert prices.monthly(replace(found, name="s3")) == pytest.approx(20)
    assert prices.once(found) == pytest.approx(8)
    assert prices.once(replace(found, requests=None)) is None
    options = parser().parse_args(["--disk", "0.5", "--copies", "1"])
    assert (options.disk, options.copies, options.memory) == (0.5, 1, Prices().memory)


def test_constants_come_back_from_json() -> None:
    check = Check("postgresql", 10, 30, "rows", 110.0, 100.0)
    constants = Constants({"Locus": "1"}, 3_500, [STORE], [check])
    assert Constants.from_dict(constants.as_dict()) == constants
    assert check.error == pytest.approx(0.1)


def test_the_page_has_the_tables_of_the_constants() -> None:
    constants = read_constants()
    page = PAGE.read_text(encoding="utf-8")
    found = re.search(r"<!-- figures -->\n(.*)\n<!-- /figures -->", page, re.DOTALL)
    assert found is not None
    assert found[1] == "\n\n".join(tables(constants)), "run `python -m benchmarks.growing --publish`"
    assert (10_000_000, 1_000_000_000) in SIZES
    assert "**calculated, not\nmeasured**" in page


def test_the_constants_are_those_of_every_kind_of_store() -> None:
    constants = read_constants()
    names = [store.name for store in constants.stores]
    assert names[:3] == ["sqlite", "postgresql", "postgresql, 16 partitions"]
    for store in constants.stores[:3]:
        assert {"threads", "checkpoints", "runs", "search"} <= store.tables.keys()
        checked = {check.what: check for check in constants.checks if check.name == store.name}
        assert {"rows", "indexes", "full text"} <= checked.keys()
        assert checked["rows"].threads == checked["indexes"].threads == 10 * store.threads
    assert "cost a month" in projection_table(constants, 1_000, 3_000, Prices())


async def test_a_store_is_filled_and_weighed(tmp_path: Path) -> None:
    constants, checks, store = await measure_store(GrowingSQLite, tmp_path, 8)
    async with store.open() as handle:
        assert len(await handle.list_threads(None)) == 80
        assert {len(await handle.list_checkpoints(f"thread-{number:08}")) for number in range(80)} == {3}
    store.remove()
    assert not list(tmp_path.iterdir())
    assert constants.tables["runs"].rows > 3_000, "the content of a turn, at least"
    assert constants.tables["threads"].unit == "thread"
    assert constants.tables["search"].rows > 0
    assert {check.what for check in checks} >= {"rows", "indexes", "full text"}
    assert constants.look_seconds is not None
    assert constants.remove_seconds is not None
