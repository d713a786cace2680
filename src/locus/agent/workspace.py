"""The workspace of an agent: a plan and files, kept in its thread beside the conversation.

It is a dict in the namespace "workspace" of the thread: {"todos": [...], "files": {path: text}}. A file is stored once
for each content that it had, and every earlier version stays loadable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from locus.agent.calls import CallContext, current_call
from locus.agent.sessions import Session
from locus.memory.store import CheckpointStore
from locus.threads import Change, Document, ThreadStore, Version
from locus.tools import Tool, tool

NAMESPACE = "workspace"


class Todo(BaseModel):
    """One step of a plan."""

    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


class Workspace:
    """The workspaces of threads. Its methods work on the thread of the tool call under way.

    Without a store, workspaces live as long as this object. That of a run without a thread lives as long as the run.
    """

    def __init__(self, store: CheckpointStore | None) -> None:
        self._store = ThreadStore(store) if store is not None else None
        self._by_thread: dict[str, dict[str, Any]] = {}
        self._by_run: WeakKeyDictionary[Session, dict[str, Any]] = WeakKeyDictionary()

    def _unkept(self, call: CallContext) -> dict[str, Any]:
        if call.thread_id is None:
            return self._by_run.setdefault(call.session, {})
        return self._by_thread.setdefault(call.thread_id, {})

    def _document(self, call: CallContext) -> Document | None:
        """The document that keeps the workspace of a call's thread; None if it is not stored."""
        if self._store is None or call.thread_id is None:
            return None
        return self._store.document(call.thread_id, NAMESPACE)

    async def read(self) -> Mapping[str, Any]:
        call = current_call.get()
        document = self._document(call)
        if document is None:
            return self._unkept(call)
        version = await document.read()
        return {} if version is None else version.fields

    async def change(self, update: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        """Save what `update` makes of the workspace. It is called again if another tool was faster."""
        call = current_call.get()
        document = self._document(call)
        if document is None:
            kept = self._unkept(call)
            kept.update(update(kept))
            return

        async def changed(latest: Version | None) -> Change:
            return Change(update({} if latest is None else latest.fields))

        await document.change(changed)

    def tools(self) -> list[Tool[..., Any]]:
        """Make the tools for the plan and the files. All may be repeated safely."""

        @tool(idempotent=True)
        async def write_todos(todos: list[Todo]) -> str:
            """Write down the plan: all steps, with the status of each. Replaces the plan there was."""
            plan = [todo.model_dump() for todo in todos]
            await self.change(lambda data: {**data, "todos": plan})
            done = sum(todo.status == "completed" for todo in todos)
            return f"The plan has {len(todos)} steps, {done} of them completed."

        @tool(idempotent=True)
        async def read_todos() -> str:
            """Read the plan."""
            todos = (await self.read()).get("todos", [])
            return "\n".join(f"[{todo['status']}] {todo['content']}" for todo in todos) or "There is no plan yet."

        @tool(idempotent=True)
        async def write_file(path: str, content: str) -> str:
            """Write a file of the workspace."""
            await self.change(lambda data: {**data, "files": {**data.get("files", {}), path: content}})
            return f"Wrote {len(content)} characters to {path}."

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
