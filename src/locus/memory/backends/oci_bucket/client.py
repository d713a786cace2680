"""OCI Object Storage as an `ObjectStore`: Oracle's SDK on a pool of worker threads, and the meaning of its errors.

The SDK blocks, so requests are made on a bounded pool of worker threads, and no event loop ever waits for one. Each
worker has a client of its own: Oracle does not promise that threads may share a client, and a client that meets an
object which exists already (412) closes all of its connections. A client costs a worker 0.4 ms. The signer, whose key
takes 60 ms to load, is shared.
"""

from __future__ import annotations

import base64
import builtins
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from operator import methodcaller
from typing import Any, Final, TypeVar

from locus.errors import BackendUnavailableError, CheckpointError, ConfigurationError
from locus.extras import require
from locus.memory.backends.objects.client import PAGE, ByteSpan, ListedObject, ObjectStore, together
from locus.memory.backends.oci_bucket.config import OCIConfig
from locus.memory.model.findings import http_time
from locus.memory.runtime.forks import fork_safe_lock
from locus.memory.runtime.worker import WorkerPool
from locus.oci_auth import Signer, make_signer

EXTRA: Final = "oci"
ATTEMPTS: Final = 6
"""The number of times that a request is sent at most: over two or three seconds."""
PATIENCE_SECONDS: Final = 60
"""The seconds after the first attempt within which another one may begin."""
LARGE: Final = 1_048_576
"""The size, in bytes, from which on the server is asked whether it accepts an object before the body is sent."""

T = TypeVar("T")
ObjectPage = tuple[list[dict[str, Any]], str | None]


class OCIObjectStore(ObjectStore):
    """The objects under a prefix of an OCI bucket. Can be used from any event loop."""

    def __init__(self, config: OCIConfig) -> None:
        super().__init__(config.prefix)
        self._namespace, self._bucket = config.namespace, config.bucket_name
        connector = Connector(config)
        self._endpoint = config.service_endpoint or connector.region or "the region of this machine"
        self._pool: WorkerPool[Connection] = WorkerPool("locus-oci", connector, config.max_connections)
        self._service_error: type[Exception] = require("oci.exceptions", EXTRA).ServiceError
        # What `requests` raises, which the SDK is built on, is an OSError.
        self.driver_errors = (self._service_error, OSError)  # type: ignore[misc]  # known when the SDK is
        self.at_once = config.max_connections

    @property
    def identity(self) -> str:
        # A bucket's name is unique within a namespace and a region.
        return f"oci:{self._endpoint}/{self._namespace}/{self._bucket}/{self._prefix}"

    def translate(self, error: BaseException) -> CheckpointError:
        if isinstance(error, self._service_error):
            return refused(error, self._namespace, self._bucket)
        return unreached(error, self._endpoint)

    async def put(self, key: str, body: bytes, *, if_absent: bool) -> bool:
        self.requests["put"] += 1
        return await self._pool.run(lambda connection: connection.put(self._prefix + key, body, if_absent=if_absent))

    async def get(self, key: str, span: ByteSpan | None = None) -> bytes | None:
        self.requests["get"] += 1
        return await self._pool.run(lambda connection: connection.get(self._prefix + key, span))

    async def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> builtins.list[ListedObject]:
        objects: builtins.list[ListedObject] = []
        query: dict[str, Any] = {"prefix": self._prefix + prefix}
        if start_after is not None:
            query["start_after"] = self._prefix + start_after
        while limit is None or len(objects) < limit:
            query["limit"] = PAGE if limit is None else min(PAGE, limit - len(objects))
            self.requests["list"] += 1
            page, next_start = await self._pool.run(lambda connection: connection.list(**query))
            objects += map(self._listed, page)
            if next_start is None:
                break
            query.pop("start_after", None)
            query["start"] = next_start
        return objects

    def _listed(self, item: dict[str, Any]) -> ListedObject:
        name: str = item["name"]
        return ListedObject(name.removeprefix(self._prefix), item["size"], datetime.fromisoformat(item["timeModified"]))

    async def delete(self, keys: Iterable[str]) -> None:
        names = [self._prefix + key for key in keys]
        batches = [names[start : start + PAGE] for start in range(0, len(names), PAGE)]
        self.requests["delete"] += len(batches)
        await together([partial(self._pool.run, methodcaller("delete_many", batch)) for batch in batches])

    async def server_time(self) -> datetime | None:
        self.requests["list"] += 1
        return http_time(await self._pool.run(lambda connection: connection.date(prefix=self._prefix)))

    async def close(self) -> None:
        await self._pool.close()


