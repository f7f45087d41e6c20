"""How many replicas of hosted workloads there should be: `/v1/replicas`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from domain.model.hosting import ReplicasSaid
from services.api.answers import HostedWorkload, Replicas, ReplicasPage
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import json_answer
from services.api.formats import cursor as cursor_of
from services.api.formats import instant, parse_gang
from services.api.routes import NAME_MAX, Cursor, Limit, Namespace, found_answer, seen_store

HostedNamespace = Annotated[str, Path(description="Namespace of the object", max_length=NAME_MAX)]
HostedName = Annotated[str, Path(description="Name of the object", max_length=NAME_MAX)]


def _shown(said: ReplicasSaid) -> Replicas:
    return Replicas(
        namespace=said.namespace,
        name=said.name,
        workload=HostedWorkload(kind=said.kind, name=said.workload),
        min=said.least,
        max=said.most,
        wanted=said.wanted,
        running=said.running,
        waiting_since=None if said.waiting_since_ms is None else instant(said.waiting_since_ms),
        load_percent=said.load_percent,
        reason=said.reason,
        at=instant(said.at_ms),
        seq=said.seq,
    )


def replicas_routes(deps: Deps) -> APIRouter:
    """Return the routes of hosted replicas."""
    router = APIRouter()

    @router.get(
        "/v1/replicas",
        operation_id="list_replicas",
        responses=answering(ReplicasPage),
        summary="List how many replicas of hosted workloads there should be",
    )
    async def replicas(
        request: Request, limit: Limit = 100, cursor: Cursor = None, namespace: Namespace = None
    ) -> Response:
        store, after = seen_store(deps, request, namespace), parse_gang(cursor) if cursor else None
        rows = await store.processes.replicas(namespace, None, store.seen, limit, after)
        following = cursor_of(rows[-1].namespace, rows[-1].name) if rows.more else None
        return json_answer(ReplicasPage(items=list(map(_shown, rows)), next=following))

    @router.get(
        "/v1/replicas/{namespace}/{name}",
        operation_id="get_replicas",
        responses=answering(Replicas),
        summary="Show how many replicas of a hosted workload there should be",
    )
    async def one(request: Request, namespace: HostedNamespace, name: HostedName) -> Response:
        store = seen_store(deps, request)
        rows = await store.processes.replicas(namespace, name, store.seen, 1, None)
        return found_answer(_shown(rows[0]) if rows else None, f"replicas {namespace}/{name}")

    return router
