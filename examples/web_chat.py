"""A chat in the browser: streamed answers, two messages at once, a Stop button. Needs the extra `server`.

    python examples/web_chat.py            then open http://127.0.0.1:8000
    python examples/web_chat.py --demo     talks to itself, and ends

Press Stop, or send a second message from another tab while the first is answered; kill the server, and start it again.
docs/web-app.md explains each part.
"""

import asyncio
import json
import math
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import uvicorn
from config import get_model  # type: ignore[import-not-found] # it lies beside this file
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from locus.agent import Agent
from locus.core.events import CheckpointSavedEvent, Event, ModelChunkEvent, TerminateEvent, ToolStartEvent, WaitingEvent
from locus.errors import ThreadBusyError, ThreadTakenOverError
from locus.memory.backends import sqlite_checkpointer
from locus.models import ModelError
from locus.tools import tool

PAGE = """<!doctype html><title>Chat</title><pre id="chat"></pre>
<form id="form"><input id="text" size="60" autofocus> <button id="go">Send</button>
<button type="button" id="stop">Stop</button></form>
<script>
const [chat, form, text, go, stop] = ["chat", "form", "text", "go", "stop"].map((id) => document.getElementById(id));
const chat_url = "/chats/first";
const say = (words) => { chat.textContent += words; };
let controller = new AbortController(), seen = 0;
async function load() {
  const messages = await (await fetch(chat_url)).json();
  chat.textContent = messages.map((message) => `${message.role}: ${message.text}\\n`).join("");
  seen = messages.length;
  return messages;
}
async function post(url, body) {  // status 0: nobody answered, or the connection broke
  const end = {status: 0, saved: false, done: false, seconds: 1};
  try {
    const response = await fetch(url, {method: "POST", body, signal: controller.signal});
    if (!response.ok) {
      return {...end, status: response.status, seconds: Number(response.headers.get("Retry-After")) || 1};
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "", part; !(part = await reader.read()).done;) {
      const lines = (rest + part.value).split("\\n");
      rest = lines.pop();
      for (const line of lines.map((line) => JSON.parse(line))) {
        const doing = line.waiting ? "waiting for a lost server" : line.doing;
        say(line.text ?? (doing ? `[${doing}] ` : line.error ?? ""));
        end.saved ||= "saved" in line;
        end.done ||= "done" in line || "error" in line;
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  return end;
}
async function send(body) {  // returns what there is to say at the end
  const before = seen;
  let end = await post(chat_url, body), saved = end.saved;
  const failed = (words) => {
    if (!saved) text.value ||= body;
    return words;
  };
  if (end.status === 409) return failed("[your last message is not settled yet: send this one again in a moment]");
  for (let tries = 0; !end.done; tries++) {
    if (![0, 409, 502, 503, 504].includes(end.status)) return failed(`[the server failed: ${end.status}]`);
    if (tries === 60) return failed("[the server does not answer]");
    await new Promise((later) => setTimeout(later, 1000 * end.seconds));
    controller.signal.throwIfAborted();
    end = await post(chat_url + "/resume", "");
    if (saved || !(end.done || end.status === 404)) continue;
    const later = (await load()).slice(before);  // did the message arrive?
    saved = later.some((message) => message.role === "user" && message.text === body);
    if (saved) continue;
    end = await post(chat_url, body);
    saved = end.saved;
  }
  return "";
}
stop.onclick = () => controller.abort();
form.onsubmit = async (event) => {
  event.preventDefault();
  const body = text.value;
  say("> " + body + "\\n");
  text.value = "";
  go.disabled = true;
  controller = new AbortController();
  const last = await send(body).catch((error) => error.name === "AbortError" ? "[stopped]" : `[${error.message}]`);
  await load().catch(() => {});
  say(last && last + "\\n");
  go.disabled = false;
};
load();
</script>"""


@tool
async def find_train(city: str) -> str:
    """Find a train to a city."""
    await asyncio.sleep(2)  # the timetable takes its time
    return f"The train to {city} leaves at 9:05."


