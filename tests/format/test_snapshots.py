"""What is written is pinned: if this fails, the stored format has changed, and needs a number of its own."""

from __future__ import annotations

from pathlib import Path

from locus.memory.backends.file.schema import FORMAT
from locus.memory.backends.sqlite.schema import MIGRATIONS
from tests.format.story import DATA, dumped, write_database, write_folder


def test_the_tables_and_rows_of_a_database(tmp_path: Path) -> None:
    write_database(tmp_path / "a.db")
    assert dumped(tmp_path / "a.db") == (DATA / f"sqlite-{len(MIGRATIONS)}.sql").read_text(encoding="utf-8")


def test_the_bytes_of_a_log(tmp_path: Path) -> None:
    write_folder(tmp_path)
    pinned = {path.name: path.read_bytes() for path in (DATA / f"file-{FORMAT}").glob("*.jsonl")}
    assert len(pinned) == 2
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.jsonl")} == pinned


def test_nothing_but_logs_and_locks_is_left_in_a_folder(tmp_path: Path) -> None:
    write_folder(tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".jsonl"} == {".locks"}


def test_every_format_that_was_ever_written_has_its_data() -> None:
    for number in range(1, len(MIGRATIONS) + 1):
        assert (DATA / f"sqlite-{number}.db").is_file()
    for number in range(1, FORMAT + 1):
        assert (DATA / f"file-{number}").is_dir()
