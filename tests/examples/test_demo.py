"""The demo, as a newcomer starts it: what it prints is compared with what happened."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
BY_MODULE = ["-m", "examples.demo"]
BY_PATH = [str(ROOT / "examples" / "demo.py")]


def run_demo(start: list[str], *options: str) -> str:
    done = subprocess.run(
        [sys.executable, *start, "--turns", "40", *options], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found is not None, f"{pattern!r} is not in:\n{text}"
    return int(found[1].replace(",", ""))


@pytest.fixture(scope="module")
def output() -> str:
    return run_demo(BY_MODULE)


@pytest.mark.crash
def test_the_first_process_was_killed_while_it_talked(output: str) -> None:
    assert number(r"process \d+ is gone: return code (-?\d+)", output) == -signal.SIGKILL
    acknowledged = number(r"had acknowledged (\d+) messages", output)
    assert 5 <= acknowledged < 20
    # On a busy machine the signal may come late, and then the title must not say what isn't so.
    assert ("SIGKILL, in the middle of a turn" in output) == (acknowledged % 4 != 0)


@pytest.mark.crash
def test_the_second_process_found_what_was_acknowledged(output: str) -> None:
    acknowledged = number(r"had acknowledged (\d+) messages", output)
    # The kill may strike between the commit and its acknowledgement, and then there is one more.
    assert number(r"process \d+ found (\d+) messages", output) in (acknowledged, acknowledged + 1)
    assert number(r"process (\d+) is gone", output) != number(r"process (\d+) found", output)
    assert number(r"said the rest and ended with return code (\d+)", output) == 0


@pytest.mark.crash
def test_every_message_was_said_once(output: str) -> None:
    talk, _, rest = output.partition("The history")
    acknowledged = number(r"had acknowledged (\d+) messages", output)
    lost_receipts = number(r"process \d+ found (\d+) messages", output) - acknowledged
    assert len(re.findall(r"saved [0-9a-f]{8}…", talk)) == 20 - lost_receipts
    assert number(r"answer +(\d+)", rest) == 20


@pytest.mark.crash
def test_the_fork_leaves_the_other_line_as_it_was(output: str) -> None:
    assert "both lines load: 12 messages at seq 24, 20 messages at seq 20" in output
    assert len(re.findall(r"^  − ", output, re.MULTILINE)) == 12
    assert len(re.findall(r"^  \+ ", output, re.MULTILINE)) == 4


@pytest.mark.crash
def test_search_finds_the_old_message(output: str) -> None:
    assert number(r"“hazelnuts”: (\d+) checkpoints", output) == 3
    assert re.search(r"seq 5 +[0-9a-f]{20} .*hazelnuts", output)


@pytest.mark.crash
def test_the_cost_is_measured(output: str) -> None:
    sizes = {name: float(size) for name, size in re.findall(r"^  (\w[\w ]+?) +([\d.]+) MB", output, re.MULTILINE)}
    assert sizes["content"] <= sizes["on the disk"] < sizes["whole states"]
    assert re.search(r"save at turn 40 +\d+\.\d\d ms", output)
    assert "All 160 messages loaded" in output


@pytest.mark.crash
def test_nothing_is_left_behind(output: str) -> None:
    folder = re.search(r"(\S+) is removed again", output)
    assert folder is not None
    assert not Path(folder[1]).exists()


@pytest.mark.crash
def test_it_runs_by_its_path_and_without_colours() -> None:
    output = run_demo(BY_PATH, "--plain")
    assert number(r"return code (-?\d+) \(SIGKILL\)", output) == -signal.SIGKILL
    assert "\x1b" not in output


@pytest.mark.crash
def test_ctrl_c_ends_the_agent_and_removes_the_folder() -> None:
    demo = subprocess.Popen(
        [sys.executable, "-u", *BY_MODULE],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background ignores Ctrl-C, and a child would inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    assert demo.stdout is not None
    folder, agents = "", []
    for line in demo.stdout:
        kept = re.search(r"no server: (\S+)/agents\.db", line)
        folder = kept[1] if kept else folder
        if "saved" in line and "user" in line:
            agents = psutil.Process(demo.pid).children()
            demo.send_signal(signal.SIGINT)
            break
    _, errors = demo.communicate(timeout=30)
    assert demo.returncode == 128 + signal.SIGINT
    assert errors.strip() == "stopped; nothing is left behind"
    assert folder
    assert not Path(folder).exists()
    assert agents
    assert not any(agent.is_running() for agent in agents)


@pytest.mark.crash
def test_it_ends_with_how_to_see_it_in_the_browser(output: str) -> None:
    assert output.strip().splitlines()[-1].strip() == "To see it in the browser, keep it: make demo ARGS=--keep"


@pytest.mark.crash
def test_what_is_kept_is_opened_by_the_last_line() -> None:
    output = run_demo(BY_MODULE, "--plain", "--keep")
    found = re.search(r"See it in the browser: (\S.*) inspect sqlite:(\S+)", output.strip().splitlines()[-1])
    assert found is not None, output
    path = Path(found[2])
    try:
        assert path.exists()
        listed = subprocess.run(
            [*shlex.split(found[1]), "threads", f"sqlite:{path}"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert listed.stdout.startswith("trip-to-helsinki")
    finally:
        shutil.rmtree(path.parent)
