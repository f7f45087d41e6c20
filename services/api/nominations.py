"""Which pods are nominated, which pods leave their node, and until when: `/v1/nominations`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from msgspec import Struct

from services.api.answers import Page
from services.api.answers_decisions import INSTANT, about
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import json_answer
from services.api.formats import cursor, instant, parse_uid
from services.api.routes import Cursor, Limit, seen_store
from services.ports.store import NominatedPod, Store


class Nomination(Struct, kw_only=True):
    """A pod that waits for a node of its own: one that is nominated for it until others have left."""

    namespace: Annotated[str, about("Namespace of the pod")]
    name: Annotated[str, about("Name of the pod")]
    uid: Annotated[str, about("Unique id of the pod")]
    priority: Annotated[int, about("Its priority")]
    node: Annotated[str, about("The node for which it is nominated")]
    victims: Annotated[
        list[str],
        about("Pods that still have to leave it, as namespace/name, of the namespaces that the key sees"),
    ]
    since: Annotated[str, about(f"Since when ({INSTANT}, log time)")]
    expires: Annotated[str, about(f"When the nomination ends if no pod leaves ({INSTANT}, log time)")]
    shard: Annotated[int, about("Shard that decides for the pod")]


class NominationPage(Page[Nomination]):
    """Pods that are nominated, by uid."""


async def list_nominations(store: Store, *, limit: int, at: str | None) -> NominationPage:
    """Return a page of the nominations that are open."""
    rows = await store.nominations(limit, parse_uid(at) if at else None)
    last = rows[-1] if rows.more else None
    following = None if last is None else cursor(last.pod_uid, last.shard)
    return NominationPage(items=list(map(_nomination, rows)), next=following)


def _nomination(row: NominatedPod) -> Nomination:
    return Nomination(
        namespace=row.namespace,
        name=row.name,
        uid=row.pod_uid,
        priority=row.template.priority if row.template else 0,
        node=row.node,
        victims=list(row.victims),
        since=instant(row.at_ms),
        expires=instant(row.expires_ms),
        shard=row.shard,
    )


def nomination_routes(deps: Deps) -> APIRouter:
    """Return the route of nominations."""
    router = APIRouter()

    @router.get(
        "/v1/nominations",
        operation_id="list_nominations",
        responses=answering(NominationPage),
        summary="List pods that are nominated",
    )
    async def nominations(request: Request, limit: Limit = 100, cursor: Cursor = None) -> Response:
        return json_answer(await list_nominations(seen_store(deps, request), limit=limit, at=cursor))

    return router
