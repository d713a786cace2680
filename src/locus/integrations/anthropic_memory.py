"""Anthropic's memory tool over a long-term memory: files that Claude reads and writes, on every store.

    from locus.integrations.anthropic_memory import LocusMemoryTool

    tool = LocusMemoryTool(memory, "ada")
    runner = client.beta.messages.tool_runner(model=…, messages=…, tools=[tool])   # AsyncAnthropic

A file `/memories/notes/tea.md` is an item: `notes` is a label of its namespace, `tea.md` its key, and each change a
version. The files of a user are below `("users", user_id, "memories", "files")`, so whatever recalls facts about the
user finds what they say, too. Two who edit a file at the same time do not overwrite each other.

For Pydantic AI, whose `MemoryTool` asks for a function with the name `memory`, `call` is that function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from locus.errors import ConflictError
from locus.extras import require

require("anthropic.lib.tools", "anthropic")

from anthropic.lib.tools import ToolError  # noqa: E402
from anthropic.tools.memory import BetaAsyncAbstractMemoryTool  # noqa: E402

from locus.memory.long_term import Delete, Item, LongTermMemory, Put  # noqa: E402

if TYPE_CHECKING:
    from anthropic.types.beta import (
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818DeleteCommand,
        BetaMemoryTool20250818InsertCommand,
        BetaMemoryTool20250818RenameCommand,
        BetaMemoryTool20250818StrReplaceCommand,
        BetaMemoryTool20250818ViewCommand,
    )

__all__ = ["LocusMemoryTool"]

ROOT: Final = "/memories"
LONGEST: Final = 100_000
"""The most characters of a file."""
MOST_FILES: Final = 1_000
"""The most files that a view, a removal or a new name reaches at once."""
_LEVELS = 2

Path = tuple[str, ...]


class LocusMemoryTool(BetaAsyncAbstractMemoryTool):
    """The files of one user, for `client.beta.messages.tool_runner` of an `AsyncAnthropic`."""

    def __init__(self, memory: LongTermMemory, user_id: str, *, source: str | None = None) -> None:
        super().__init__()
        self._files = memory.scoped(("users", user_id, "memories", "files"))
        self._source = source

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        path = _path_of(command.path)
        item = await self._file(path)
        if item is None:
            return await self._folder(path, command.path)
        lines = _text_of(item).split("\n")
        first, last = (command.view_range or [1, -1])[:2] if len(command.view_range or [1, -1]) == 2 else (1, -1)
        chosen = list(enumerate(lines, 1))[max(first, 1) - 1 : None if last == -1 else max(last, 0)]
        return "\n".join([f"Here's the content of {command.path} with line numbers:", *map(_numbered, chosen)])

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        path = _path_of(command.path, of_file=True)
        if await self._below(path, 1):
            raise ToolError(f"{command.path} is a directory")
        try:
            await self._put(path, command.file_text, None)
        except ConflictError:
            raise ToolError(f"File {command.path} already exists") from None
        return f"File created successfully at: {command.path}"

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        def replaced(text: str) -> str:
            count = text.count(command.old_str) if command.old_str else 0
            if count != 1:
                found = "did not appear" if not count else f"appeared {count} times: make it unique"
                raise ToolError(f"No replacement was performed, old_str {found} in {command.path}.")
            return text.replace(command.old_str, command.new_str)

        await self._edit(command.path, replaced)
        return f"The memory file {command.path} has been edited."

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        def inserted(text: str) -> str:
            lines = text.split("\n")
            if not 0 <= command.insert_line <= len(lines):
                raise ToolError(
                    f"Invalid `insert_line` parameter: {command.insert_line}. It should be within [0, {len(lines)}]."
                )
            return "\n".join(
                [*lines[: command.insert_line], command.insert_text.rstrip("\n"), *lines[command.insert_line :]]
            )

        await self._edit(command.path, inserted)
        return f"The file {command.path} has been edited."

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Remove a file or a directory, with all earlier versions."""
        path = _path_of(command.path, of_file=True)
        if not await self._files.delete(path[:-1], path[-1]) and not await self._files.erase(path):
            raise ToolError(f"The path {command.path} does not exist")
        return f"Successfully deleted {command.path}"

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Move a file or a directory. The history stays behind, and ends."""
        old, new = _path_of(command.old_path, of_file=True), _path_of(command.new_path, of_file=True)
        if new[: len(old)] == old and new != old:
            raise ToolError(f"{command.new_path} is inside of {command.old_path}")
        if await self._file(new) is not None or await self._below(new, 1):
            raise ToolError(f"The destination {command.new_path} already exists")
        file = await self._file(old)
        moved = [file] if file is not None else await self._below(old, MOST_FILES + 1)
        if not moved or len(moved) > MOST_FILES:
            what = f"has more than {MOST_FILES:,} files" if moved else "does not exist"
            raise ToolError(f"The path {command.old_path} {what}")
        places = [(*new, *(*item.namespace, item.key)[len(old) :]) for item in moved]
        puts = [
            Put(place[:-1], place[-1], item.value, index=["text"], source=item.source)
            for place, item in zip(places, moved, strict=True)
        ]
        gone = [Delete(item.namespace, item.key) for item in moved]
        if self._files.is_atomic:
            await self._files.batch([*puts, *gone], atomic=True)
        else:
            await self._files.batch(puts)
            await self._files.batch(gone)
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    async def clear_all_memory(self) -> str:
        await self._files.erase(())
        return "All memory cleared"

    async def _folder(self, path: Path, named: str) -> str:
        items = await self._below(path, MOST_FILES + 1)
        if not items and path:
            raise ToolError(f"The path {named} does not exist. Please provide a valid path.")
        sizes: dict[str, int] = {}
        for item in items[:MOST_FILES]:
            steps = (*item.namespace, item.key)[len(path) :]
            for depth in range(1, min(len(steps), _LEVELS) + 1):
                name = "/".join(steps[:depth]) + ("/" if depth < len(steps) else "")
                sizes[name] = sizes.get(name, 0) + len(_text_of(item))
        lines = [f"{size}\t{named.rstrip('/')}/{name}" for name, size in sorted(sizes.items())]
        more = [f"… and more: only the first {MOST_FILES:,} files are shown"] if len(items) > MOST_FILES else []
        return "\n".join([f"Here're the files and directories up to 2 levels deep in {named}:", *lines, *more])

    async def _file(self, path: Path) -> Item | None:
        return await self._files.get_item(path[:-1], path[-1]) if path else None

    async def _below(self, path: Path, most: int) -> list[Item]:
        return [*await self._files.search(path, limit=most)]

    async def _edit(self, named: str, change: Callable[[str], str]) -> None:
        path = _path_of(named, of_file=True)
        item = await self._file(path)
        if item is None:
            raise ToolError(f"The path {named} does not exist. Please provide a valid path.")
        try:
            await self._put(path, change(_text_of(item)), item)
        except ConflictError:
            raise ToolError(f"{named} was changed by somebody else: view it again") from None

    async def _put(self, path: Path, text: str, seen: Item | None) -> None:
        if len(text) > LONGEST:
            raise ToolError(f"a file has at most {LONGEST:,} characters, and this one would have {len(text):,}")
        await self._files.put(path[:-1], path[-1], {"text": text}, index=["text"], if_version=seen, source=self._source)


def _path_of(named: Any, *, of_file: bool = False) -> Path:
    """The names in a path. It is data: nothing in it leads anywhere else."""
    names = named.split("/") if isinstance(named, str) else []
    path = tuple(filter(None, names[2:]))
    if names[:2] != ["", ROOT[1:]] or any(name in (".", "..") or not name.isprintable() for name in path):
        raise ToolError(f"A path begins with {ROOT}, and has no `..`, got {str(named)!r:.100}")
    if of_file and not path:
        raise ToolError(f"{ROOT} itself cannot be changed")
    return path


def _text_of(item: Item) -> str:
    return item.value["text"] if isinstance(item.value, dict) and isinstance(item.value.get("text"), str) else ""


def _numbered(line: tuple[int, str]) -> str:
    number, text = line
    return f"{number:>6}\t{text}"
