"""Notes who asked for what, beside the requests: they do not wait for it, and none is lost in silence."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec
import orjson

from domain.model.errors import BerthError
from services.api.caller import Caller
from services.metrics import ApiMetrics, method_label
from services.phrases import plural
from services.ports.access import Access
from services.ports.store import Callers
from services.secret import redacted

WRITE_SECONDS = 1.0
LAST_WRITE_SECONDS_MAX = 3.0
_ROWS_AT_ONCE = 500
_ROWS_MAX = 10_000
_STRANGERS_MAX = 256
_TARGET_CHARS_MAX = 300
_TARGET_READ_CHARS_MAX = 2_000  # of which keys and passwords are taken out first
_HEALTH = ("/healthz", "/readyz")
_log = logging.getLogger("berth.api")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class AccessLog:
    """Collects requests, and writes them to the store once a second.

    Whoever was let in is noted with what he asked for. Of others only the address, the route and the reason
    are kept, and beyond ``_STRANGERS_MAX`` of these in a minute not even the address, so that nobody without
    a key can fill the ledger. What cannot be written waits; beyond ``_ROWS_MAX`` it is lost. That is counted,
    logged, and noted as soon as the store answers.

    Parameters
    ----------
    callers : Callers
    metrics : ApiMetrics
    now_ms : callable
        The wall clock.
    """

    def __init__(self, callers: Callers, metrics: ApiMetrics, now_ms: Callable[[], int] = _now_ms) -> None:
        self._callers = callers
        self._metrics = metrics
        self._now_ms = now_ms
        self._waiting: dict[tuple[int, bytes], Access] = {}
        self._strangers: set[bytes] = set()
        self._strangers_minute_ms = 0
        self._lost_count = 0

    def observe(self, scope: Any, status: int, code: str, seconds: float) -> None:
        """Note an answered request, unless it asked for what is open to all, or read the metrics."""
        route = str(getattr(scope.get("route"), "path", "unknown"))
        state = scope.get("state", {})
        caller: Caller | None = state.get("caller")
        if route in _HEALTH or (status < 400 and (caller is None or route == "/metrics")):
            return
        if state.get("is_console"):
            return  # what a page of the console asks is noted, each question by itself
        if code == "unauthorized":
            shown = any(name == b"authorization" for name, _ in scope["headers"])
            code = "wrong-key" if shown else "no-key"
        query = scope["query_string"].decode("ascii", "replace")
        path = scope.get("raw_path", b"").decode("ascii", "replace") + (f"?{query}" if query else "")
        sent = state.get("sent")
        now_ms = self._now_ms()
        self._add(
            Access(
                at_ms=now_ms,
                last_at_ms=now_ms,
                caller=None if caller is None else caller.sent_by,
                roles=() if caller is None else tuple(sorted(caller.roles)),
                address=str((scope.get("client") or ("",))[0]),
                method=method_label(scope["method"]),
                route=route,
                target="" if caller is None else redacted(path[:_TARGET_READ_CHARS_MAX])[:_TARGET_CHARS_MAX],
                status=status,
                code=code,
                duration_ms=int(seconds * 1000),
                events_count=None if sent is None else sent.answer.accepted,
                spans=() if sent is None else tuple(sent.spans),
            )
        )

    def _add(self, row: Access) -> None:
        digest = row.digest
        if row.caller is None:
            if row.minute_ms != self._strangers_minute_ms:
                self._strangers_minute_ms = row.minute_ms
                self._strangers.clear()
            if digest not in self._strangers and len(self._strangers) >= _STRANGERS_MAX:
                row = _anybody(row)
                digest = row.digest
            self._strangers.add(digest)
        self._wait(digest, row)

    def _wait(self, digest: bytes, row: Access) -> None:
        place = (row.minute_ms, digest)
        known = self._waiting.get(place)
        if known is not None:
            self._waiting[place] = known.merged_with(row)
        elif len(self._waiting) < _ROWS_MAX:
            self._waiting[place] = row
        else:
            self._lose(row.times)

    def _lose(self, count: int) -> None:
        if not self._lost_count:
            _log.error("requests are not noted in the access log: the ledger does not take them")
        self._lost_count += count
        self._metrics.accesses_lost.inc(count)

    async def run(self) -> None:
        """Write once a second, until cancelled."""
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            await self.write()

    async def aclose(self) -> None:
        """Write what still waits, if the store takes it soon."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WRITE_SECONDS_MAX):
                await self.write()

    async def write(self) -> None:
        """Write what waits, as far as the store takes it."""
        while self._waiting:
            batch = dict(islice(self._waiting.items(), _ROWS_AT_ONCE))
            for place in batch:
                del self._waiting[place]
            try:
                await self._callers.note_accesses(list(batch.values()))
            except (BerthError, asyncio.CancelledError) as error:
                for (_, digest), row in batch.items():
                    self._wait(digest, row)
                if isinstance(error, asyncio.CancelledError):
                    raise
                return
            except Exception as error:
                _log.warning("the access log: %s", error)
                self._lose(sum(row.times for row in batch.values()))
                return
            self._report_lost()

    def _report_lost(self) -> None:
        """Note how many requests were lost, now that the store answers again."""
        if not self._lost_count:
            return
        _log.error("%s not noted in the access log", plural(self._lost_count, "request"))
        now_ms = self._now_ms()
        row = Access(
            at_ms=now_ms,
            last_at_ms=now_ms,
            caller=None,
            roles=(),
            address="",
            method="",
            route="",
            target="",
            status=0,
            code="lost",
            duration_ms=0,
            times=self._lost_count,
        )
        self._lost_count = 0
        self._wait(row.digest, row)


def _anybody(row: Access) -> Access:
    """Return a request of one stranger among too many."""
    return msgspec.structs.replace(row, address="others", route="unknown", method="other")


def code_of(body: bytes) -> str:
    """Return the code of an answer that is an error."""
    try:
        return str(orjson.loads(body)["error"]["code"])[:64]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""
