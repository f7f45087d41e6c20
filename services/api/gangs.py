"""Which gangs there are, how many of their pods have a node, and what the others wait for: `/v1/gangs`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from msgspec import Struct, convert
from msgspec.structs import asdict

from domain.model.config import CONTENTS, PodGroup, gang_object, gang_spec
from services.api.answers import Page, Pod
from services.api.answers_decisions import INSTANT, QUANTITIES, about
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import json_answer
from services.api.formats import cursor, instant, parse_gang, quantities
from services.api.routes import NAME_MAX, AsOf, Cursor, Limit, Namespace, as_of_store, found_answer
from services.api.views import PODS_SHOWN_MAX, list_pods
from services.phrases import nothing_says, reasons_in_words, too_few_exist
from services.ports.store import GangState, PodFilter, Store

GangNamespace = Annotated[str, Path(description="Namespace of the gang", max_length=NAME_MAX)]
_NAMED = "Name of the PodGroup, or `WORKLOAD:GROUP`, or `WORKLOAD:GROUP:REPLICA`"
GangName = Annotated[str, Path(description=_NAMED, max_length=2 * NAME_MAX)]


class Gang(Struct, kw_only=True):
    """The pods of a PodGroup, or of a Workload's group, which are placed together or not at all."""

    namespace: Annotated[str, about("Namespace of the gang")]
    name: Annotated[str, about(_NAMED)]
    min_member: Annotated[int | None, about("So many of its pods must have a node; null: nothing says so")]
    members: Annotated[int, about("Pods that name it and have a node or wait for one")]
    placed: Annotated[int, about("How many of them have a node")]
    waiting: Annotated[int, about("How many of them wait")]
    why: Annotated[str | None, about("What those that wait lack, in words; null: none waits")]
    reasons: Annotated[
        dict[str, int], about("Nodes per reason code at the last attempt, of the first pod without a node")
    ]
    since: Annotated[
        str | None, about(f"Since when the oldest of those waits ({INSTANT}, log time); null: none waits")
    ]


class GangDetail(Gang, kw_only=True):
    """A gang with its pods, and the rest of its PodGroup."""

    found: Annotated[
        int | None, about("How many would have had a node at the last attempt that is kept; null: none is")
    ]
    missing: Annotated[
        str | None, about("The first pod that found none then, as namespace/name; null: none was tried")
    ]
    domain: Annotated[
        str | None, about("The domain in which most would have had one; null: they need not be in one")
    ]
    min_resources: Annotated[dict[str, str], about(f"What must be free for it in all: {QUANTITIES}")]
    schedule_timeout_seconds: Annotated[
        int | None, about("After so long without success it is tried less often; null: it does not say")
    ]
    topology_key: Annotated[str | None, about("Node label of which all have one value; null: any node")]
    topology_mode: Annotated[str | None, about("`required`, or `preferred`: else anywhere; null: no key")]
    pods: Annotated[list[Pod], about("Its pods, by uid")]
    pods_next: Annotated[str | None, about("There are more: `cursor` for /v1/pods with this gang; null: no")]


class GangPage(Page[Gang]):
    """Gangs that have a PodGroup, or pods that wait for one, by namespace and name."""


def _spec(row: GangState) -> PodGroup | None:
    if row.object is None:
        return None
    kind, _ = gang_object(row.name)
    return gang_spec(convert(row.object, CONTENTS[kind]), row.name)


def _gang(row: GangState) -> Gang:
    spec = _spec(row)
    return Gang(
        namespace=row.namespace,
        name=row.name,
        min_member=None if spec is None else spec.min_member,
        members=row.placed_count + row.waiting_count,
        placed=row.placed_count,
        waiting=row.waiting_count,
        why=_why(row, spec) if row.waiting_count else None,
        reasons=row.reasons or {},
        since=None if row.since_ms is None else instant(row.since_ms),
    )


def _why(row: GangState, spec: PodGroup | None) -> str:
    """Return what a gang lacks: pods, or what its first pod without a node lacks."""
    there = row.placed_count + row.waiting_count
    if spec is None:
        return nothing_says(row.name)
    if there < spec.min_member:
        return too_few_exist(there, spec.min_member)
    if row.reasons is None:
        return "not tried yet: waits its turn"
    if "gang-incomplete" in row.reasons:
        return f"{there} pods exist; some of them wait for something of their own, or are of other shards"
    return reasons_in_words(row.reasons)


async def list_gangs(store: Store, namespace: str | None, *, limit: int, at: str | None) -> GangPage:
    """Return a page of gangs."""
    rows = await store.gangs(namespace, None, limit, parse_gang(at) if at else None)
    following = cursor(rows[-1].namespace, rows[-1].name) if rows.more else None
    return GangPage(items=list(map(_gang, rows)), next=following)


async def show_gang(store: Store, namespace: str, name: str) -> GangDetail | None:
    """Return one gang with its pods; one without a PodGroup is known while any of its pods lives."""
    which = PodFilter(namespace=namespace, gang=name)
    pods = await list_pods(store, which, limit=PODS_SHOWN_MAX, at=None)
    rows = list(await store.gangs(namespace, name, 1, None))
    if not rows and pods.items:
        rows = [GangState(namespace, name, None, len(pods.items), 0, *[None] * 5)]
    if not rows:
        return None
    spec = _spec(rows[0]) or PodGroup()
    shard, seq = rows[0].shard, rows[0].cycle_seq
    attempt = await store.attempt(shard, seq) if shard is not None and seq else None
    seen = attempt.gang if attempt is not None and attempt.gang else None
    mode = "preferred" if spec.is_preferred else "required"
    return GangDetail(
        **asdict(_gang(rows[0])),
        found=None if seen is None else seen.found_count,
        missing=None if seen is None else seen.missing or None,
        domain=None if seen is None else seen.domain or None,
        min_resources=quantities(spec.min_resources),
        schedule_timeout_seconds=spec.schedule_timeout_seconds,
        topology_key=spec.topology_key or None,
        topology_mode=mode if spec.topology_key else None,
        pods=pods.items,
        pods_next=pods.next,
    )


def gang_routes(deps: Deps) -> APIRouter:
    """Return the routes of gangs."""
    router = APIRouter()

    @router.get(
        "/v1/gangs",
        operation_id="list_gangs",
        responses=answering(GangPage),
        summary="List gangs, and what they wait for",
    )
    async def gangs(
        request: Request,
        limit: Limit = 100,
        cursor: Cursor = None,
        namespace: Namespace = None,
        at: AsOf = None,
    ) -> Response:
        store = await as_of_store(deps, request, at, namespace)
        return json_answer(await list_gangs(store, namespace, limit=limit, at=cursor))

    @router.get(
        "/v1/gangs/{namespace}/{name}",
        operation_id="get_gang",
        responses=answering(GangDetail),
        summary="Show a gang and its pods",
    )
    async def gang(request: Request, namespace: GangNamespace, name: GangName, at: AsOf = None) -> Response:
        found = await show_gang(await as_of_store(deps, request, at), namespace, name)
        return found_answer(found, f"gang {namespace}/{name}")

    return router