def make_app(path: str) -> Starlette:
    checkpointer = sqlite_checkpointer(path)
    agent = Agent(model=get_model(), tools=[find_train], system_prompt="You are brief.", checkpointer=checkpointer)
    patient = Agent(agent.config, on_conflict="wait", wait_seconds=20)

    def thread_of(request: Request) -> str:
        return f"chat/everybody/{request.path_params['chat']}"  # put in the user that you have authenticated

    async def page(request: Request) -> Response:
        return HTMLResponse(PAGE)

    async def read(request: Request) -> Response:
        state = await checkpointer.load(thread_of(request))
        messages = state.messages if state is not None else ()
        return JSONResponse([{"role": message.role.value, "text": message.text} for message in messages])

    async def send(request: Request) -> Response:
        chosen = patient if request.query_params.get("wait") == "1" else agent
        return await streamed(chosen.run((await request.body()).decode(), thread_of(request)))

    async def resume(request: Request) -> Response:
        if not await checkpointer.exists(thread_of(request)):
            return JSONResponse({"error": "No message of this chat has arrived."}, 404)
        return await streamed(agent.resume(thread_of(request)))

    async def busy(request: Request, error: Any) -> Response:
        seconds = max(math.ceil(error.retry_after or 1), 1)
        text = "Your last message is not settled yet."
        return JSONResponse({"error": text}, 409, headers={"Retry-After": str(seconds)})

    routes = [
        Route("/", page),
        Route("/chats/{chat}", read, methods=["GET"]),
        Route("/chats/{chat}", send, methods=["POST"]),
        Route("/chats/{chat}/resume", resume, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={ThreadBusyError: busy})


async def streamed(events: Any) -> Response:
    first = await anext(events)  # a run that is refused has none, and is answered by `busy`
    return StreamingResponse(lines(first, events), media_type="application/x-ndjson")


async def lines(first: Event, events: Any) -> AsyncIterator[str]:
    async with aclosing(events):
        try:
            event: Event | None = first
            while event is not None:
                if line := as_line(event):
                    yield line
                event = await anext(events, None)
        except ThreadBusyError:
            yield json.dumps({"busy": True}) + "\n"  # that worker was not dead, and the client tries again
        except ThreadTakenOverError:
            yield json.dumps({"error": "The conversation goes on elsewhere."}) + "\n"
        except ModelError:
            yield json.dumps({"error": "The model does not answer."}) + "\n"


def as_line(event: Event) -> str:
    facts: dict[str, Any] = {}
    if isinstance(event, WaitingEvent):
        facts = {"waiting": math.ceil(event.seconds)}
    elif isinstance(event, CheckpointSavedEvent):
        facts = {"saved": True}
    elif isinstance(event, ModelChunkEvent):
        facts = {"text": event.text}
    elif isinstance(event, ToolStartEvent):
        facts = {"doing": event.call.name}
    elif isinstance(event, TerminateEvent):
        facts = {"done": event.stop_reason, "answer": event.message, "nothing_to_resume": event.nothing_to_resume}
    return json.dumps(facts) + "\n" if facts else ""


async def demo(port: int) -> None:
    """What two tabs of a browser do."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:

        async def ask(text: str, *, stop: bool = False, how: str = "") -> str:
            said = ""
            async with client.stream("POST", f"/chats/demo{how}", content=text) as response:
                if response.status_code == 409:
                    return "409"
                async for line in response.aiter_lines():
                    told = json.loads(line)
                    said += told.get("text", "")
                    if "doing" in told:
                        at_work.set()
                        if stop:
                            return "stopped"
            return said

        at_work = asyncio.Event()
        print("hello:", await ask("My name is Ada."))
        slow = asyncio.create_task(ask("Find a train to the city 'Rome'"))
        await at_work.wait()
        print("a second message meanwhile:", await ask("What is my name?"))
        print("one that waits:", await ask("What is my name?", how="?wait=1"))
        print("the first one:", await slow)
        print("Stop:", await ask("Find a train to the city 'Oslo'", stop=True))
        print("the next one:", await ask("What is my name?", how="?wait=1"))
        print("the thread says:", (await client.get("/chats/demo")).json()[-3]["text"])
        print("nothing is left to resume:", (await client.post("/chats/demo/resume")).json())
        print("a chat that nobody began:", (await client.post("/chats/nowhere/resume")).status_code)


def main() -> None:
    if "--demo" not in sys.argv:
        uvicorn.run(make_app("chat.db"), port=8000)
        return
    with tempfile.TemporaryDirectory(prefix="locus-") as folder:
        server = uvicorn.Server(uvicorn.Config(make_app(f"{folder}/chat.db"), port=0, log_level="error"))
        serving = threading.Thread(target=server.run, daemon=True)
        serving.start()
        while not server.started:
            time.sleep(0.01)
        asyncio.run(demo(server.servers[0].sockets[0].getsockname()[1]))
        server.should_exit = True
        serving.join()


if __name__ == "__main__":
    main()
