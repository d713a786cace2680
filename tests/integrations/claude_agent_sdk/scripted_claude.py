"""Plays Claude Code for the SDK: keeps a transcript in its folder, mirrors it, and answers from a script.

It says which questions it remembers. "Wait" it answers without an end, until its input ends.
"""

import json
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4


def option(name: str) -> str | None:
    return next((arg.partition("=")[2] for arg in sys.argv if arg.startswith(f"--{name}=")), None)


def say(**frame: Any) -> None:
    sys.stdout.write(f"{json.dumps(frame)}\n")
    sys.stdout.flush()


SESSION = option("resume") or str(uuid4())
PROJECT = re.sub(r"[^a-zA-Z0-9]", "-", os.path.realpath(Path.cwd()))
PATH = Path(os.environ["CLAUDE_CONFIG_DIR"], "projects", PROJECT, f"{SESSION}.jsonl")
KEPT: list[Any] = [json.loads(line) for line in PATH.read_text().splitlines()] if PATH.exists() else []


def keep(message: dict[str, Any]) -> None:
    entry = {
        "type": message["role"],
        "uuid": str(uuid4()),
        "parentUuid": KEPT[-1]["uuid"] if KEPT else None,
        "sessionId": SESSION,
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "message": message,
    }
    KEPT.append(entry)
    PATH.parent.mkdir(parents=True, exist_ok=True)
    with PATH.open("a") as file:
        file.write(f"{json.dumps(entry)}\n")
    if "--session-mirror" in sys.argv:
        say(type="transcript_mirror", filePath=str(PATH), entries=[entry])


def answer(question: str) -> None:
    keep({"role": "user", "content": question})
    asked = [each["message"]["content"] for each in KEPT if each["type"] == "user"]
    text = f"You asked: {' '.join(asked)}"
    said = {"role": "assistant", "model": "script", "content": [{"type": "text", "text": text}]}
    keep(said)
    say(type="assistant", message=said, session_id=SESSION, parent_tool_use_id=None)
    if question == "Wait":
        sys.stdin.read()
        return
    say(
        type="result",
        subtype="success",
        duration_ms=1,
        duration_api_ms=1,
        is_error=False,
        num_turns=1,
        session_id=SESSION,
        result=text,
    )


if __name__ == "__main__":
    for line in sys.stdin:
        frame = json.loads(line)
        if frame["type"] == "control_request":
            say(
                type="control_response",
                response={"subtype": "success", "request_id": frame["request_id"], "response": {}},
            )
        elif frame["type"] == "user":
            answer(frame["message"]["content"])
