"""An agent of the Claude Agent SDK whose sessions are in a store of ours: it goes on on another machine.

    python examples/claude_agent_sdk_sessions.py [PATH]

It runs offline: in the place of Claude Code, the SDK starts a script that remembers what it was asked. Leave `cli_path`
out, and the rest stays as it is.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    list_sessions_from_store,
    project_key_for_directory,
    query,
)
from claude_agent_sdk.types import SessionKey

from locus.integrations.claude_agent_sdk import LocusSessionStore

SCRIPT = """
import datetime, json, os, pathlib, re, sys, uuid

given = dict(arg[2:].split("=", 1) for arg in sys.argv if arg.startswith("--") and "=" in arg)
session = given.get("resume") or str(uuid.uuid4())
project = re.sub("[^a-zA-Z0-9]", "-", os.path.realpath("."))
path = pathlib.Path(os.environ["CLAUDE_CONFIG_DIR"], "projects", project, session + ".jsonl")
kept = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

def say(**frame):
    print(json.dumps(frame), flush=True)

def keep(role, content):
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")[:23] + "Z"
    kept.append({
        "type": role, "uuid": str(uuid.uuid4()), "parentUuid": kept[-1]["uuid"] if kept else None,
        "sessionId": session, "timestamp": now, "message": {"role": role, "content": content},
    })
    say(type="transcript_mirror", filePath=str(path), entries=[kept[-1]])

for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "control_request":
        say(type="control_response", response={"subtype": "success", "request_id": frame["request_id"], "response": {}})
    elif frame["type"] == "user":
        keep("user", frame["message"]["content"])
        cities = [e["message"]["content"].rstrip(".").split()[-1] for e in kept if e["type"] == "user"]
        text = "Your trip: " + ", ".join(cities) + "."
        keep("assistant", [{"type": "text", "text": text}])
        say(type="result", subtype="success", duration_ms=1, duration_api_ms=1, is_error=False, num_turns=1,
            session_id=session, result=text)
"""


def scripted_claude(folder: Path) -> Path:
    path = folder / "claude"
    path.write_text(f"#!{sys.executable}\n{SCRIPT}")
    path.chmod(0o755)
    return path


async def ask(text: str, options: ClaudeAgentOptions) -> str:
    """Ask, print the answer, and return the session's id."""
    session_id = ""
    async for message in query(prompt=text, options=options):
        if isinstance(message, ResultMessage):
            session_id = message.session_id
            print(f"{text}\n  -> {message.result}")
    return session_id


async def main(url: str, folder: Path) -> None:
    work, claude = folder / "work", scripted_claude(folder)
    work.mkdir()

    def on(machine: str, store: LocusSessionStore, resume: str | None = None) -> ClaudeAgentOptions:
        """A machine has a folder of its own for transcripts, and finds nothing there of what another one has done."""
        env = {"CLAUDE_CONFIG_DIR": str(folder / machine)}
        return ClaudeAgentOptions(cli_path=claude, cwd=work, env=env, session_store=store, resume=resume)

    async with LocusSessionStore(url) as store:
        session_id = await ask("A ticket to Oslo.", on("one machine", store))

    async with LocusSessionStore(url) as store:
        print("\nOn another machine:")
        await ask("And one to Rome.", on("another", store, session_id))

        key: SessionKey = {"project_key": project_key_for_directory(work), "session_id": session_id}
        print("\nWhat was, and when:")
        points = await store.history(key)
        for point in reversed(points):
            print(f"  {point.checkpoint_id}: {point.items} entries after {point.change!r}")

        print("\nAnother line from the first answer on:")
        forked = await store.fork(key, points[-1].checkpoint_id, title="By way of Lisbon")
        await ask("And one to Lisbon.", on("another", store, forked["session_id"]))

        print("\nBack to the first answer, in the same session:")
        await store.rewind(key, points[-1].checkpoint_id)
        await ask("And one to Bern.", on("another", store, session_id))

        batch = await store.load(key) or []
        await store.append(key, batch)
        print(f"\nSent again: {len(await store.load(key) or [])} entries, as before")

        print("\nThe sessions of this folder:")
        for info in sorted(await list_sessions_from_store(store, str(work)), key=lambda info: info.summary):
            print(f"  {info.summary}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="locus-") as temporary:
        path = sys.argv[1] if sys.argv[1:] else str(Path(temporary) / "agents.db")
        asyncio.run(main(f"sqlite:{path}", Path(temporary)))
