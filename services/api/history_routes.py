"""The histories of pods, nodes, shards and profiles: `/v1/history/…`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from services.api import history
from services.api.answers_past import HistoryPage
from services.api.contract import answering
from services.api.deps import Deps
from services.api.history import Asked
from services.api.routes import (
    NAME_MAX,
    TIME_MAX,
    Cursor,
    Limit,
    NodeNamed,
    PodName,
    PodNamespace,
    found_answer,
    seen_store,
)
from services.times import as_of

Order = Annotated[str, Query(description="oldest or newest first", pattern="^(oldest|newest)$")]
Until = Annotated[
    str | None,
    Query(
        description="Only what happened until then (log time): 1h is an hour ago; 03:17, a day, RFC 3339; "
        "0:1234 is right after batch 1234 of shard 0. Without it, `why_now` is told, too",
        max_length=TIME_MAX,
    ),
]


async def asked_part(deps: Deps, limit: int, cursor: str | None, order: str, until: str | None) -> Asked:
    """Return which part of a history a request asks for."""
    until_ms = None
    if until is not None:
        asked = as_of("until", until)
        until_ms = asked if isinstance(asked, int) else (await deps.store.past.moment(asked)).log_time_ms
    return Asked.of(limit, cursor, newest_first=order == "newest", until_ms=until_ms)


def history_routes(deps: Deps) -> APIRouter:
    """Return the routes of histories."""
    router = APIRouter()
    _add_those_of_pods_and_nodes(router, deps)
    _add_those_of_shards_and_profiles(router, deps)
    return router


def _add_those_of_pods_and_nodes(router: APIRouter, deps: Deps) -> None:
    answers = answering(HistoryPage)

    @router.get(
        "/v1/history/pods/{namespace}/{name}",
        operation_id="list_pod_history",
        responses=answers,
        summary="Tell what happened to a pod, and what made room for it",
    )
    async def pod(
        request: Request,
        namespace: PodNamespace,
        name: PodName,
        limit: Limit = 100,
        cursor: Cursor = None,
        order: Order = "oldest",
        until: Until = None,
    ) -> Response:
        asked = await asked_part(deps, limit, cursor, order, until)
        page = await history.of_pod(seen_store(deps, request), namespace, name, asked)
        return found_answer(page, f"pod {namespace}/{name}")

    @router.get(
        "/v1/history/nodes/{name}",
        operation_id="list_node_history",
        responses=answers,
        summary="Tell what happened to a node and on it",
    )
    async def node(
        request: Request,
        name: NodeNamed,
        limit: Limit = 100,
        cursor: Cursor = None,
        order: Order = "oldest",
        until: Until = None,
    ) -> Response:
        asked = await asked_part(deps, limit, cursor, order, until)
        page = await history.of_node(seen_store(deps, request), name, asked)
        return found_answer(page, f"node {name}")


def _add_those_of_shards_and_profiles(router: APIRouter, deps: Deps) -> None:
    answers = answering(HistoryPage)

    @router.get(
        "/v1/history/shards/{shard}",
        operation_id="list_shard_history",
        responses=answers,
        summary="Tell which workers owned a shard, and what its log had lost",
    )
    async def shard(
        request: Request,
        shard: Annotated[int, Path(ge=0, le=1 << 20, description="Number of the shard")],
        limit: Limit = 100,
        cursor: Cursor = None,
        order: Order = "oldest",
        until: Until = None,
    ) -> Response:
        asked = await asked_part(deps, limit, cursor, order, until)
        return found_answer(await history.of_shard(seen_store(deps, request), shard, asked), f"shard {shard}")

    @router.get(
        "/v1/history/profiles/{name}",
        operation_id="list_profile_history",
        responses=answers,
        summary="Tell how a profile changed",
    )
    async def profile(
        request: Request,
        name: Annotated[str, Path(description="Name of the profile", max_length=NAME_MAX)],
        limit: Limit = 100,
        cursor: Cursor = None,
        order: Order = "oldest",
        until: Until = None,
    ) -> Response:
        asked = await asked_part(deps, limit, cursor, order, until)
        page = await history.of_profile(seen_store(deps, request), name, asked)
        return found_answer(page, f"profile {name}")
