"""Whether the ledger holds what it promises: the audit, for admins and for auditors of the whole cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request, Response

from services.api.answers_audit import AuditAnswer, audit_answer
from services.api.caller import caller_of
from services.api.contract import answering
from services.api.failures import ApiError, json_answer
from services.ports.audit import Audit

FRESH_SECONDS = 10.0


class Audits:
    """Audits the ledger for all callers, one audit at a time, and each at most every ten seconds."""

    def __init__(self, audit: Callable[[], Awaitable[Audit]]) -> None:
        self._audit = audit
        self._running: asyncio.Task[Audit] | None = None
        self._done_at = 0.0

    async def look(self) -> Audit:
        """Return what the audit found that runs, or ran a moment ago; else begin one."""
        is_old = time.monotonic() - self._done_at > FRESH_SECONDS
        if self._running is None or (self._running.done() and (is_old or self._running.exception())):
            self._running = asyncio.create_task(self._run())
        return await asyncio.shield(self._running)

    async def _run(self) -> Audit:
        found = await self._audit()
        self._done_at = time.monotonic()
        return found

    async def aclose(self) -> None:
        """End the audit that runs."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])


def audit_routes(audits: Audits | None) -> APIRouter:
    """Return the route of the audit; without ``audits`` there is no ledger that can be audited."""
    router = APIRouter()

    @router.get(
        "/v1/audit",
        operation_id="get_audit",
        responses=answering(AuditAnswer),
        summary="Ask the ledger's invariants",
    )
    async def audit(request: Request) -> Response:
        if caller_of(request).namespaces is not None:
            raise ApiError("forbidden", "an audit is of all namespaces; this key is limited to some")
        if audits is None:
            raise ApiError("not-found", "there is no ledger here that can be audited")
        return json_answer(audit_answer(await audits.look()))

    return router
