"""Puts a value into a server and gets it back, with the plainest client there is."""

import json
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import obstore
import psycopg
import pymysql  # type: ignore[import-untyped]
from obstore.store import S3Store
from redis import Redis
from redis.cluster import RedisCluster as ClusterClient

from tests.servers.base import Server
from tests.servers.seaweedfs import SeaweedServer


class Probe(NamedTuple):
    put: Callable[[str], object]
    get: Callable[[], str]


def postgresql(server: Server) -> Probe:
    def run(statement: bytes, *values: str) -> Any:
        with psycopg.connect(server.url, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchone() if cursor.description else None

    def put(value: str) -> None:
        run(b"CREATE TABLE IF NOT EXISTS probe (v text)")
        run(b"INSERT INTO probe VALUES (%s)", value)

    return Probe(put, lambda: str(run(b"SELECT v FROM probe")[0]))


def mysql(server: Server) -> Probe:
    def run(statement: str, *values: str) -> Any:
        place = urlsplit(server.url)
        connection = pymysql.connect(
            host=place.hostname, port=place.port, user=place.username, password=place.password, database="locus",
            autocommit=True, connect_timeout=5,
        )  # fmt: skip
        with connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchone()

    def put(value: str) -> None:
        run("CREATE TABLE IF NOT EXISTS probe (v text)")
        run("INSERT INTO probe VALUES (%s)", value)

    return Probe(put, lambda: str(run("SELECT v FROM probe")[0]))


def redis(server: Server) -> Probe:
    def run(*words: str) -> Any:
        with Redis.from_url(server.url, socket_timeout=5) as client:
            return client.execute_command(*words)

    return Probe(lambda value: run("SET", "probe", value), lambda: str(run("GET", "probe").decode()))


def redis_stack(server: Server) -> Probe:
    """A JSON document, which only the module can store."""

    def run(*words: str) -> Any:
        with Redis.from_url(server.url, socket_timeout=5) as client:
            return client.execute_command(*words)

    def put(value: str) -> None:
        run("FT.CREATE", "probes", "ON", "JSON", "SCHEMA", "$.v", "AS", "v", "TAG")
        run("JSON.SET", "probe-json", "$", json.dumps({"v": value}))

    return Probe(put, lambda: str(json.loads(run("JSON.GET", "probe-json"))["v"]))


def redis_cluster(server: Server) -> Probe:
    """Keys on every node."""
    names = [f"probe-{number}" for number in range(30)]

    def put(value: str) -> None:
        with ClusterClient.from_url(server.url, socket_timeout=5) as client:
            assert len({client.get_node_from_key(name) for name in names}) == 3
            for name in names:
                client.set(name, value)

    def get() -> str:
        with ClusterClient.from_url(server.url, socket_timeout=5) as client:
            (value,) = {client.get(name) for name in names}
            return bytes(value).decode()

    return Probe(put, get)


def opensearch(server: Server) -> Probe:
    def run(method: str, path: str, body: object = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{server.url}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    def get() -> str:
        run("GET", "/_cluster/health/probe?wait_for_status=yellow&timeout=30s")
        return str(run("GET", "/probe/_doc/1")["_source"]["v"])

    return Probe(lambda value: run("PUT", "/probe/_doc/1", {"v": value}), get)


def s3(server: SeaweedServer) -> Probe:
    store = S3Store(
        server.bucket, endpoint=server.url, region=server.region, access_key_id=server.access_key,
        secret_access_key=server.secret_key, client_options={"allow_http": True},
    )  # fmt: skip
    return Probe(
        lambda value: obstore.put(store, "probe", value.encode()),
        lambda: bytes(obstore.get(store, "probe").bytes()).decode(),
    )
