"""Runs the SQL that the documentation shows, against the server of its page.

Every statement of a block is executed and committed. One that returns rows must return at least one: a query
that finds nothing shows nothing.
"""

import os
from typing import Any
from urllib.parse import unquote, urlsplit

import oracledb
import psycopg
import pymysql  # type: ignore[import-untyped]
from pymysql.constants import CLIENT  # type: ignore[import-untyped]

SECONDS = 10


def run_on_postgresql(text: str) -> None:
    with psycopg.connect(address("POSTGRESQL_URL"), autocommit=True, connect_timeout=SECONDS) as connection:
        cursor = connection.cursor()
        cursor.execute(text.encode())
        demand_rows(cursor)


def run_on_mysql(text: str) -> None:
    place = urlsplit(address("MYSQL_URL"))
    connection = pymysql.connect(
        host=place.hostname,
        port=place.port or 3306,
        user=unquote(place.username or ""),
        password=unquote(place.password or ""),
        database=place.path.strip("/"),
        autocommit=True,
        connect_timeout=SECONDS,
        client_flag=CLIENT.MULTI_STATEMENTS,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(text)
        demand_rows(cursor)


def run_on_oracle(text: str) -> None:
    """Its driver takes one statement at a time."""
    place = {"dsn": address("ORACLE_DSN"), "user": address("ORACLE_USER"), "password": address("ORACLE_PASSWORD")}
    with oracledb.connect(**place) as connection, connection.cursor() as cursor:
        for number, statement in enumerate((part.strip() for part in text.split(";") if part.strip()), 1):
            cursor.execute(statement)
            if cursor.description is not None and cursor.fetchone() is None:
                raise ValueError(f"statement {number} of the block returns no rows")
        connection.commit()


def demand_rows(cursor: Any) -> None:
    """Both drivers step through the results of several statements with `nextset`."""
    number = 1
    while True:
        if cursor.description is not None and cursor.fetchone() is None:
            raise ValueError(f"statement {number} of the block returns no rows")
        if not cursor.nextset():
            return
        number += 1


def address(variable: str) -> str:
    if variable not in os.environ:
        raise ValueError(f"this page has no server: {variable} is not set (tests/docs/pages.py)")
    return os.environ[variable]
