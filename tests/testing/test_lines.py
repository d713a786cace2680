"""Which lines of a save are worth a kill."""

from __future__ import annotations

from locus.testing.processes.lines import Choice, Position, chosen

LINES: list[Position] = [("/model/threads.py" if at % 3 else "/engine/redis.py", at, 1) for at in range(300)]


def _in_engine(found: list[Position]) -> list[Position]:
    return [position for position in found if position[0].startswith("/engine")]


def test_each_line_of_the_engine_and_some_others() -> None:
    found = chosen(LINES, ["/engine"], Choice(10))
    assert _in_engine(found) == _in_engine(LINES)
    assert len(found) - len(_in_engine(found)) >= 5
    assert found[-10:] == LINES[-10:]
    assert chosen(LINES, ["/engine"], Choice(None)) == LINES


def test_every_so_many_lines_of_the_engine() -> None:
    found = chosen(LINES, ["/engine"], Choice(10, every=10, last=3))
    assert 10 <= len(_in_engine(found)) <= 25
    assert found[-3:] == LINES[-3:]
    assert found == sorted(found, key=lambda position: position[1])
