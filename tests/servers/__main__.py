"""python -m tests.servers install [NAME …] | run NAME"""

import argparse
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.servers.catalogue import SERVERS
from tests.servers.errors import ServerError
from tests.servers.install import cache


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description="Real servers, for tests.")
    commands = parser.add_subparsers(required=True, dest="command")
    install = commands.add_parser("install", help="install servers into the cache; without names, all of them")
    install.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SERVERS))
    run = commands.add_parser("run", help="run one in the foreground, with new data, until Ctrl-C")
    run.add_argument("name", choices=SERVERS)
    options = parser.parse_args(arguments)
    if options.command == "install":
        install_servers(options.names or [*SERVERS])
    else:
        run_server(options.name)


def install_servers(names: list[str]) -> None:
    unknown = set(names) - set(SERVERS)
    if unknown:
        raise ServerError(f"there is no {', '.join(sorted(unknown))}; known: {', '.join(SERVERS)}")
    started = time.monotonic()
    with ThreadPoolExecutor() as pool:
        for name, _ in zip(names, pool.map(lambda name: SERVERS[name].install(), names), strict=True):
            print(f"» {name} is there after {time.monotonic() - started:.0f} s")
    print(f"» installed in {cache()}")


def run_server(name: str) -> None:
    ended = threading.Event()
    for what in (signal.SIGINT, signal.SIGTERM):
        signal.signal(what, lambda *_: ended.set())
    with tempfile.TemporaryDirectory(prefix="locus-server-") as folder:
        Path(folder).chmod(0o711)  # servers that refuse root run as another user, who has to get through
        with SERVERS[name].create(Path(folder)) as server:
            print(f"» {server.url}\n» its log: {server.log}", flush=True)
            ended.wait()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ServerError as error:
        sys.exit(f"servers: {error}")
