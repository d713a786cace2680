"""Finds the code blocks of a Markdown file, and runs or checks each of them as its language asks for.

No block goes unchecked: one without a language (an indented one has none), with a language that is unknown
here, or with an option that nobody reads is an error.

`text` is output or a drawing. It has to be what the code before it has printed, if that printed anything, and also if
only blank lines are between the two. `…` stands for what varies, alone on a line for any number of lines, and `<name>`
for something that is the same wherever the block has that name. `text unchecked` is not compared.

The blocks of a file run in order and in one folder, and its `python` blocks in one module, which the option
`fresh` (in the info string: `python fresh`) replaces by a new one. Top-level `await` is allowed.

A page may serve on any port. It gets a free one instead, so that other runs on the same machine do not disturb it.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import re
import sys
import tomllib
import traceback
from collections.abc import Callable
from configparser import ConfigParser
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import yaml
from markdown_it import MarkdownIt

from tests.docs.shell import run_shell
from tests.docs.sql import run_on_mysql, run_on_oracle, run_on_postgresql
from tests.servers.ports import free_port


@dataclass(frozen=True)
class Block:
    file: Path
    line: int
    """The line of the opening fence."""
    language: str
    options: tuple[str, ...]
    text: str
    follows: bool = False
    """Whether only blank lines are between it and the block before it."""


class BlockError(Exception):
    """A block that failed. The message starts with its place."""


def find_blocks(file: Path) -> list[Block]:
    blocks: list[Block] = []
    source = file.read_text(encoding="utf-8")
    lines, end = source.splitlines(), 0
    for token in MarkdownIt().parse(source):
        if token.type in ("fence", "code_block"):
            assert token.map is not None
            language, *options = token.info.split() or [""]
            follows = bool(blocks) and not "".join(lines[end : token.map[0]]).strip()
            blocks.append(Block(file, token.map[0] + 1, language, tuple(options), token.content, follows))
            end = token.map[1]
    return blocks


def run_document(file: Path, folder: Path) -> int:
    """Run every block of a file inside a folder, and return how many there were."""
    blocks = on_free_ports(find_blocks(file))
    with contextlib.chdir(folder), asyncio.Runner() as loop:
        session = Session(loop, ModuleType("__main__"))
        for block in blocks:
            try:
                run_block(session, block)
            except (Exception, SystemExit) as error:
                place = f"{file}:{line_of(error, block)}"
                raise BlockError(f"{place}: {type(error).__name__}: {error}") from error
    return len(blocks)


def on_free_ports(blocks: list[Block]) -> list[Block]:
    """The blocks, with a free port instead of each on which a shell command of theirs serves."""
    served = {
        port for block in blocks if RUNNERS.get(block.language) is run_bash for port in SERVES.findall(block.text)
    }
    free = {port: str(free_port()) for port in served}
    if not free:
        return blocks
    place = re.compile(rf"(127\.0\.0\.1:|--port )({'|'.join(free)})\b")
    return [replace(block, text=place.sub(lambda found: found[1] + free[found[2]], block.text)) for block in blocks]


SERVES = re.compile(r"\blocus serve\b.* --port (\d+)")


def line_of(error: BaseException, block: Block) -> int:
    """The innermost line of the block that was running, else the line of its fence."""
    if isinstance(error, SyntaxError) and error.filename == str(block.file) and error.lineno:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(block.file) and frame.lineno]
    return lines[-1] if lines else block.line


@dataclass
class Session:
    """What the blocks of one file share."""

    loop: asyncio.Runner
    module: ModuleType
    printed: str = ""
    """What the last code has printed, as long as no block has shown it."""
    ran_code: bool = False
    """Whether the last block was code that could have printed something."""


def run_block(session: Session, block: Block) -> None:
    runner = RUNNERS.get(block.language)
    if runner is None:
        known = ", ".join(sorted(RUNNERS))
        raise ValueError(f"a block in {block.language or 'no language'!r} can't be checked; known: {known}")
    runner(session, block)
    session.ran_code = runner in (run_python, run_bash)


def run_python(session: Session, block: Block) -> None:
    if block.options == ("fresh",):
        session.module = ModuleType("__main__")
    else:
        refuse_options(block)
    # Padded, so that line numbers are those of the file.
    source = "\n" * block.line + block.text
    session.printed = ""
    code = compile(source, str(block.file), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    # Annotations of classes that a block defines are looked up in the module that they name.
    main = sys.modules["__main__"]
    sys.modules["__main__"] = session.module
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            result = eval(code, session.module.__dict__)
            if inspect.iscoroutine(result):
                session.loop.run(result)
    finally:
        sys.modules["__main__"] = main
        session.printed = printed.getvalue()


def run_bash(session: Session, block: Block) -> None:
    refuse_options(block)
    session.printed = run_shell(block.text)


def run_console(session: Session, block: Block) -> None:
    """Lines after a `$ ` are commands, and the others what they print."""
    refuse_options(block)
    lines = block.text.splitlines()
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    if not commands:
        raise ValueError("a console block shows a command after `$ `; output alone is `text`")
    compare("\n".join(line for line in lines if not line.startswith("$ ")), run_shell("\n".join(commands)))


def check_text(session: Session, block: Block) -> None:
    if block.options == ("unchecked",):
        return
    refuse_options(block)
    if session.printed or (block.follows and session.ran_code):
        compare(block.text, session.printed)
    session.printed = ""


def compare(shown: str, printed: str) -> None:
    """Refuse a text that is not what was printed, but for what varies."""
    pattern, names = "", dict[str, str]()
    for line in shown.strip("\n").splitlines():
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
            continue
        for part in VARIES.split(line.rstrip()):
            if VARIES.fullmatch(part) is None:
                pattern += re.escape(part)
            elif part == "…":
                pattern += ".*"
            else:
                pattern += f"(?P={names[part]})" if part in names else f"(?P<name{len(names)}>.+?)"
                names.setdefault(part, f"name{len(names)}")
        pattern += r"\n"
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    if re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is None:
        raise ValueError(f"this is shown:\n{shown.rstrip()}\nand this is printed:\n{printed.rstrip()}")


VARIES = re.compile(r"(…|<[a-z][a-z0-9 ]*>)")


def run_sql(session: Session, block: Block) -> None:
    runner = SQL_RUNNERS.get(" ".join(block.options))
    if runner is None:
        known = ", ".join(sorted(SQL_RUNNERS))
        raise ValueError(f"name after `sql` where this block runs; known in SQL_RUNNERS: {known}")
    runner(session, block)


def parsed_by(parse: Callable[[str], object]) -> "Runner":
    def check(session: Session, block: Block) -> None:
        refuse_options(block)
        parse(block.text)

    return check


def refuse_options(block: Block) -> None:
    if block.options:
        raise ValueError(f"unknown options after {block.language}: {' '.join(block.options)}")


Runner = Callable[[Session, Block], None]

RUNNERS: dict[str, Runner] = {
    "python": run_python,
    "bash": run_bash,
    "sh": run_bash,
    "shell": run_bash,
    "console": run_console,
    "sql": run_sql,
    "json": parsed_by(json.loads),
    "jsonl": parsed_by(lambda text: [json.loads(line) for line in text.splitlines()]),
    "toml": parsed_by(tomllib.loads),
    "ini": parsed_by(lambda text: ConfigParser().read_string(text)),
    "yaml": parsed_by(yaml.safe_load),
    "text": check_text,
}

SQL_RUNNERS: dict[str, Runner] = {
    "postgresql": lambda session, block: run_on_postgresql(block.text),
    "mysql": lambda session, block: run_on_mysql(block.text),
    "oracle": lambda session, block: run_on_oracle(block.text),
}
"""By the words after `sql` in the info string: what runs such a block, and against which database."""
