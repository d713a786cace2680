"""A real agent of A2A for the tests: a task of two turns, whose first one asks for more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from a2a.auth.user import User
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import TaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, Message, Part, Role, SendMessageRequest, Task


class Named(User):
    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._name


def call_by(name: str) -> ServerCallContext:
    return ServerCallContext(user=Named(name))


class Brewer(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task, message = context.current_task, context.message
        assert message is not None
        if task is None:
            task = new_task_from_user_message(message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        if "tea" not in context.get_user_input():
            await updater.requires_input(updater.new_agent_message([Part(text="Which drink?")]))
            return
        await updater.start_work()
        for number in range(3):
            await updater.add_artifact([Part(text=f"cup {number}")], artifact_id=f"cup-{number}")
        await updater.complete(updater.new_agent_message([Part(text="Here you are.")]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


@asynccontextmanager
async def serving(*stores: TaskStore) -> AsyncIterator[list[DefaultRequestHandler]]:
    """A handler for each store, kept and then closed: nobody else holds what runs for its tasks."""
    card = AgentCard(name="brewer", version="1", capabilities=AgentCapabilities(streaming=True))
    handlers = [DefaultRequestHandler(Brewer(), store, card) for store in stores]
    try:
        yield handlers
    finally:
        for handler in handlers:
            if hasattr(handler, "aclose"):  # since 1.2
                await handler.aclose()


async def said(agent: DefaultRequestHandler, text: str, call: ServerCallContext, task: Task | None = None) -> Task:
    """What the agent makes of a message of a user."""
    message = Message(message_id=f"of {text}", role=Role.ROLE_USER, parts=[Part(text=text)])
    if task is not None:
        message.task_id, message.context_id = task.id, task.context_id
    answer = await agent.on_message_send(SendMessageRequest(message=message), call)
    assert isinstance(answer, Task)
    return answer
