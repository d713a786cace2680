"""The Python blocks of the documentation as modules that a type checker reads.

The blocks of a page share a module, as they do where they are run. Because of their top-level `await` it is the body of
an async function. Lines keep their numbers, so that what a checker says names a line of the page.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.blocks import Block, find_blocks

# In the module, and not in the command: other options would make mypy read the whole package anew.
_SETTINGS = ['# mypy: disable-error-code="import-untyped"', '# mypy: untyped-calls-exclude="llmfy"']
"""What other packages leave untyped is not the reader's business."""
_WILDCARD = re.compile(r"from [\w.]+ import \*")


def write_modules(root: Path, pages: list[str], folder: Path) -> dict[str, str]:
    """Write a module for each page, and for each block that begins anew. Returns the pages by the modules' names."""
    written: dict[str, str] = {}
    for page in pages:
        for number, blocks in enumerate(_sessions(find_blocks(root / page))):
            name = re.sub(r"\W", "_", page.removesuffix(".md")) + (f"_{number}" if number else "")
            (folder / f"{name}.py").write_text(_module(blocks), encoding="utf-8")
            written[name] = page
    return written


def _sessions(blocks: list[Block]) -> Iterator[list[Block]]:
    """The Python blocks that share a module."""
    found: list[Block] = []
    for block in blocks:
        if block.language != "python":
            continue
        if "fresh" in block.options and found:
            yield found
            found = []
        found.append(block)
    if found:
        yield found


def _module(blocks: list[Block]) -> str:
    lines, wildcards = ["async def page() -> None:"], []
    for block in blocks:
        lines += [""] * (block.line - len(lines))
        for line in block.text.splitlines():
            if _WILDCARD.fullmatch(line):
                wildcards.append(line)
                line = "pass"
            # Only a module may begin with it, and checkers take annotations as they are.
            line = "pass" if line == "from __future__ import annotations" else line
            lines.append(f"    {line}" if line.strip() else "")
    return "\n".join([*lines, *wildcards, *_SETTINGS, ""])