class Connector:
    """Opens connections that share a signer.

    It must not know the pool that calls it, or neither would ever be garbage.
    """

    def __init__(self, config: OCIConfig) -> None:
        self._oci = require("oci", EXTRA)
        require("oci.object_storage", EXTRA)
        self._config = config
        self._bucket = (config.namespace, config.bucket_name)
        self._retry_strategy = default_retries() if config.retry_strategy is None else config.retry_strategy
        self._signed: tuple[Signer, dict[str, Any]] | None = None
        self._signed_in = os.getpid()
        if config.auth_type in ("api_key", "security_token"):
            self._signed = self._sign()
            if not (config.service_endpoint or self.region):
                raise ConfigurationError("which OCI region? Pass region=…, or write it into the profile")

    @property
    def region(self) -> str | None:
        """The region, as far as it is known before a principal names it."""
        return self._config.region or (self._signed[1].get("region") if self._signed else None)

    def __call__(self) -> Connection:
        # A key that another thread was signing with during a fork is of no use to the child: OpenSSL keeps the
        # numbers that blind it, and a lock, inside the key. The child reads it anew.
        if self._signed is None or self._signed_in != os.getpid():
            try:
                self._signed = self._sign()
                self._signed_in = os.getpid()
            except ConfigurationError:
                raise
            except Exception as error:  # the SDK raises whatever its many ways to a token raise
                kind = self._config.auth_type.replace("_", " ")
                raise BackendUnavailableError(
                    f"no {kind} is to be had here ({type(error).__name__}); is this program running inside OCI, "
                    "and is what it runs on in a dynamic group? Elsewhere, use auth_type='api_key'"
                ) from error
        return Connection(self._oci, self, self._bucket, self._retry_strategy)

    def client(self) -> Any:
        assert self._signed is not None
        signer, profile = self._signed
        if self._config.region:
            profile = {**profile, "region": self._config.region}
        client = self._oci.object_storage.ObjectStorageClient(
            profile,
            signer=signer,
            service_endpoint=self._config.service_endpoint,
            timeout=self._config.timeout,
            retry_strategy=self._oci.retry.NoneRetryStrategy(),
            # It would answer for the service for half a minute after an outage.
            circuit_breaker_strategy=self._oci.circuit_breaker.NoCircuitBreakerStrategy(),
            # JSON is all that is needed; making objects of it takes four times as long.
            skip_deserialization=True,
        )
        _read_environment_once(client.base_client)
        _send_small_objects_at_once(client.base_client.session)
        return client

    def renewed(self, used: Any) -> bool:
        """Tell whether there is a newer security token than that of this signer: they end after an hour."""
        if self._config.auth_type != "security_token" or self._signed is None:
            return False
        known: Any = self._signed[0]
        if known.api_key == used.api_key:
            self._signed = self._sign()
            known = self._signed[0]
        return bool(known.api_key != used.api_key)

    def _sign(self) -> tuple[Signer, dict[str, Any]]:
        config = self._config
        make = partial(make_signer, config.auth_type, config.profile_name, extra=EXTRA, file=config.config_file)
        if config.auth_type not in ("api_key", "security_token"):
            signed = make()  # asks the network, and no fork shall wait for that
        else:
            with signing:
                signed = make()
        _keep_apart_from_forks(signed[0])
        return signed


