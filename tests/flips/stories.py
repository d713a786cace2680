"""The store that is changed, and everything that it is asked."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CheckpointNotFoundError, DamagedThreadsWarning, LocusError
from locus.memory.checkpointer import Checkpointer

NAMESPACES = ("default", "inner")
THREADS = ("support-42", "a copy", "Tenant/Ä: 'x'", "large", *(f"small-{number}" for number in range(6)))
CHECKPOINTS = tuple(f"step-{number}" for number in range(8))
NOBODY = "nobody"
"""A thread that was never saved."""


async def write(cp: Checkpointer) -> None:
    """Save, edit, fork, copy, delete, and leave pending writes."""
    for thread_id in ("support-42", "Tenant/Ä: 'x'"):
        state = AgentState(agent_id="agent")
        for number in range(6):
            state = state.with_messages([Message.user(f"question {number}"), Message.assistant(f"answer {number}")])
            metadata = {"user": "eve", "step": number, "source": f"of {thread_id}"}
            await cp.save(state, thread_id, CHECKPOINTS[number], metadata)
            await cp.put_writes(
                thread_id, CHECKPOINTS[number], f"task-{number}", [("notes", [number]), ("go", "yes")], task_path="a"
            )
        edited = state.with_messages_replaced((*state.messages[:-1], Message.assistant("a better answer")))
        await cp.save(edited, thread_id, CHECKPOINTS[6], {"user": "bob"})
        earlier = await cp.load(thread_id, CHECKPOINTS[2])
        assert earlier is not None
        await cp.save(earlier.with_message(Message.user("another way")), thread_id, CHECKPOINTS[7], {"fork": True})
        for number in range(3):
            inner = AgentState(agent_id="inner").with_message(Message.user(f"inside {number}"))
            await cp.save(inner, thread_id, CHECKPOINTS[number], {"deep": number}, namespace="inner")
    await cp.delete("Tenant/Ä: 'x'", CHECKPOINTS[3])
    await cp.copy_thread("support-42", "a copy")
    for thread_id, word in (("support-42", "here"), ("a copy", "there")):
        state = await cp.load(thread_id) or AgentState()
        await cp.save(state.with_message(Message.user(f"we go on {word}")), thread_id, "last", {"where": word})
    large = AgentState(agent_id="large").with_metadata("big", "m" * 3_000)
    for number in range(3):
        large = large.with_message(Message.user(f"{number} " + "long text " * 400))
        await cp.save(large, "large", CHECKPOINTS[number])
    await cp.put_writes("large", CHECKPOINTS[2], "task", [("notes", ["The order is late."] * 60)])
    for number in range(6):
        state = AgentState(agent_id=f"small-{number}").with_message(Message.user("hello"))
        await cp.save(state, f"small-{number}", "only", {"user": f"user {number}"})
    if cp.capabilities.search:
        await cp.search("question")  # a first search makes an index, which may be damaged like everything else


Question = Callable[[Checkpointer], Awaitable[Any]]


def everything(cp: Checkpointer) -> Iterator[tuple[str, Question]]:
    """All questions, each with the kind of answer that it gets."""
    can, names = cp.capabilities, (*CHECKPOINTS, "last", "only")
    for thread_id in (*THREADS, NOBODY):
        yield "newest", partial(_newest, thread_id, "default")
        yield "newest", partial(_newest, thread_id, "inner")
        yield "history", partial(_history, thread_id, "default", None)
        yield "history", partial(_history, thread_id, "inner", 2)
        yield "namespaces", partial(_namespaces, thread_id)
        for name in names if thread_id in THREADS[:3] else (CHECKPOINTS[2], "only"):
            yield "by id", partial(_by_id, thread_id, name)
            yield "pending writes", partial(_writes, thread_id, name)
    yield "list", lambda cp: cp.list_threads()
    if can.list_with_metadata:
        yield "list", lambda cp: cp.list_with_metadata()
    for word in ("question", "inside", "long") if can.search else ():
        yield "search", partial(_found, word)
    pairs = (("user", "eve"), ("fork", True), ("user", "user 3"))
    for key, value in pairs if can.metadata_query else ():
        yield "metadata", partial(_with_metadata, key, value)


async def _newest(thread_id: str, namespace: str, cp: Checkpointer) -> object:
    return await cp.load(thread_id, namespace=namespace)


async def _by_id(thread_id: str, checkpoint_id: str, cp: Checkpointer) -> object:
    return await cp.load(thread_id, checkpoint_id)


async def _history(thread_id: str, namespace: str, limit: int | None, cp: Checkpointer) -> object:
    return await cp.history(thread_id, limit=limit, namespace=namespace)


async def _namespaces(thread_id: str, cp: Checkpointer) -> object:
    return await cp.list_namespaces(thread_id)


async def _writes(thread_id: str, checkpoint_id: str, cp: Checkpointer) -> object:
    return await cp.get_writes(thread_id, checkpoint_id)


async def _with_metadata(key: str, value: object, cp: Checkpointer) -> object:
    return await cp.query_by_metadata(key, value)


async def _found(word: str, cp: Checkpointer) -> object:
    return sorted((hit["thread_id"], hit["checkpoint_id"]) for hit in await cp.search(word, limit=100))


class Answer(NamedTuple):
    """What a question was answered: a value, or the error in its place."""

    kind: str
    value: Any = None
    error: BaseException | None = None
    warned: bool = False
    """The answer says that it leaves out what is damaged."""

    @property
    def is_told(self) -> bool:
        """Damage was told: by an error of ours, which does not say that nothing is there, or by a warning."""
        ours = isinstance(self.error, LocusError) and not isinstance(self.error, CheckpointNotFoundError)
        return ours or self.warned

    @property
    def is_foreign(self) -> bool:
        return self.error is not None and not isinstance(self.error, LocusError)


async def answers(cp: Checkpointer) -> list[Answer]:
    """Ask everything."""
    found: list[Answer] = []
    for kind, question in everything(cp):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                answer = Answer(kind, await question(cp))
            except Exception as error:  # noqa: BLE001 - which errors there are is what is asked
                answer = Answer(kind, error=error)
        warned = any(issubclass(warning.category, DamagedThreadsWarning) for warning in told)
        found.append(answer._replace(warned=warned))
    return found
