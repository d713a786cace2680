"""What the base install can do: states, users' own classes, memory, files, SQLite and the agent.

python -m tests.versions.smoke.base FOLDER
"""

from __future__ import annotations

import asyncio
import pkgutil
import sys
from importlib import import_module
from pathlib import Path

import locus
from locus.agent import Agent
from locus.core.messages import Message
from locus.errors import MissingDependencyError
from locus.models.mock import MockModel
from tests.versions.smoke import store
from tests.versions.smoke.subclasses import check_subclasses


def check_imports() -> None:
    """Every module can be imported, or misses a package that an extra brings."""
    imported = 0
    for module in pkgutil.walk_packages(locus.__path__, "locus."):
        if module.name.endswith("__main__"):
            continue
        try:
            import_module(module.name)
            imported += 1
        except MissingDependencyError:
            continue
        except ModuleNotFoundError as error:
            if (error.name or "locus").startswith("locus"):
                raise
    assert imported > 100, imported


async def check_agent(url: str) -> None:
    async with store.opened(url) as checkpointer:
        agent = Agent(model=MockModel(), checkpointer=checkpointer)
        result = await agent.invoke("Hello", thread_id="agent")
        found = await checkpointer.load("agent")
    assert found is not None
    assert found.messages[0] == Message.user("Hello")
    assert result.message


def main(folder: Path) -> None:
    check_imports()
    check_subclasses()
    for url in ("memory", f"file:{folder / 'logs'}", f"sqlite:{folder / 'locus.db'}"):
        store.check(url)
    asyncio.run(check_agent(f"sqlite:{folder / 'agent.db'}"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
