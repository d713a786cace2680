"""Every code block of the documentation works; and the runner that says so notices when one does not."""

import socket
from pathlib import Path

import pytest

from tests.docs.blocks import BlockError, run_document
from tests.docs.pages import ELSEWHERE, environment_of, oracle_settings, with_needs
from tests.docs.shell import ROOT
from tests.servers.mysql import MySQLServer
from tests.servers.oracle.server import OracleServer
from tests.servers.postgresql import PostgreSQLServer

PAGES = sorted({str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md")} - ELSEWHERE.keys())


@pytest.mark.parametrize("document", [with_needs(page) for page in ("README.md", "CONTRIBUTING.md", *PAGES)])
def test_code_blocks(document: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with environment_of(document, request):
        run_document(ROOT / document, tmp_path)


def run(folder: Path, *blocks: str) -> int:
    """Run a page made of these blocks, each an info string and its lines."""
    page = folder / "page.md"
    page.write_text("".join(f"```{block}\n```\n" for block in blocks), encoding="utf-8")
    return run_document(page, folder)


def test_blocks_of_a_page_share_a_module_a_loop_and_a_folder(tmp_path: Path) -> None:
    count = run(
        tmp_path,
        "python\nimport asyncio, pathlib\nloop = await asyncio.sleep(0, asyncio.get_running_loop())",
        "python\nassert await asyncio.sleep(0, asyncio.get_running_loop()) is loop",
        "python\npathlib.Path('made').write_text('x')",
        "bash\ncat made",
        "python fresh\nassert 'loop' not in globals()",
    )
    assert count == 5


def test_a_class_finds_its_annotations_in_the_module_of_its_block(tmp_path: Path) -> None:
    run(
        tmp_path,
        "python\nfrom __future__ import annotations\nimport typing\nclass A: ...\nclass B:\n    a: A",
        "python\nassert typing.get_type_hints(B) == {'a': A}",
    )


def test_a_page_serves_although_another_program_has_its_port(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        place = f"127.0.0.1:{other.getsockname()[1]}"
        serve = (
            f"bash\nlocus serve --store sqlite:a.db --port {place.partition(':')[2]}\ncurl -sf http://{place}/health"
        )
        assert run(tmp_path, serve, f"python\nprint('http://{place}')", f"text\nhttp://{place}") == 3


@pytest.mark.parametrize(
    "block",
    [
        "json\n{}",
        'jsonl\n{}\n{"a": 1}',
        "toml\na = 1",
        "yaml\na: 1",
        "text\nanything",
        "bash\n# a comment\npip install 'locus-state[redis,s3]>=0.1' # another",
        "bash\ngit clone https://example.invalid/locus.git && cd locus\nmake demo",
        "bash\nPYTHON=python3.12 make test \\\n  ARGS=-x",
        'sh\nA=1 python -c \'import os; assert os.environ["A"] == "1"; print("a; b && c")\'',
        "console\n$ echo hello\nhello",
        "shell\nhatch run format-check",
    ],
)
def test_a_sound_block_passes(block: str, tmp_path: Path) -> None:
    assert run(tmp_path, block) == 1


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("python\nx = 1\nassert x == 2", "page.md:3: AssertionError"),
        ("python\nx = 1\nx = = 2", "page.md:3: SyntaxError"),
        ("python\ndef f():\n    1 / 0\n\nf()", "page.md:3: ZeroDivisionError"),
        ("python\nimport sys\nsys.exit(1)", "page.md:3: SystemExit"),
        ("python\nimport asyncio\nawait asyncio.sleep(0)\nawait missing()", "page.md:4: NameError"),
        ("python skip\nx = 1", "unknown options"),
        ("\nuntagged", "page.md:1: .*no language"),
        ("cobol\nDISPLAY 'HI'.", "'cobol' can't be checked"),
        ("json\n{,}", "JSONDecodeError"),
        ("jsonl\n{}\n{", "JSONDecodeError"),
        ("toml\na =", "TOMLDecodeError"),
        ("yaml\na: [", "page.md:1: ParserError"),
        ("text hidden\nx", "unknown options"),
        ("sql\nSELECT 1", "where this block runs"),
        ("sql nowhere\nSELECT 1", "where this block runs"),
        ("console\nhello", "after `\\$ `"),
        ("bash\nrm -rf elsewhere", "can't be checked"),
        ("bash\nls | cat", "joined by &&"),
        ("bash\nls missing", "ended with"),
        ("bash\npython -c 'raise SystemExit(3)'", "ended with 3"),
        ("bash\npython examples/missing.py", "no such file"),
        ("bash\npython -m examples.missing", "no such module"),
        ("bash\nmake nothing", "no target nothing"),
        ("bash\nmake test PEER=1", "does not use PEER"),
        ("bash\npip install locus-state[nosql]", "no extra nosql"),
        ("bash\npip install locus-state>=0.1", "`>`"),
        ("bash\npython -m pip install something-else", "not a package of this project"),
        ("bash\nhatch run deploy", "hatch knows"),
        ("bash\ngit push", "only `git clone"),
        ("bash\ncd elsewhere", "does not follow"),
        ("bash\npytest tests/missing", "collects nothing"),
    ],
)
def test_a_broken_block_fails_and_names_its_place(block: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BlockError, match=message) as caught:
        run(tmp_path, block)
    assert str(caught.value).startswith(f"{tmp_path / 'page.md'}:")


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("python\nprint('a')\nprint('b ')", "text\na\nb"),
        ("bash\necho hello", "text\nhello"),
        ("python\nprint('in 0.3 s: done')", "text\nin … s: done"),
        ("python\nprint(*'abcd', sep='\\n')", "text\na\n…\nd"),
        ("python\nprint('7f: 7f < 80')", "text\n<id>: <id> < <other id>"),
        ("python\nprint('x')", "text unchecked\n┌─┐"),
    ],
)
def test_a_text_block_shows_what_was_printed(code: str, shown: str, tmp_path: Path) -> None:
    assert run(tmp_path, code, shown) == 2


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("python\nprint('a')\nprint('b')", "text\na"),
        ("python\nprint('a')", "text\na\nb"),
        ("python\nprint('a.b')", "text\na*b"),
        ("bash\necho hello", "text\nhullo"),
        ("python\nprint('7f: 80')", "text\n<id>: <id>"),
        ("python\nx = 1", "text\n1"),
        ("console\n$ echo hello\nhullo", "text\nhullo"),
    ],
)
def test_a_text_block_that_shows_something_else_fails(code: str, shown: str, tmp_path: Path) -> None:
    with pytest.raises(BlockError, match=r"page\.md:\d+: ValueError: this is shown:"):
        run(tmp_path, code, shown)


