"""The process of `EchoServer`: returns what it gets, in capitals, and writes it down."""

import signal
import socketserver
import sys
from pathlib import Path

PORT, SAID, OPTION = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while (question := self.request.recv(65_536)) and OPTION != "silent":
            with SAID.open("ab") as file:
                file.write(question)
            self.request.sendall(question.upper())


class Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if OPTION == "broken":
    sys.exit("the disk is made of cheese")
if OPTION == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with Listener(("127.0.0.1", PORT), Echo) as listener:
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    listener.serve_forever()
