"""The server that stands in for OCI Object Storage: it refuses what the service refuses."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.backends.oci.raw import RawRequest, send
from tests.servers.oci.keys import KEY_ID
from tests.servers.oci.server import OCIServer

pytestmark = pytest.mark.oci

NOT_AUTHENTICATED = (401, "NotAuthenticated")


def objects(server: OCIServer, name: str = "") -> str:
    path = f"/n/{server.namespace}/b/{server.bucket}/o"
    return f"{path}/{name}" if name else path


def deletion(server: OCIServer) -> RawRequest:
    body = b'{"objects": [{"objectName": "nothing"}]}'
    target = f"/n/{server.namespace}/b/{server.bucket}/actions/batchDeleteObjects"
    return RawRequest("POST", target, body, sign_body=True)


def test_a_request_that_is_signed_well_is_answered(oci_server: OCIServer) -> None:
    put = RawRequest("PUT", objects(oci_server, "hello"), b"world", {"opc-client-request-id": "mine"})
    answer = send(oci_server.port, put)
    assert answer.status == 200
    assert answer.headers["opc-content-md5"] == "fXkwN6B2AYZXSwKC8vQ15w=="
    assert answer.headers["opc-client-request-id"] == "mine"
    assert answer.headers["opc-request-id"]
    got = send(oci_server.port, RawRequest("GET", objects(oci_server, "hello")))
    assert (got.body, got.headers["etag"]) == (b"world", answer.headers["etag"])
    assert got.headers["storage-tier"] == "Standard"
    assert send(oci_server.port, deletion(oci_server)).status == 200


def test_the_date_may_be_given_as_x_date(oci_server: OCIServer) -> None:
    request = RawRequest("GET", "/n/", headers={"date": "yesterday", "x-date": formatdate(usegmt=True)})
    assert send(oci_server.port, request).json == oci_server.namespace


def test_an_unsigned_request_is_refused(oci_server: OCIServer) -> None:
    answer = send(oci_server.port, RawRequest("GET", "/n/"), headers={"authorization": None})
    assert answer.refusal == NOT_AUTHENTICATED
    assert answer.json["message"].startswith("The required information to complete authentication")


@pytest.mark.parametrize(
    "changed",
    [
        {"headers": {"authorization": "Bearer token"}},
        {"headers": {"date": formatdate(time.time() - 10, usegmt=True)}},
        {"headers": {"host": "elsewhere"}},
        {"target": "/n/?compartmentId=other"},
        {"headers": {"date": None}},
        {"headers": {"x-date": formatdate(usegmt=True)}},
    ],
    ids=["scheme", "date", "host", "path", "no date", "a second date, unsigned"],
)
def test_a_request_that_was_changed_is_refused(oci_server: OCIServer, changed: dict[str, Any]) -> None:
    request = RawRequest("GET", "/n/")
    assert send(oci_server.port, request).status == 200
    assert send(oci_server.port, request, **changed).refusal == NOT_AUTHENTICATED


def test_another_key_is_refused(oci_server: OCIServer) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert send(oci_server.port, RawRequest("GET", "/n/", key=other)).refusal == NOT_AUTHENTICATED
    assert send(oci_server.port, RawRequest("GET", "/n/", key_id=f"{KEY_ID}0")).refusal == NOT_AUTHENTICATED


@pytest.mark.parametrize("seconds", [-310, 310])
def test_an_old_date_and_one_to_come_are_refused(oci_server: OCIServer, seconds: int) -> None:
    def at(offset: int) -> RawRequest:
        return RawRequest("GET", "/n/", headers={"date": formatdate(time.time() + offset, usegmt=True)})

    assert send(oci_server.port, at(seconds)).refusal == NOT_AUTHENTICATED
    assert send(oci_server.port, at(seconds * 9 // 10)).status == 200


def test_a_body_that_was_changed_is_refused(oci_server: OCIServer) -> None:
    request = deletion(oci_server)
    forged = request.body.replace(b"nothing", b"another")
    assert send(oci_server.port, request, body=forged).refusal == NOT_AUTHENTICATED
    unsigned = RawRequest("POST", request.target, request.body)
    assert send(oci_server.port, unsigned).refusal == NOT_AUTHENTICATED


def test_the_body_of_an_object_is_checked_by_its_digest(oci_server: OCIServer) -> None:
    """Its signature need not cover it; see Oracle's special instructions for PUT."""
    put = RawRequest("PUT", objects(oci_server, "checked"), b"world", {"content-md5": "fXkwN6B2AYZXSwKC8vQ15w=="})
    assert send(oci_server.port, put).status == 200
    assert send(oci_server.port, put, body=b"World").refusal == (400, "UnmatchedContentMD5")
    whole = RawRequest("PUT", objects(oci_server, "checked"), b"world", sign_body=True)
    assert send(oci_server.port, whole).status == 200
    assert send(oci_server.port, whole, body=b"World").refusal == NOT_AUTHENTICATED