def test_what_was_printed_is_compared_across_prose_and_only_once(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    output, drawing = "```text\n{}\n```\n", "A drawing:\n\n```text\n┌─┐\n```\n"
    code = "```python\nprint('a')\n```\n"
    page.write_text(f"{code}Prose.\n\n{output.format('a')}{drawing}", encoding="utf-8")
    assert run_document(page, tmp_path) == 3
    page.write_text(f"{code}Prose.\n\n{output.format('b')}", encoding="utf-8")
    with pytest.raises(BlockError, match=r"page\.md:6: ValueError: this is shown:"):
        run_document(page, tmp_path)


SQL = "CREATE TABLE {t} (n int);\nINSERT INTO {t} VALUES (1);\nSELECT n FROM {t} WHERE n = {n};\nDROP TABLE {t}"


def run_sql(folder: Path, where: str) -> None:
    assert run(folder, f"sql {where}\n{SQL.format(t='shown', n=1)}") == 1
    with pytest.raises(BlockError, match=r"page\.md:1: .*statement 3 of the block returns no rows"):
        run(folder, f"sql {where}\n{SQL.format(t='hollow', n=2)}")
    with pytest.raises(BlockError, match=r"page\.md:1: .*[Ss]yntax"):
        run(folder, f"sql {where}\nSELECT 1;\nSELEKT 2")


def test_sql_runs_on_postgresql(
    postgresql_server: PostgreSQLServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTGRESQL_URL", postgresql_server.url)
    run_sql(tmp_path, "postgresql")


def test_sql_runs_on_mysql(mysql_server: MySQLServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYSQL_URL", mysql_server.url)
    run_sql(tmp_path, "mysql")


def test_sql_runs_on_oracle(oracle_server: OracleServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in oracle_settings(oracle_server).items():
        monkeypatch.setenv(name, value)
    assert run(tmp_path, f"sql oracle\n{SQL.format(t='shown', n=1)}") == 1
    with pytest.raises(BlockError, match=r"page\.md:1: .*statement 3 of the block returns no rows"):
        run(tmp_path, f"sql oracle\n{SQL.format(t='hollow', n=2)}")
    with pytest.raises(BlockError, match=r"page\.md:1: .*ORA-00900"):
        run(tmp_path, "sql oracle\nSELECT 1 FROM dual;\nSELEKT 2")


@pytest.mark.parametrize(
    ("where", "variable"), [("postgresql", "POSTGRESQL_URL"), ("mysql", "MYSQL_URL"), ("oracle", "ORACLE_DSN")]
)
def test_sql_needs_a_page_with_a_server(
    where: str, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(BlockError, match="this page has no server"):
        run(tmp_path, f"sql {where}\nSELECT 1")


def test_an_indented_block_is_an_untagged_one(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Prose.\n\n    rm -rf /\n", encoding="utf-8")
    with pytest.raises(BlockError, match=r"page\.md:3: .*no language"):
        run_document(page, tmp_path)


def test_a_block_inside_a_list_or_a_quotation_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    listed = "- item\n\n  ```python\n  x = 1\n  ```\n"
    page.write_text(f"{listed}\n> ```python\n> assert x == 2\n> ```\n", encoding="utf-8")
    with pytest.raises(BlockError, match=r"page\.md:8: AssertionError"):
        run_document(page, tmp_path)
