"""Metrics for Prometheus. Labels are names of operations and statuses, so clients cannot add any."""

from __future__ import annotations

import os
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one app. Several workers add up theirs through a shared folder."""

    def __init__(self) -> None:
        self._shared = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self._registry = registry = CollectorRegistry()
        labels = ("operation", "method", "status")
        self._requests = Counter("locus_requests", "Requests answered", labels, registry=registry)
        self._seconds = Histogram(
            "locus_request_seconds",
            "Time until the answer was sent",
            ("operation",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._received = Counter("locus_received_bytes", "Bytes of request bodies", registry=registry)
        self._sent = Counter("locus_sent_bytes", "Bytes of answers", registry=registry)
        self.in_flight = Gauge(
            "locus_requests_in_flight", "Requests being answered", registry=registry, multiprocess_mode="livesum"
        )

    def count(self, operation: str, method: str, status: int, seconds: float, received: int, sent: int) -> None:
        self._requests.labels(operation, method, str(status)).inc()
        self._seconds.labels(operation).observe(seconds)
        self._received.inc(received)
        self._sent.inc(sent)

    def text(self) -> bytes:
        if not self._shared:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