def test_what_is_not_there(oci_server: OCIServer) -> None:
    def refusal(target: str) -> tuple[int, str]:
        return send(oci_server.port, RawRequest("GET", target)).refusal

    assert refusal(objects(oci_server, "nowhere")) == (404, "ObjectNotFound")
    assert refusal(f"/n/{oci_server.namespace}/b/nowhere/o") == (404, "BucketNotFound")
    assert refusal(f"/n/other/b/{oci_server.bucket}/o") == (404, "NamespaceNotFound")
    assert refusal("/20160918/instances") == (404, "NotAuthorizedOrNotFound")
    head = send(oci_server.port, RawRequest("HEAD", objects(oci_server, "nowhere")))
    assert (head.status, head.body) == (404, b"")


def test_conditions(oci_server: OCIServer) -> None:
    name = objects(oci_server, "conditional")

    def put(body: bytes, **headers: str) -> RawRequest:
        return RawRequest("PUT", name, body, {key.replace("_", "-"): value for key, value in headers.items()})

    missing = send(oci_server.port, put(b"0", if_match="x"))
    first = send(oci_server.port, put(b"1", if_none_match="*"))
    again = send(oci_server.port, put(b"2", if_none_match="*"))
    wrong = send(oci_server.port, put(b"3", if_match="another"))
    right = send(oci_server.port, put(b"1", if_match=first.headers["etag"]))
    odd = send(oci_server.port, put(b"5", if_none_match="an etag"))
    assert missing.refusal == (412, "IfMatchFailed")
    assert again.refusal == (412, "IfNoneMatchFailed")
    assert wrong.refusal == (412, "IfMatchFailed")
    assert right.status == 200
    assert right.headers["etag"] != first.headers["etag"], "an ETag is new with every write"
    assert odd.refusal == (400, "InvalidParameter")
    assert send(oci_server.port, RawRequest("GET", name)).body == b"1"
    stale = RawRequest("DELETE", name, headers={"if-match": first.headers["etag"]})
    assert send(oci_server.port, stale).refusal == (412, "IfMatchFailed")
    assert send(oci_server.port, RawRequest("DELETE", name)).status == 204
    assert send(oci_server.port, RawRequest("DELETE", name)).refusal == (404, "ObjectNotFound")


def test_only_one_of_many_creates_an_object(oci_server: OCIServer) -> None:
    request = RawRequest("PUT", objects(oci_server, "contested"), b"", {"if-none-match": "*"})
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda _: send(oci_server.port, request).status, range(32)))
    assert sorted(statuses) == [200, *[412] * 31]


def test_a_part_of_an_object(oci_server: OCIServer) -> None:
    name = objects(oci_server, "ranged")
    send(oci_server.port, RawRequest("PUT", name, b"0123456789"))

    def part(extent: str) -> tuple[int, bytes]:
        answer = send(oci_server.port, RawRequest("GET", name, headers={"range": f"bytes={extent}"}))
        return answer.status, answer.body

    assert part("2-4") == (206, b"234")
    assert part("7-") == (206, b"789")
    assert part("-2") == (206, b"89")
    assert part("50-60")[0] == 416


def test_names_that_are_not_allowed(oci_server: OCIServer) -> None:
    for name in ("a" * 1_025, "a%00b", "a%0Ab"):
        answer = send(oci_server.port, RawRequest("PUT", objects(oci_server, name), b""))
        assert answer.refusal == (400, "InvalidObjectName")
    assert send(oci_server.port, RawRequest("PUT", objects(oci_server, "a" * 1_024), b"")).status == 200


