"""An agent behind HTTP that keeps its threads in MySQL: POST a message to /threads/NAME, and get the answer.

Everything comes from the environment: MYSQL_HOST, MYSQL_PORT, MYSQL_DATABASE, MYSQL_USER, MYSQL_PASSWORD, and PORT.
Any number of these may run at once on the same database. One that is killed loses nothing that it has answered.
"""

import os
import signal
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from locus.agent import Agent
from locus.errors import BackendUnavailableError, InvalidIdError, ThreadBusyError
from locus.memory.backends import mysql_checkpointer
from locus.models import get_model

checkpointer = mysql_checkpointer(
    host=os.environ.get("MYSQL_HOST", "localhost"),
    port=int(os.environ.get("MYSQL_PORT", "3306")),
    database=os.environ["MYSQL_DATABASE"],
    user=os.environ["MYSQL_USER"],
    password=os.environ["MYSQL_PASSWORD"],
)
agent = Agent(
    model=get_model(),
    system_prompt="You are a helpful assistant. Remember what the user tells you.",
    checkpointer=checkpointer,
)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """/health asks the database, so that a container that cannot reach it is not called healthy."""
        if self.path == "/health":
            self._answer(lambda: f"{checkpointer.sync.list_threads(limit=1) is not None}")
        else:
            self._send(HTTPStatus.NOT_FOUND, "POST a message to /threads/NAME")

    def do_POST(self) -> None:
        prefix, _, thread_id = self.path.rpartition("/")
        text = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if prefix != "/threads" or not text:
            self._send(HTTPStatus.NOT_FOUND, "POST a message to /threads/NAME")
            return
        self._answer(lambda: agent.run_sync(text, thread_id=unquote(thread_id)).message)

    def _answer(self, work: Callable[[], str]) -> None:
        try:
            self._send(HTTPStatus.OK, work())
        except InvalidIdError as error:
            self._send(HTTPStatus.BAD_REQUEST, str(error))
        except ThreadBusyError as error:
            self._send(HTTPStatus.CONFLICT, str(error))
        except BackendUnavailableError as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _send(self, status: HTTPStatus, text: str) -> None:
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    server = ThreadingHTTPServer(("", int(os.environ.get("PORT", "8080"))), Handler)
    # `docker compose stop` sends SIGTERM: finish what is being answered, then end.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"answering on port {server.server_port}", flush=True)
    with server:
        server.serve_forever()
    checkpointer.sync.close()


if __name__ == "__main__":
    main()
