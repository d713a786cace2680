"""What is written is pinned, and what was written once stays readable.

A format that is new gets a file of its own: `LOCUS_WRITE_FORMAT=1 pytest tests/backends/postgresql/test_format.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from locus.core.messages import Message
from locus.memory.backends import MemoryCheckpointer, PostgreSQLBackend
from locus.memory.backends.postgresql.schema import FORMAT
from locus.testing.laws.base import assert_same_state
from tests.backends.postgresql.store import PostgreSQLStore
from tests.format.story import HOSTILE, PLAIN, Told, repeatable, tell

pytestmark = pytest.mark.postgresql

DATA = Path(__file__).parent / "data"
ORDER = {
    "threads": "id",
    "checkpoints": "id",
    "runs": "thread, branch, number",
    "writes": "thread, namespace, checkpoint_id, task_id, idx",
}


def dumped(store: PostgreSQLStore) -> str:
    """The statements that make the tables, and the rows in them."""
    lines = [PostgreSQLBackend.ddl()]
    with store.connection() as connection:
        for name, order in ORDER.items():
            table = f"locus_{name}"
            ((columns,),) = connection.execute(
                "SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute"
                " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND attgenerated = ''",
                (table,),
            ).fetchall()
            rows = connection.execute(
                f"SELECT quote_literal(to_json(t)::text) FROM {table} t ORDER BY {order}".encode()
            ).fetchall()
            insert = (
                f"INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE"
                f" SELECT {columns} FROM json_populate_record(NULL::{table}, "
            )
            lines += [f"{insert}{row});\n" for (row,) in rows]
    return "".join(lines)


async def test_the_tables_and_rows(store: PostgreSQLStore) -> None:
    with repeatable():
        async with store.open() as handle:
            await tell(handle)
    pinned = DATA / f"format-{FORMAT}.sql"
    if "LOCUS_WRITE_FORMAT" in os.environ:
        pinned.write_text(dumped(store), encoding="utf-8", newline="\n")
    assert dumped(store) == pinned.read_text(encoding="utf-8")


async def _told() -> Told:
    """What the story is about."""
    with repeatable():
        return await tell(MemoryCheckpointer())


@pytest.mark.parametrize("number", range(1, FORMAT + 1))
async def test_what_every_format_has_written_can_be_read_and_gone_on_with(store: PostgreSQLStore, number: int) -> None:
    with store.connection() as connection:
        connection.execute(f'CREATE SCHEMA "{store.schema}"')
        connection.execute((DATA / f"format-{number}.sql").read_bytes())
        for table in ("threads", "checkpoints"):
            sequence = f"pg_get_serial_sequence('locus_{table}', 'id')"
            connection.execute(f"SELECT setval({sequence}, max(id)) FROM locus_{table}".encode())
    told = await _told()
    async with store.open() as handle:
        assert await handle.list_threads() == sorted([PLAIN, HOSTILE])
        for (thread_id, namespace, checkpoint_id), state in told.items():
            assert_same_state(await handle.load(thread_id, checkpoint_id, namespace=namespace), state)
        state = told[PLAIN, "default", "three"]
        longer = state.with_message(Message.user("and on"))
        assert_same_state(await handle.load(PLAIN, await handle.save(longer, PLAIN)), longer)
        assert [write.value for write in await handle.get_writes(PLAIN, "two")] == ["no", {"x": [1]}]
        assert "two" in {hit["checkpoint_id"] for hit in await handle.search("coffee")}
