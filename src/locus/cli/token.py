"""`locus token`: makes a bearer token for a server."""

from __future__ import annotations

import argparse
import json
import secrets
import sys

from locus.cli.commands import number
from locus.errors import ConfigurationError

_DESCRIPTION = """\
Make a bearer token for `locus serve`, and the line for its token file. Nothing is written or sent anywhere.

  locus token --prefix acme/ >> tokens           a tenant that may save and load its own threads
  locus token --read                             somebody who only looks

The token itself is the first word of the line. Give it to whoever may use it, and keep the file to yourself."""


def configure(command: argparse.ArgumentParser) -> None:
    command.description = _DESCRIPTION
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    add = command.add_argument
    add("--read", action="store_true", help="it may read, and not write")
    add("--prefix", default="", metavar="PREFIX", help="only threads whose ids begin with this; it ends with / or :")
    add("--saves", type=number(1, 10**12), metavar="N", help="the most saves in a day")
    add("--megabytes", type=number(1, 10**9), metavar="N", help="the most megabytes in a day")
    add("--json", action="store_true", help="print the token and the line as JSON")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    prefix = options.prefix
    if prefix and (not prefix.endswith(("/", ":")) or any(c in "; " or not c.isprintable() for c in prefix)):
        raise ConfigurationError("a prefix ends with / or :, and has no spaces or semicolons, such as acme/")
    token = secrets.token_urlsafe(32)
    limits = [f"{name}={value}" for name in ("saves", "megabytes") if (value := getattr(options, name)) is not None]
    line = " ".join([token, "read" if options.read else "write", *([prefix] if prefix else []), *limits])
    sys.stdout.write(f"{json.dumps({'token': token, 'line': line}) if options.json else line}\n")
    return 0
