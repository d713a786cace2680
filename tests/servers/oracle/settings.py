"""The settings of a session, which are settings of PostgreSQL's."""

from __future__ import annotations

import re

from tests.servers.oracle.database import Command
from tests.servers.oracle.parser import name_in_postgresql

TEXT = 25


def setting(name: str, value: str) -> Command:
    return Command("SELECT set_config($1, $2, false)", (name.encode(), value.encode()), (TEXT, TEXT))


def path(schema: str) -> str:
    return f"{name_in_postgresql(schema)}, oracle_sys, pg_catalog"


def zone(name: str) -> str:
    """POSIX, and with it PostgreSQL, counts the hours of +01:00 the other way round."""
    if not re.fullmatch(r"[+-]\d\d?:\d\d", name):
        return name
    return f"<{name}>{'-' if name[0] == '+' else '+'}{name[1:]}"
