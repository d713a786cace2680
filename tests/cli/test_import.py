"""`locus import`: what it takes, what it ends with, and what it never shows."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agents import SQLiteSession
from langgraph.checkpoint.sqlite import SqliteSaver
from pydantic import BaseModel

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


@dataclass
class Price:
    cents: int


class Shop:
    class Order(BaseModel):
        number: int = 1


def test_all_classes_that_are_missing_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of all checkpoints, pending writes and threads."""
    with SqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        graph = make_graph(saver)
        for thread, kept in (("a", [Price(1), Ticket(1)]), ("b", [Shop.Order()])):
            for value in kept:
                graph.update_state(config(thread), {"facts": {"it": value}}, as_node="answer")
        found = saver.get_tuple(config("b"))
        assert found is not None
        saver.put_writes(found.config, [("notes", Colour.RED)], "task")
    arguments = ["import", "langgraph", str(tmp_path / "graph.db"), f"sqlite:{tmp_path / 'a.db'}"]
    assert main(arguments) == 1
    *problems, advice = capsys.readouterr().err.splitlines()
    order, price = f"{__name__}:Order", f"{__name__}:Price"
    colour, ticket = "tests.transfer.graphs:Colour", "tests.transfer.graphs:Ticket"
    first, second = sorted(problems)
    assert first.endswith(f"allow them with --allow {price} --allow {colour} --allow {ticket}")
    assert second.endswith(f"allow them with --allow {order} --allow {colour}")
    names = [order, price, colour, ticket]
    assert advice.endswith(f"add {' '.join(f'--allow {name}' for name in names)}")
    assert main([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["missing"] == names
    # A class inside of another, and a schema that declares the rest.
    allow = [
        "--allow",
        f"{__name__}:Shop.Order",
        "--allow",
        f"{__name__}:Price",
        "--allow",
        "tests.transfer.graphs:State",
    ]
    assert main([*arguments, *allow]) == 0


def test_modules_of_the_current_folder_are_found(tmp_path: Path) -> None:
    module = tmp_path / "my_state_module.py"
    module.write_text("from dataclasses import dataclass\n@dataclass\nclass Place:\n    name: str\n")
    program = (
        "from langgraph.checkpoint.sqlite import SqliteSaver\n"
        "from my_state_module import Place\n"
        "with SqliteSaver.from_conn_string('graph.db') as saver:\n"
        "    saver.put({'configurable': {'thread_id': 't', 'checkpoint_ns': ''}}, {'v': 4, 'id': '1',"
        " 'ts': '2026-07-01T00:00:00+00:00', 'channel_values': {'place': Place('Rome')}, 'channel_versions': {},"
        " 'versions_seen': {}}, {}, {})\n"
    )
    folder: dict[str, Any] = {"cwd": tmp_path, "check": True, "capture_output": True}
    subprocess.run([sys.executable, "-c", program], **folder)
    # As the console script, whose own folder is the first where modules are looked for.
    script = "import sys; sys.path.remove(''); from locus.cli import main; sys.exit(main(sys.argv[1:]))"
    command = ["import", "langgraph", "graph.db", "sqlite:a.db", "--allow", "my_state_module:Place"]
    subprocess.run([sys.executable, "-c", script, *command], **folder)


def test_classes_of_a_script_are_allowed_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_chat_script.py").write_text(
        "import sys\n"
        "from dataclasses import dataclass\n"
        "from typing import TypedDict\n"
        "from langgraph.checkpoint.sqlite import SqliteSaver\n"
        "from langgraph.graph import START, StateGraph\n"
        "from locus.integrations.langgraph import LocusSaver\n"
        "@dataclass\n"
        "class Seat:\n    row: int\n"
        "class State(TypedDict):\n    seat: Seat\n"
        "def sit(state):\n    return {'seat': Seat(state['seat'].row + 1)}\n"
        "if __name__ == '__main__':\n"
        "    thread = {'configurable': {'thread_id': 't'}}\n"
        "    builder = StateGraph(State).add_node(sit).add_edge(START, 'sit')\n"
        "    if sys.argv[1] == 'before':\n"
        "        with SqliteSaver.from_conn_string('graph.db') as saver:\n"
        "            builder.compile(checkpointer=saver).invoke({'seat': Seat(1)}, thread)\n"
        "    else:\n"
        "        with LocusSaver('sqlite:a.db') as saver:\n"
        "            graph = builder.compile(checkpointer=saver)\n"
        "            assert graph.get_state(thread).values == {'seat': Seat(2)}\n"
        "            assert graph.invoke({}, thread) == {'seat': Seat(3)}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    subprocess.run([sys.executable, "my_chat_script.py", "before"], check=True, capture_output=True)
    arguments = ["import", "langgraph", "graph.db", "sqlite:a.db"]
    assert main(arguments) == 1
    told = capsys.readouterr().err
    assert "--allow __main__=SCRIPT:Seat, where SCRIPT is the file that was run, without .py" in told
    assert "__main__:" not in told
    assert main([*arguments, "--allow", "__main__:Seat"]) == 2
    assert "__main__=my_script:Seat" in capsys.readouterr().err
    assert main([*arguments, "--allow", "__main__=my_chat_script:State"]) == 0
    subprocess.run([sys.executable, "my_chat_script.py", "after"], check=True)


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


def test_what_is_wrong_with_very_many_threads_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with SqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        graph = make_graph(saver)
        for number in range(12):
            graph.update_state(config(f"thread {number}"), {"facts": {"it": Price(1)}}, as_node="answer")
        graph.update_state(config("other"), {"facts": {"it": Shop.Order()}}, as_node="answer")
    arguments = ["import", "langgraph", str(tmp_path / "graph.db"), f"sqlite:{tmp_path / 'a.db'}"]
    assert main(arguments) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if "--allow" in line and "'thread " in line]) == 3
    assert "locus: the same is wrong with 9 more threads, which --json lists" in lines
    assert len(lines) == 6  # with the other thread, and the advice for all
    assert main([*arguments, "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 13