class Connection:
    """The five requests, for one worker. They raise the SDK's errors."""

    def __init__(self, oci: Any, connector: Connector, bucket: tuple[str, str], retries: Any) -> None:
        self._oci = oci
        self._connector = connector
        self._bucket = bucket
        self._retries = retries
        self._client = connector.client()

    def close(self) -> None:
        self._client.base_client.session.close()

    def put(self, name: str, body: bytes, *, if_absent: bool) -> bool:
        """Write an object; False if it exists and `if_absent` is set."""
        options = {"if_none_match": "*"} if if_absent else {}

        def send(client: Any) -> None:
            client.put_object(
                *self._bucket,
                name,
                body,
                content_md5=md5_base64(body),
                content_type="application/octet-stream",
                **options,
            )

        try:
            self._with_retries(send)
        except self._oci.exceptions.ServiceError as error:
            if error.status == 412:
                return False
            raise
        return True

    def get(self, name: str, span: ByteSpan | None = None) -> bytes | None:
        options = {"range": span.header} if span else {}

        def send(client: Any) -> bytes:
            response = client.get_object(*self._bucket, name, **options)
            body = whole_body(response)
            # A server need not heed the range, and says so.
            return body if span is None or response.status == 206 else span.of(body)

        try:
            return self._with_retries(send)
        except self._oci.exceptions.ServiceError as error:
            if error.status == 404 and error.code == "ObjectNotFound":
                return None
            if error.status == 416:
                return b""
            raise

    def list(self, **query: Any) -> ObjectPage:
        """Read one page: the objects, and where the next page starts."""
        response = self._with_retries(
            lambda client: client.list_objects(*self._bucket, fields="name,size,timeModified", **query)
        )
        return response.data["objects"], response.data.get("nextStartWith")

    def date(self, **query: Any) -> str:
        """The header `Date` of an answer."""
        response = self._with_retries(
            lambda client: client.list_objects(*self._bucket, fields="name", limit=1, **query)
        )
        return str(response.headers.get("date") or "")

    def delete(self, name: str) -> None:
        try:
            self._with_retries(lambda client: client.delete_object(*self._bucket, name))
        except self._oci.exceptions.ServiceError as error:
            if error.status != 404 or error.code != "ObjectNotFound":
                raise

    def delete_many(self, names: Sequence[str]) -> None:
        """Delete objects in one request, if the SDK is new enough to have it."""
        if len(names) > 1 and getattr(self._client, "batch_delete_objects", None) is not None:
            assert len(names) <= PAGE
            names = self._delete_batch(names)
        for name in names:
            self.delete(name)

    def _delete_batch(self, names: Sequence[str]) -> Sequence[str]:
        """Delete objects, and return those that were not deleted, for whatever reason."""
        models = self._oci.object_storage.models
        details = models.BatchDeleteObjectsDetails(
            objects=[models.BatchDeleteObjectIdentifier(object_name=name) for name in names],
            is_skip_deleted_result=True,
        )
        response = self._with_retries(lambda client: client.batch_delete_objects(*self._bucket, details))
        failed = response.data.get("failed") or []
        return [item["objectName"] for item in failed if item.get("statusCode") != 404]

    def _with_retries(self, request: Callable[[Any], T]) -> T:
        """Send a request, and again as the retry strategy says. Reading the response is part of it."""
        answer: T = self._retries.make_retrying_call(self._attempt, request)
        return answer

    def _attempt(self, request: Callable[[Any], T]) -> T:
        errors = self._oci.exceptions
        try:
            return request(self._client)
        except errors.ServiceError as error:
            if error.status != 401 or not self._connector.renewed(self._client.base_client.signer):
                raise
        except OSError as error:
            # What breaks while a response is read comes from `requests` as it is, and no retry strategy knows it.
            if isinstance(error, errors.RequestException | errors.ConnectTimeout | ConnectionError):
                raise
            raise ConnectionError(error) from error
        self.close()
        self._client = self._connector.client()
        return request(self._client)


