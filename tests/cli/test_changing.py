"""Commands that change a store show first, and act only when they are told to."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import sqlite3
import stat
import subprocess
import sys
from argparse import Namespace
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import PutOp

from locus.cli import delete
from locus.cli.terminal import Terminal
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.integrations.langgraph_store import LocusStore
from locus.looking.revisions import resolve
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.model.records import Entry
from locus.memory.storage import StorageBackend
from tests.cli.terminals import Commands


async def _story(path: Path) -> None:
    async with sqlite_checkpointer(path) as checkpointer:
        for thread in ("acme/1", "acme/2", "other/1"):
            state = AgentState()
            for turn in range(4):
                state = state.with_message(Message.user(f"{thread} {turn}"))
                await checkpointer.save(state, thread, f"cp-{turn}")
                await StorageBackend(checkpointer.store).save(thread, {"files": {"n": turn}}, namespace="workspace")
        store = LocusStore(checkpointer)
        await store.abatch([PutOp((tenant, "notes"), "k", {"a": 1}) for tenant in ("acme", "acme-corp", "other")])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    asyncio.run(_story(tmp_path / "agents.db"))
    return tmp_path


def content(folder: Path) -> str:
    return hashlib.sha256((folder / "agents.db").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "words",
    [["delete", "acme/1"], ["delete", "acme/1@cp-1"], ["erase", "acme/"], ["vacuum", "--keep-last", "1"], ["migrate"]],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_changes_without_apply(locus: Commands, folder: Path, words: list[str], terminal: bool) -> None:
    before = content(folder)
    said = (locus.on_terminal if terminal else locus.piped)(*words, cwd=folder)
    assert said.code == 0
    assert words == ["migrate"] or "nothing was changed: --apply does it" in said.out + said.err
    assert content(folder) == before


def test_a_checkpoint_and_a_thread_are_deleted(locus: Commands, folder: Path) -> None:
    assert locus.piped("delete", "acme/1@cp-1", "--apply", cwd=folder).out.startswith("deleted checkpoint cp-1")
    ids = [json.loads(line)["checkpoint_id"] for line in locus.piped("log", "acme/1", "--json", cwd=folder).lines]
    assert ids == ["cp-3", "cp-2", "cp-0"]
    assert json.loads(locus.piped("delete", "acme/1", "--apply", "--json", cwd=folder).out)["deleted"] is True
    assert locus.piped("log", "acme/1", cwd=folder).code == 3
    assert locus.piped("delete", "acme/1", "--apply", cwd=folder).code == 3


@pytest.mark.parametrize("apply", [False, True])
async def test_what_is_saved_under_an_id_in_the_meantime_is_not_deleted(
    apply: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MemoryCheckpointer() as checkpointer:
        backend = StorageBackend(checkpointer.store)
        await backend.save("t", {"n": 1}, "a")
        await backend.save("t", {"n": 2}, "b")

        async def resolve_and_replace(*args: Any, **options: Any) -> Entry:
            found = await resolve(*args, **options)
            await backend.save("t", {"n": "new"}, "a")
            return found

        monkeypatch.setattr("locus.looking.revisions.resolve", resolve_and_replace)
        out = io.StringIO()
        terminal = Terminal(out, out, json=True)
        options = Namespace(rev="t@a", checkpoint=None, ns=None, apply=apply)
        await delete.run(checkpointer.store, options, terminal)
        terminal.flush()
        assert json.loads(out.getvalue())["deleted"] is False
        assert await backend.load("t", "a") == {"n": "new"}


def test_everything_of_a_tenant_is_erased(locus: Commands, folder: Path) -> None:
    said = json.loads(locus.piped("erase", "acme/", "--json", cwd=folder).out)
    assert (said["threads"], said["items"], said["dry_run"]) == (2, 1, True)
    said = json.loads(locus.piped("erase", "acme/", "--apply", "--json", cwd=folder).out)
    assert (said["threads"], said["items"], said["dry_run"]) == (2, 1, False)
    assert [line.split()[0] for line in locus.piped("threads", cwd=folder).lines] == ["other/1"]
    again = json.loads(locus.piped("erase", "acme/", "--apply", "--json", cwd=folder).out)
    assert (again["threads"], again["items"]) == (0, 0)
    assert locus.piped("erase", "", "--apply", cwd=folder).code == 2


def test_what_no_list_shows_is_erased_too(locus: Commands, tmp_path: Path) -> None:
    """Threads that have expired, and writes whose checkpoint never came."""
    path = tmp_path / "agents.db"

    async def story() -> None:
        async with sqlite_checkpointer(path, ttl_seconds=0.000_001) as short:
            for thread in ("acme/expired", "acme-corp/expired"):
                await short.save(AgentState().with_message(Message.user("a secret")), thread)
        async with sqlite_checkpointer(path) as checkpointer:
            for thread in ("acme/waiting", "acme-corp/waiting"):
                await checkpointer.put_writes(thread, "never came", "task", [("x", "a secret")])
            await checkpointer.save(AgentState(), "acme/1")

    def rows() -> set[str]:
        with closing(sqlite3.connect(path)) as database:
            return {thread for (thread,) in database.execute("SELECT thread_id FROM locus_threads")}

    asyncio.run(story())
    assert rows() == {f"{tenant}/{name}" for tenant in ("acme", "acme-corp") for name in ("expired", "waiting")} | {
        "acme/1"
    }
    said = locus.piped("erase", "acme/", cwd=tmp_path)
    assert "would delete what is left of 2 threads that have expired, or never had a checkpoint" in said.lines
    said = locus.piped("erase", "acme/", "--apply", "--json", cwd=tmp_path)
    assert (json.loads(said.out)["threads"], json.loads(said.out)["unlisted"]) == (1, 2)
    assert rows() == {"acme-corp/expired", "acme-corp/waiting"}


@pytest.mark.parametrize(
    ("prefix", "erased"),
    [
        ("user:42/", {("user:42", "notes"), ("user", "42", "notes"), ("user:42",)}),
        ("user:42:", {("user:42", "notes"), ("user", "42", "notes"), ("user:42",)}),
        ("user/42/", {("user", "42", "notes")}),
        ("user:4/", set()),
    ],
)
def test_long_term_memory_of_a_tenant_whose_name_has_a_colon_is_erased(
    locus: Commands, tmp_path: Path, prefix: str, erased: set[tuple[str, ...]]
) -> None:
    namespaces = {("user:42", "notes"), ("user", "42", "notes"), ("user:42",), ("user:421", "notes"), ("users", "42")}
    url = f"sqlite:{tmp_path / 'agents.db'}"
    with LocusStore(url) as store:
        for namespace in namespaces:
            store.put(namespace, "k", {"a": 1})
    for apply in ([], ["--apply"]):
        said = json.loads(locus.piped("erase", prefix, *apply, "--json", cwd=tmp_path).out)
        assert said["items"] == len(erased)
    with LocusStore(url) as store:
        assert {item.namespace for item in store.search((), limit=100)} == namespaces - erased


def test_a_fork_takes_the_workspace_along(locus: Commands, folder: Path) -> None:
    said = locus.piped("fork", "acme/1@cp-1", "acme/again", cwd=folder)
    assert said.out == "acme/again continues acme/1@#3 with its workspace\n"
    ids = [json.loads(line)["checkpoint_id"] for line in locus.piped("log", "acme/again", "--json", cwd=folder).lines]
    assert ids == ["cp-1", "cp-0"]
    shown = locus.piped("show", "acme/again", "--ns", "workspace", "--state", "files", cwd=folder)
    assert json.loads(shown.out) == {"n": 0}, "what the plan was before that checkpoint was saved"
    assert locus.piped("fork", "acme/1", "acme/again", cwd=folder).code == 4
    assert locus.piped("fork", "acme/1@nothing", "x", cwd=folder).code == 3
    assert locus.piped("fork", "acme/1", "small", "--ancestors", "0", cwd=folder).code == 0
    assert len(locus.piped("log", "small", "--json", cwd=folder).lines) == 1


def test_old_checkpoints_are_removed(locus: Commands, folder: Path) -> None:
    said = json.loads(locus.piped("vacuum", "--keep-last", "2", "--json", cwd=folder).out)
    assert (said["checkpoints"], said["dry_run"]) == (12, True)
    said = json.loads(locus.piped("vacuum", "--keep-last", "2", "--apply", "--json", cwd=folder).out)
    assert (said["checkpoints"], said["dry_run"]) == (12, False)
    assert len(locus.piped("log", "acme/1", "--json", cwd=folder).lines) == 2
    assert json.loads(locus.piped("vacuum", "--older-than", "1h", "--json", cwd=folder).out)["checkpoints"] == 0
    assert locus.piped("vacuum", "--older-than", "soon", cwd=folder).code == 2


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_an_export_through_a_pipe_is_utf_8_wherever_it_is_made(tmp_path: Path, encoding: str) -> None:
    said = {"texts": ["Ã¤ ä € 😀", "\u202e\u2028"]}

    async def story() -> None:
        async with sqlite_checkpointer(tmp_path / "agents.db") as checkpointer:
            await StorageBackend(checkpointer.store).save("t", said)

    asyncio.run(story())
    command = [sys.executable, "-m", "locus", "export", "t", "--store", f"sqlite:{tmp_path / 'agents.db'}"]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding}, check=True)
    assert said in [json.loads(line).get("state") for line in done.stdout.decode().split("\n") if line]


@pytest.mark.parametrize("kind", ["jsonl", "json", "md", "html"])
def test_threads_are_exported(locus: Commands, folder: Path, kind: str) -> None:
    said = locus.piped("export", "acme/1", "other/1", "--format", kind, cwd=folder)
    assert (said.code, said.err) == (0, "")
    file = folder / f"out.{kind}"
    assert locus.piped("export", "acme/1", "other/1", "-o", file.name, cwd=folder).out == ""
    assert os.name == "nt" or stat.S_IMODE(file.stat().st_mode) == 0o600, "as a store is made"
    found = file.read_text(encoding="utf-8")
    assert found == said.out or kind == "html", "which says when it was made"
    assert "acme/1 3" in found
    assert locus.piped("export", "acme/1", "-o", file.name, cwd=folder).code == 2, "it exists already"
    assert locus.piped("export", "nobody", "-o", "new", cwd=folder).code == 3
    assert sorted(path.name for path in folder.iterdir() if "out" in path.name or "new" in path.name) == [file.name]
