"""The workspace of an agent: a plan and files, kept in its thread beside the conversation.

It is a dict in the namespace "workspace" of the thread: {"todos": [...], "files": {path: text}}. A file is stored once
for each content that it had, and every earlier version stays loadable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from locus.agent.calls import CallContext, current_call
from locus.agent.sessions import Session
from locus.errors import ConflictError
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore
from locus.tools import Tool, tool

NAMESPACE = "workspace"
_ATTEMPTS = 20


class Todo(BaseModel):
    """One step of a plan."""

    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


class Workspace:
    """The workspaces of threads. Its methods work on the thread of the tool call under way.

    Without a store, workspaces live as long as this object. That of a run without a thread lives as long as the run.
    """

    def __init__(self, store: CheckpointStore | None) -> None:
        self._store = StorageBackend(store) if store is not None else None
        self._by_thread: dict[str, dict[str, Any]] = {}
        self._by_run: WeakKeyDictionary[Session, dict[str, Any]] = WeakKeyDictionary()

    def _unkept(self, call: CallContext) -> dict[str, Any]:
        if call.thread_id is None:
            return self._by_run.setdefault(call.session, {})
        return self._by_thread.setdefault(call.thread_id, {})

    async def read(self) -> dict[str, Any]:
        call = current_call.get()
        if self._store is None or call.thread_id is None:
            return self._unkept(call)
        return await self._store.load(call.thread_id, namespace=NAMESPACE) or {}

    async def change(self, update: Callable[[dict[str, Any]], str]) -> str:
        """Apply `update` and save, again if another tool was faster. Returns the answer of `update`."""
        call = current_call.get()
        thread_id = call.thread_id
        if self._store is None or thread_id is None:
            return update(self._unkept(call))
        for _ in range(_ATTEMPTS):
            entries = await self._store.history(thread_id, 1, namespace=NAMESPACE)
            latest = entries[0].checkpoint_id if entries else None
            data = (await self._store.load(thread_id, latest, namespace=NAMESPACE) if latest else None) or {}
            said = update(data)
            try:
                await self._store.save(thread_id, data, namespace=NAMESPACE, if_latest=latest)
            except ConflictError:
                continue
            return said
        raise ConflictError("the workspace is changed by others faster than this tool can follow")

    def tools(self) -> list[Tool[..., Any]]:
        """Make the tools for the plan and the files. All may be repeated safely."""

        @tool(idempotent=True)
        async def write_todos(todos: list[Todo]) -> str:
            """Write down the plan: all steps, with the status of each. Replaces the plan there was."""

            def update(data: dict[str, Any]) -> str:
                data["todos"] = [todo.model_dump() for todo in todos]
                done = sum(todo.status == "completed" for todo in todos)
                return f"The plan has {len(todos)} steps, {done} of them completed."

            return await self.change(update)

        @tool(idempotent=True)
        async def read_todos() -> str:
            """Read the plan."""
            todos = (await self.read()).get("todos", [])
            return "\n".join(f"[{todo['status']}] {todo['content']}" for todo in todos) or "There is no plan yet."

        @tool(idempotent=True)
        async def write_file(path: str, content: str) -> str:
            """Write a file of the workspace."""

            def update(data: dict[str, Any]) -> str:
                data.setdefault("files", {})[path] = content
                return f"Wrote {len(content)} characters to {path}."

            return await self.change(update)

        @tool(idempotent=True)
        async def read_file(path: str) -> str:
            """Read a file of the workspace."""
            files = (await self.read()).get("files", {})
            if path not in files:
                raise FileNotFoundError(f"there is no file {path!r}; there are: {', '.join(sorted(files)) or 'none'}")
            return str(files[path])

        @tool(idempotent=True)
        async def list_files() -> str:
            """List the files of the workspace."""
            return "\n".join(sorted((await self.read()).get("files", {}))) or "There are no files yet."

        return [write_todos, read_todos, write_file, read_file, list_files]
