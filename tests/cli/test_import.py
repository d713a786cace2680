"""`locus import`: what it takes, what it ends with, and what it never shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agents import SQLiteSession
from langgraph.checkpoint.sqlite import SqliteSaver

from locus.cli import main, parser
from locus.integrations.langgraph.saver import LocusSaver
from tests.transfer.graphs import Colour, Ticket, config, make_graph


def test_a_class_of_ones_own_is_allowed_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with SqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        make_graph(saver).update_state(config("t"), {"ticket": Ticket(7)}, as_node="answer")
    arguments = ["import", "langgraph", str(tmp_path / "graph.db"), f"sqlite:{tmp_path / 'a.db'}"]
    assert main(arguments) == 1
    said = capsys.readouterr().err
    allow = said[said.index("--allow") :].split()
    assert main([*arguments, *allow, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["moved"] == 1
    with LocusSaver(f"sqlite:{tmp_path / 'a.db'}", allowed_types=[Ticket, Colour]) as ours:
        assert make_graph(ours).get_state(config("t")).values["ticket"] == Ticket(7)


async def test_sessions_in_tables_of_other_names(tmp_path: Path) -> None:
    session = SQLiteSession("a", tmp_path / "s.db", sessions_table="s", messages_table="m")
    await session.add_items([{"role": "user", "content": "hi"}])
    session.close()
    names = ["--sessions-table", "s", "--messages-table", "m"]
    code = _in_a_thread(["import", "openai-agents", str(tmp_path / "s.db"), f"sqlite:{tmp_path / 'a.db'}", *names])
    assert code == 0


def _in_a_thread(arguments: list[str]) -> int:
    """The command has an event loop of its own."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(main, arguments).result()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["langgraph", "{}/none.db"], "there is no file"),
        (["openai-agents", "{}/none.db"], "there is no file"),
        (["locus-sdk", "{}/none"], "there is no folder"),
        (["langgraph", "redis://u:s3cret@h"], "this is read from sqlite, postgresql, not from 'redis'"),
        (["openai-agents", "mysql://u:s3cret@h/d"], "this is read from sqlite, not from 'mysql'"),
        (["locus-sdk", "http://u:s3cret@h"], "this is read from file, "),
        (["langgraph", "--allow", "nowhere:X", "{}/none.db"], "the class 'nowhere:X' cannot be imported"),
        (["locus-sdk", "redis://u:s3cret@127.0.0.1:1"], "redis://127.0.0.1:1 cannot be read now"),
        (["locus-sdk", "postgresql://u:s3cret@127.0.0.1:1/d?retry_seconds=0.1"], "127.0.0.1:1/d"),
        (["langgraph", "postgresql://u:s3cret@127.0.0.1:1/d?retry_seconds=0.1"], "127.0.0.1:1/d"),
        (["langgraph", "env:LOCUS_NOT_SET"], "the variable 'LOCUS_NOT_SET' is not set"),
    ],
)
def test_what_cannot_work_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    words = [word.format(tmp_path) for word in arguments]
    assert main(["import", *words, f"sqlite:{tmp_path / 'a.db'}"]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert "s3cret" not in told.out + told.err
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    told = parser().format_help()
    for command in ("serve", "copy", "import"):
        assert command in told
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
    assert "--allow MODULE:CLASS" in capsys.readouterr().out