def default_retries() -> Any:
    """The default strategy: retry throttling, failures of the service and the network, and 409 (others are writing)."""
    retry = require("oci.retry", EXTRA)
    return retry.RetryStrategyBuilder(
        max_attempts=ATTEMPTS,
        total_elapsed_time_seconds=PATIENCE_SECONDS,
        service_error_retry_config={-1: [], 409: [], 429: []},
        retry_base_sleep_time_seconds=0.05,
        retry_max_wait_between_calls_seconds=5,
        backoff_type=retry.BACKOFF_EQUAL_JITTER_VALUE,
    ).get_retry_strategy()


def whole_body(response: Any) -> bytes:
    """Read the body of a streamed response. That happens inside the retries, and checks it, as the SDK does not."""
    body: bytes = response.data.content
    # The digest is of the whole object, and so says nothing of a part.
    digest = response.headers.get("content-md5") if response.status == 200 else None
    length = response.headers.get("content-length")
    if (length is not None and int(length) != len(body)) or (digest is not None and digest != md5_base64(body)):
        raise ConnectionError("the answer is not whole, or was changed on its way")
    return body


def md5_base64(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


signing: Final = fork_safe_lock()
"""Held while OpenSSL works on a key: it has locks of its own, which a child would inherit as a thread held them."""


def _keep_apart_from_forks(signer: Any) -> None:
    sign = signer.do_request_sign

    def sign_under_the_lock(*args: Any, **options: Any) -> Any:
        with signing:
            return sign(*args, **options)

    signer.do_request_sign = sign_under_the_lock


def _read_environment_once(base: Any) -> None:
    """Look for proxies and certificates now: doing so with every request is a seventh of its cost."""
    session = base.session
    found = session.merge_environment_settings(base.endpoint, {}, None, None, None)
    session.proxies, session.verify, session.trust_env = found["proxies"], found["verify"], False


def _send_small_objects_at_once(session: Any) -> None:
    """Drop `Expect: 100-continue`, the SDK's default, which costs a round trip before the body is sent."""
    for scheme in ("https://", "http://"):
        adapter: Any = type(session.get_adapter(scheme))

        class AtOnce(adapter):  # type: ignore[misc]
            def send(self, request: Any, *args: Any, **options: Any) -> Any:
                if int(request.headers.get("content-length") or 0) < LARGE:
                    request.headers.pop("expect", None)
                return super().send(request, *args, **options)

        session.mount(scheme, AtOnce())


_CREDENTIALS = (
    "check that the profile's user, tenancy, fingerprint and key belong together, that the public key is uploaded "
    "to that user, that a security token has not ended, and that this machine's clock is right to five minutes"
)


def refused(error: Any, namespace: str, bucket: str) -> CheckpointError:
    """Make the error for a `ServiceError`. The keys of objects are digests, and messages hold no secret."""
    answer = f"{error.status} {error.code}" + (f", {error.message}" if error.message else "")
    request = f" (opc-request-id {error.request_id})" if error.request_id else ""
    where = f"the bucket {bucket!r} in the namespace {namespace!r}"
    match error.status:
        case 401:
            return BackendUnavailableError(f"OCI refused the signature: {answer}{request}; {_CREDENTIALS}")
        case 403 | 404:
            return BackendUnavailableError(
                f"{where} is not there, or may not be used: {answer}{request}; check its name, the namespace and the "
                "region, and that a policy allows these objects to be read, created, deleted and listed"
            )
        case 413:
            return CheckpointError(f"the checkpoint is too large for one object: {answer}{request}")
        case 429:
            return BackendUnavailableError(f"OCI limits the requests to {where}: {answer}{request}; try again later")
    return BackendUnavailableError(f"OCI Object Storage failed: {answer}{request}")


def unreached(error: BaseException, endpoint: str) -> BackendUnavailableError:
    """Make the error for a request without a response. The SDK's own text, with its URL, stays in the cause."""
    root: BaseException = error
    while root.args and isinstance(root.args[0], BaseException):
        root = root.args[0]
    return BackendUnavailableError(f"OCI Object Storage at {endpoint} did not answer: {type(root).__name__}")