def test_listing(oci_server: OCIServer, oci_prefix: str) -> None:
    names = [f"{oci_prefix}{name}" for name in ("a", "b/1", "b/2", "b0", "c/1", "d", "é")]
    for name in names:
        send(oci_server.port, RawRequest("PUT", objects(oci_server, name.replace("é", "%C3%A9")), b"body"))

    def listed(query: str) -> tuple[list[str], list[str] | None, str | None]:
        target = f"{objects(oci_server)}?prefix={oci_prefix.replace('/', '%2F')}{query}"
        found = send(oci_server.port, RawRequest("GET", target)).json
        short = [item["name"].removeprefix(oci_prefix) for item in found["objects"]]
        prefixes = [name.removeprefix(oci_prefix) for name in found["prefixes"]] if "prefixes" in found else None
        next_start = found.get("nextStartWith")
        return short, prefixes, next_start and next_start.removeprefix(oci_prefix)

    def full(name: str) -> str:
        return f"{oci_prefix}{name}".replace("/", "%2F")

    assert listed("") == (["a", "b/1", "b/2", "b0", "c/1", "d", "é"], None, None)
    assert listed("b") == (["b/1", "b/2", "b0"], None, None)
    assert listed("&limit=2") == (["a", "b/1"], None, "b/2")
    assert listed(f"&limit=2&start={full('b/2')}") == (["b/2", "b0"], None, "c/1")
    assert listed(f"&startAfter={full('b/2')}&end={full('d')}") == (["b0", "c/1"], None, None)
    assert listed("&delimiter=%2F") == (["a", "b0", "d", "é"], ["b/", "c/"], None)
    assert listed("&delimiter=%2F&limit=2") == (["a"], ["b/"], "b0")
    target = f"{objects(oci_server)}?prefix={full('a')}&fields=name,size,etag,md5,timeCreated,timeModified"
    (item,) = send(oci_server.port, RawRequest("GET", target)).json["objects"]
    assert {*item} == {"name", "size", "etag", "md5", "timeCreated", "timeModified"}
    assert send(oci_server.port, RawRequest("GET", f"{objects(oci_server)}?limit=1001")).status == 400


def test_renaming(oci_server: OCIServer, oci_prefix: str) -> None:
    send(oci_server.port, RawRequest("PUT", objects(oci_server, f"{oci_prefix}old"), b"body"))
    target = f"/n/{oci_server.namespace}/b/{oci_server.bucket}/actions/renameObject"

    def rename(more: str = "") -> RawRequest:
        body = f'{{"sourceName": "{oci_prefix}old", "newName": "{oci_prefix}new"{more}}}'
        return RawRequest("POST", target, body.encode(), sign_body=True)

    assert send(oci_server.port, rename()).status == 200
    assert send(oci_server.port, RawRequest("GET", objects(oci_server, f"{oci_prefix}new"))).body == b"body"
    assert send(oci_server.port, rename()).refusal == (404, "ObjectNotFound")
    send(oci_server.port, RawRequest("PUT", objects(oci_server, f"{oci_prefix}old"), b"body"))
    assert send(oci_server.port, rename(', "newObjIfNoneMatchETag": "*"')).refusal == (412, "IfNoneMatchFailed")


@pytest.mark.parametrize("durable", [False, True], ids=["in the page cache", "on the disk"])
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, durable: bool) -> None:
    with OCIServer(tmp_path / "server", durable=durable) as server:
        for number in range(20):
            put = RawRequest("PUT", objects(server, f"k/{number:02}"), f"body {number}".encode())
            assert send(server.port, put).status == 200
        before = send(server.port, RawRequest("HEAD", objects(server, "k/03"))).headers
        server.kill()
        (server.data / server.namespace / server.bucket / "half.new").write_bytes(b"half")
        server.start()
        found = send(server.port, RawRequest("GET", f"{objects(server)}?prefix=k")).json["objects"]
        assert [item["name"] for item in found] == [f"k/{number:02}" for number in range(20)]
        after = send(server.port, RawRequest("GET", objects(server, "k/03")))
        assert (after.body, after.headers["etag"]) == (b"body 3", before["etag"])
