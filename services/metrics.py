"""Prometheus metrics of this process, and of the whole deployment as the ledger shows it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from hmac import compare_digest
from typing import Any

import orjson
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    generate_latest,
    make_asgi_app,
)
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from services.build import build
from services.lag import Lag
from services.ports.store import Counts, ShardState

SILENT_SECONDS_MAX = 30.0
"""A process without a beat for so long is stuck. A batch, or a start under load, takes less."""

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""The methods that have a label of their own. A client can invent others, and a label is kept for ever."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def process_registry() -> CollectorRegistry:
    """Return a registry with the usual metrics of a Python process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    Info("berth_build", "Which build of berth this process is", registry=registry).info({"version": build()})
    return registry


def tidied_gauge(registry: CollectorRegistry, prefix: str) -> Gauge:
    """Return the metric of when the deleting of what is old last went well, by what is deleted."""
    about = "When what is old was last deleted without a fault, in seconds since 1970; 0: not yet"
    return Gauge(f"{prefix}_timestamp_seconds", about, ["what"], registry=registry)


class Heartbeat:
    """Tells whether this process's event loop still turns. A process that is stuck has to be restarted."""

    def __init__(self) -> None:
        self._beat_at = time.monotonic()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self._beat_at = time.monotonic()
            await asyncio.sleep(1)

    def silent_seconds(self) -> float:
        """Return how long ago the last beat was."""
        return time.monotonic() - self._beat_at


def process_app(registry: CollectorRegistry, heartbeat: Heartbeat, key: str | None) -> Any:
    """Return an ASGI application that shows a process' metrics, and its heartbeat at ``/healthz``.

    With a key it shows the metrics to those alone who have it.
    """
    metrics = make_asgi_app(registry)
    needed = None if key is None else f"Bearer {key}".encode()

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/healthz":
            is_alive = heartbeat.silent_seconds() < SILENT_SECONDS_MAX
            health: Mapping[str, Any] = {"status": "ok" if is_alive else "stuck", "checks": {}}
            await _send_json(send, 200 if is_alive else 503, health)
        elif needed is None or compare_digest(dict(scope["headers"]).get(b"authorization", b""), needed):
            await metrics(scope, receive, send)
        else:
            error = {"code": "unauthorized", "message": "send `Authorization: Bearer <BERTH_METRICS_KEY>`"}
            await _send_json(send, 401, {"error": error})

    return answer


async def _send_json(send: Any, status: int, value: object) -> None:
    headers = [(b"content-type", b"application/json")]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="berth"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": orjson.dumps(value)})


def method_label(method: str) -> str:
    """Return the method, or `other` for one that was invented."""
    return method if method in _METHODS else "other"


class ApiMetrics:
    """What the API counts, in the registry of its process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.requests = Counter(
            "berth_api_requests", "Requests answered", ["route", "method", "status"], registry=self.registry
        )
        self.request_seconds = Histogram(
            "berth_api_request_seconds", "Duration of requests", ["route"], registry=self.registry
        )
        self.events = Counter(
            "berth_api_events", "Events received by outcome", ["outcome"], registry=self.registry
        )
        self.tidied = tidied_gauge(registry, "berth_api_tidied")
        self.streams = Gauge("berth_api_streams", "Streams of events that are open", registry=self.registry)
        self.accesses_lost = Counter(
            "berth_api_accesses_lost", "Requests that the access log does not have", registry=self.registry
        )

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that took so long."""
        self.requests.labels(route, method_label(method), str(status)).inc()
        self.request_seconds.labels(route).observe(seconds)

    def render(self) -> bytes:
        """Return all metrics of the process in Prometheus' text format."""
        return bytes(generate_latest(self.registry))


def render_ledger(counts: Counts, shards: Sequence[ShardState], lags: Mapping[int, Lag]) -> bytes:
    """Return the ledger's sizes, and how far the worker and the relay have come with each shard."""
    registry = CollectorRegistry()

    def gauge(name: str, help_text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(f"berth_ledger_{name}", help_text, labels, registry=registry)

    gauge("nodes", "Nodes that are not deleted").set(counts.nodes)
    gauge("pending_pods", "Pods that wait for a node").set(counts.pending_pods)
    if counts.audit_age_seconds is not None:
        gauge("audit_age_seconds", "Time since the last audit began").set(counts.audit_age_seconds)
        gauge("audit_ok", "Whether all invariants held then").set(bool(counts.audit_ok))
    decisions = gauge("decisions", "Decisions committed per shard", ["shard"])
    unpublished = gauge("decisions_unpublished", "Decisions that the relay has not published", ["shard"])
    dead = gauge("dead_letters", "Records that could not be accepted, per shard", ["shard"])
    owned = gauge("owned", "Whether a worker holds the shard", ["shard"])
    epoch = gauge("epoch", "Ownership counter of the shard", ["shard"])
    log_time = gauge("log_time_seconds", "Time of the last folded event", ["shard"])
    records = gauge("lag_records", "Records appended and not yet folded", ["shard"])
    alarm = gauge("topic_alarm", "Whether the topic of decisions holds what the ledger does not", ["shard"])
    seconds = gauge("lag_seconds", "Age of the oldest record not yet folded", ["shard"])
    for shard, lag in lags.items():
        records.labels(str(shard)).set(lag.records)
        seconds.labels(str(shard)).set(lag.seconds)
    for row in shards:
        label = str(row.shard)
        decisions.labels(label).set(row.seq_next - 1)
        unpublished.labels(label).set(row.seq_next - 1 - row.decisions_seq)
        dead.labels(label).set(row.dead_seq_next - 1)
        owned.labels(label).set(row.owner is not None)
        epoch.labels(label).set(row.epoch)
        alarm.labels(label).set(row.alarm is not None)
        log_time.labels(label).set(row.log_time_ms / 1000)
    return bytes(generate_latest(registry))
