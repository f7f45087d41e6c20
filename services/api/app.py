"""The API: one FastAPI application over the ledger and the log."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from domain.model.errors import FieldError, Unavailable
from domain.model.validation import shown
from services.api import failures, pages
from services.api.access_routes import access_routes
from services.api.accesses import AccessLog, code_of
from services.api.actions import action_routes
from services.api.answers import Error, Health, ShardLag
from services.api.audit import audit_routes
from services.api.bill import bill_routes
from services.api.caller import caller_of
from services.api.config import config_routes
from services.api.contract import answering, openapi
from services.api.deps import Deps
from services.api.disconnect import CancelOnDisconnect
from services.api.export import export_routes
from services.api.failures import ApiError, json_answer
from services.api.field import field_routes
from services.api.gangs import gang_routes
from services.api.history_routes import history_routes
from services.api.ingest import ingest_routes
from services.api.key_routes import key_routes
from services.api.live import Live
from services.api.nominations import nomination_routes
from services.api.origin import OriginCheck, check_media_type
from services.api.past import past_routes
from services.api.plan import plan_routes
from services.api.profiles import profile_routes
from services.api.read_after import Waited, wait_until_there
from services.api.replicas import replicas_routes
from services.api.resending import resend_routes
from services.api.routes import decision_routes, node_routes, one_decision_routes, pod_routes, state_routes
from services.api.session_routes import session_routes
from services.api.shadow import shadow_routes
from services.api.stream_routes import stream_routes
from services.api.usage import usage_routes
from services.api.waiting import Folding
from services.api.why import why_routes
from services.api.workers import worker_routes
from services.build import build
from services.metrics import CONTENT_TYPE, ApiMetrics, render_ledger
from services.rate_limit import RateLimit

DESCRIPTION = "Which pods were placed where, why, why not; and the way in for events. Times are UTC."
_READING = {
    "profiles": profile_routes,
    "config": config_routes,
    "usage": usage_routes,
    "bill": bill_routes,
    "callers": session_routes,
}
"""Routes for all callers that may read, by their tag."""
_ERRORS = answering(Error, "default", "What was wrong and what to do")


def create_app(deps: Deps, names: frozenset[str] | None = None) -> FastAPI:
    """Return the application; the caller opens and closes what ``deps`` holds.

    ``names`` are those by which requests may call it (``OriginCheck``).
    """
    app = FastAPI(
        title="berth",
        version=build(),
        description=DESCRIPTION,
        openapi_url=None,  # the contract and its page are served by ``pages``
        docs_url=None,
        redoc_url=None,
    )
    failures.install(app)

    live, folding = Live(deps.store, deps.streams), Folding(deps.store)
    deps.metrics.streams.set_function(live.open_count)
    app.state.live, read = live, _reading(deps, live, folding)
    app.include_router(
        stream_routes(deps, live), tags=["events"], dependencies=[_streaming(deps)], responses=_ERRORS
    )
    app.include_router(
        ingest_routes(deps, folding),
        tags=["events"],
        dependencies=[_allowing(deps, "write")],
        responses=_ERRORS,
    )
    app.include_router(
        resend_routes(deps), tags=["events"], dependencies=[_allowing(deps, "write")], responses=_ERRORS
    )
    for router in (node_routes(deps), field_routes(deps), pod_routes(deps), past_routes(deps)):
        app.include_router(router, tags=["state"], dependencies=[read], responses=_ERRORS)
    app.include_router(decision_routes(deps), tags=["decisions"], dependencies=[read], responses=_ERRORS)
    reading = (
        history_routes,
        one_decision_routes,
        state_routes,
        why_routes,
        plan_routes,
        nomination_routes,
        gang_routes,
        worker_routes,
        shadow_routes,
        action_routes,
        replicas_routes,
    )
    for routes in reading:
        app.include_router(routes(deps), tags=["decisions"], dependencies=[read], responses=_ERRORS)
    for tag, routes in _READING.items():
        app.include_router(routes(deps), tags=[tag], dependencies=[read], responses=_ERRORS)
    app.include_router(
        export_routes(deps), tags=["export"], dependencies=[_allowing(deps, "export")], responses=_ERRORS
    )
    app.include_router(
        key_routes(deps), tags=["keys"], dependencies=[_allowing(deps, "manage")], responses=_ERRORS
    )
    for router in (audit_routes(deps.audits), access_routes(deps)):
        app.include_router(router, tags=["audit"], dependencies=[_allowing(deps, "audit")], responses=_ERRORS)
    app.include_router(_open_routes(deps), tags=["health"])
    app.include_router(_metrics_route(deps), tags=["health"], dependencies=[read], responses=_ERRORS)

    pages.install(app)
    app.add_middleware(CancelOnDisconnect)
    app.add_middleware(OriginCheck, names=names)
    app.add_middleware(Observed, metrics=deps.metrics, accesses=deps.accesses)
    app.add_middleware(RateLimit, is_known=deps.gate.is_known)
    app.openapi = lambda: openapi(app)  # type: ignore[method-assign]
    return app


def _allowing(deps: Deps, action: str) -> Any:
    """Return what lets a request pass whose caller may do this."""

    async def check(request: Request, _key: Any = pages.KEY) -> AsyncIterator[None]:
        request.state.caller = caller = await deps.gate.check(request, action)
        with deps.gate.allowance.request(caller):
            check_media_type(request)
            _check_parameters(request)
            yield

    return Depends(check)


def _reading(deps: Deps, live: Live, folding: Folding) -> Any:
    """Return what lets a question pass, once the ledger has what its ``wait`` names."""

    async def check(request: Request, _key: Any = pages.KEY, wait: Waited = None) -> AsyncIterator[None]:
        request.state.caller = caller = await deps.gate.check(request, "read")
        with deps.gate.allowance.request(caller):
            check_media_type(request)
            _check_parameters(request, "wait")
            if wait is not None:
                await wait_until_there(deps.store, live, folding, wait)
            async with deps.gate.allowance.answering(caller):
                yield

    return Depends(check)


def _streaming(deps: Deps) -> Any:
    """Return what lets a stream begin; it is counted as long as it is open, and not as a request."""

    async def check(request: Request, _key: Any = pages.KEY) -> None:
        request.state.caller = await deps.gate.check(request, "read")
        _check_parameters(request)

    return Depends(check)


def _check_parameters(request: Request, *beside: str) -> None:
    """Refuse what no name holds, and a parameter that the route does not have.

    A misspelt filter would otherwise list everything.
    """
    known = {str(parameter.alias) for parameter in request.scope["route"].dependant.query_params}
    known.update(beside)
    for name in request.query_params:
        if name not in known:
            allowed = ", ".join(sorted(known)) or "there are none here"
            raise FieldError(f"query.{shown(name)[1:-1]}", f"unknown parameter; allowed: {allowed}")
    for name, value in (*request.path_params.items(), *request.query_params.multi_items()):
        if "\0" in value or any("\ud800" <= each <= "\udfff" for each in value):
            raise FieldError(name, f"{shown(value)} holds a NUL or half a character; no name does")


class Observed:
    """Counts and times every request by its route, and notes who made it."""

    def __init__(self, app: ASGIApp, metrics: ApiMetrics, accesses: AccessLog | None) -> None:
        self._app, self._metrics, self._accesses = app, metrics, accesses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, code, is_stream = time.perf_counter(), 500, "", False

        async def observed_send(message: Message) -> None:
            nonlocal status, code, is_stream
            if message["type"] == "http.response.start":
                status = message["status"]
                if status == 200 and (is_stream := scope.get("state", {}).get("is_stream", False)):
                    self._note(scope, status, code, started)
            elif status >= 400 and not code:
                code = code_of(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, observed_send)
        finally:
            path = str(getattr(scope.get("route"), "path", "unknown"))
            seconds = time.perf_counter() - started
            self._metrics.observe(path, scope["method"], status, seconds)
            if not is_stream:
                self._note(scope, status, code, started)

    def _note(self, scope: Scope, status: int, code: str, started: float) -> None:
        """Note a request in the access log: a stream when it begins, as it may last for long."""
        if self._accesses is not None:
            self._accesses.observe(scope, status, code, time.perf_counter() - started)


def _open_routes(deps: Deps) -> APIRouter:
    router = APIRouter()

    @router.get(
        "/healthz",
        operation_id="check_health",
        responses=answering(Health),
        summary="Whether this process lives",
    )
    async def healthz() -> Response:
        return json_answer(Health(status="ok", checks={}))

    @router.get(
        "/readyz",
        operation_id="check_readiness",
        responses=answering(Health) | answering(Health, 503, "Not ready"),
        summary="Whether the deployment can decide: database, migrations, log, and a worker for every shard",
    )
    async def readyz() -> Response:
        checks, lags, alarms = await deps.lookout.look()
        ready = all(state == "ok" for state in checks.values())
        lag = [ShardLag(shard=n, records=x.records, seconds=x.seconds) for n, x in sorted(lags.items())]
        state = "ok" if ready else "not-ready"
        health = Health(status=state, checks=dict(checks), lag=lag, alarms=list(alarms))
        return json_answer(health, 200 if ready else 503)

    return router


def _metrics_route(deps: Deps) -> APIRouter:
    router = APIRouter()

    @router.get("/metrics", operation_id="get_metrics", summary="Prometheus metrics", response_class=Response)
    async def metrics(request: Request) -> Response:
        if caller_of(request).namespaces is not None:
            raise ApiError("forbidden", "metrics count what is in all namespaces; this key does not see all")
        try:
            lags = (await deps.lookout.glance()).lags
            ledger = render_ledger(
                await deps.store.processes.counts(), await deps.store.processes.shards(), lags
            )
        except Unavailable:
            ledger = b""  # the process has metrics of its own even while its database is away
        return Response(deps.metrics.render() + ledger, media_type=CONTENT_TYPE)

    return router
