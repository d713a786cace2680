"""A task of A2A that goes on in another handler: `python -m tests.versions.smoke.a2a FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from a2a.types.a2a_pb2 import GetTaskRequest, ListTasksRequest, TaskState

from locus.integrations.a2a import LocusTaskStore
from tests.integrations.a2a.agents import call_by, said, serving


async def check(folder: Path) -> None:
    alice, url = call_by("alice"), f"sqlite:{folder / 'tasks.db'}"
    async with LocusTaskStore(url) as one, LocusTaskStore(url) as another:
        async with serving(one, another, one) as (first, second, third):
            task = await said(first, "Please", alice)
            done = await said(second, "A tea", alice, task)
            assert done.status.state == TaskState.TASK_STATE_COMPLETED
            assert await third.on_get_task(GetTaskRequest(id=task.id), alice) == done
            page = await third.on_list_tasks(ListTasksRequest(context_id=task.context_id, page_size=5), alice)
            assert [each.id for each in page.tasks] == [task.id]
        assert len(await one.versions(task.id, alice)) > 3
        assert await one.get(task.id, call_by("bob")) is None


if __name__ == "__main__":
    asyncio.run(check(Path(sys.argv[1])))
