"""The past: the store as of a moment, totals of the cluster, and what differs between two moments."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from msgspec import Struct

from domain.model.nodes import NodeSpec
from services.api.answers_decisions import QUANTITIES, about
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import json_answer
from services.api.formats import instant, quantities
from services.api.routes import AsOf, Namespace, as_of_store, asked_moment, seen_store
from services.ports.past import CHANGES_MAX, BatchId, Moment, NodeChange, OutOfReach, PodChange
from services.ports.past import Totals as TotalsRow
from services.ports.store import PodFilter, Store
from services.times import as_of

_WHEN = "1h is an hour ago; 03:17, a day, RFC 3339; 0:1234 is right after batch 1234 of shard 0"
_TIME_MAX = 64
_NODES_GONE_MAX = 100
"""Nodes that went whose pods are told: each is a question to the store."""


class Totals(Struct, kw_only=True):
    """Sums over the cluster."""

    at: Annotated[str | None, about("Log time of the moment that was asked for; null: now, or before all")]
    nodes: Annotated[int, about("Nodes that there are")]
    allocatable: Annotated[dict[str, str], about(f"What they offer together: {QUANTITIES}")]
    requested: Annotated[dict[str, str], about("What their pods ask for together, in the same units")]
    bound: Annotated[int, about("Pods that were placed, of those that the key sees")]
    orphaned: Annotated[int, about("Of `bound`, those that lost their node: it was deleted")]
    pending: Annotated[int, about("Pods that wait, of those that the key sees")]
    groups: Annotated[int, about("Groups of equal pods that wait, likewise")]


class Looked(Struct, kw_only=True):
    """What a moment means: where it is, and what there is a record of by then."""

    at: Annotated[str, about("The time that was asked for; of a batch, its log time")]
    log_time: Annotated[str | None, about("Log time of the last record by then; null: before all")]
    begins: Annotated[str | None, about("Before all: log time of the first record; null: there is none")]


class ChangedNode(Struct, kw_only=True):
    """A node that came, went or changed what it says of itself."""

    name: Annotated[str, about("Name of the node")]
    change: Annotated[str, about("came, went or changed")]
    fields: Annotated[
        dict[str, Any], about("Of a changed one, each field that differs: what it was `before` and `after`")
    ]


class ChangedPod(Struct, kw_only=True):
    """A pod that is elsewhere, waits, or is gone."""

    namespace: Annotated[str, about("Namespace of the pod")]
    name: Annotated[str, about("Name of the pod")]
    uid: Annotated[str, about("Unique id of the pod")]
    change: Annotated[
        str,
        about(
            "placed; moved to another node; evicted: berth had it leave; returned: it waits again; gone: it "
            "was deleted or ended; waiting: it came and waits; orphaned: its node was deleted"
        ),
    ]
    before: Annotated[str | None, about("Node that it counted on before; null: none")]
    after: Annotated[str | None, about("Node that it counts on after; null: none")]


class Diff(Struct, kw_only=True):
    """What differs between two moments; what came and went between them is not told."""

    begin: Annotated[str | None, about("Log time of the first moment; null: before all")] = msgspec.field(
        name="from"
    )
    until: Annotated[str | None, about("Log time of the second moment; null: before all")]
    nodes: Annotated[list[ChangedNode], about("Nodes, by name")]
    pods: Annotated[list[ChangedPod], about("Pods, by uid; those of the namespaces that the key sees")]
    before: Annotated[Totals, about("Sums at the first moment")]
    after: Annotated[Totals, about("Sums at the second moment")]
    more: Annotated[bool, about(f"Whether there are more than the {CHANGES_MAX:,} that are told")]


From = Annotated[str, Query(alias="from", description=f"The first moment: {_WHEN}", max_length=_TIME_MAX)]
Until = Annotated[str, Query(description=f"The second moment: {_WHEN}; now", max_length=_TIME_MAX)]


def totals_of(row: TotalsRow, at: str | None) -> Totals:
    """Return sums as the API shows them."""
    shown = {name: amount for name, amount in row.requested.items() if name in row.allocatable}
    return Totals(
        at=at,
        nodes=row.nodes_count,
        allocatable=quantities(row.allocatable),
        requested=quantities(shown),
        bound=row.bound_count,
        orphaned=row.orphaned_count,
        pending=row.pending_count,
        groups=row.groups_count,
    )


def _at(moment: Moment) -> str | None:
    return instant(moment.log_time_ms) if moment.position else None


async def show_totals(store: Store, moment: Moment | None) -> Totals:
    """Return the sums over the cluster."""
    seen = None if store.seen is None else sorted(store.seen)
    return totals_of(await store.past.totals(moment, seen), None if moment is None else _at(moment))


async def show_moment(store: Store, moment: Moment) -> Looked:
    """Return what a moment means."""
    at_ms = moment.log_time_ms if moment.asked_ms is None else moment.asked_ms
    begins = await _begins(store) if moment.position == 0 else None
    return Looked(at=instant(at_ms), log_time=_at(moment), begins=begins)


async def _begins(store: Store) -> str | None:
    """Return the log time of the first record that the ledger ever took; None: it took none."""
    firsts = []
    for each in await store.processes.shards():
        with contextlib.suppress(OutOfReach):  # it has no batch yet
            firsts.append(await store.past.moment(BatchId(each.shard, 1)))
    return _at(min(firsts, key=lambda each: each.position)) if firsts else None


async def show_diff(store: Store, before: Moment, after: Moment, namespace: str | None) -> Diff:
    """Return what differs between two moments."""
    seen = store.seen if namespace is None else [namespace]
    changes = await store.past.changes(before, after, None if seen is None else sorted(seen))
    pods = list(map(_pod, changes.pods))
    gone = [row.name for row in changes.nodes if row.after is None]
    lost, is_all = await _orphaned(
        store.as_of(after), gone[:_NODES_GONE_MAX], namespace, {pod.uid for pod in pods}
    )
    return Diff(
        begin=_at(before),
        until=_at(after),
        nodes=list(map(_node, changes.nodes)),
        pods=sorted([*pods, *lost], key=lambda pod: pod.uid)[:CHANGES_MAX],
        before=await show_totals(store, before),
        after=await show_totals(store, after),
        more=changes.more or not is_all or len(pods) + len(lost) > CHANGES_MAX or len(gone) > _NODES_GONE_MAX,
    )


async def _orphaned(
    store: Store, gone: Sequence[str], namespace: str | None, told: Collection[str]
) -> tuple[list[ChangedPod], bool]:
    """Return the pods that lost their node, but for those of which another change is told; and if all."""
    found: list[ChangedPod] = []
    is_all = True
    for node in gone:
        rows = await store.pods(PodFilter(namespace=namespace, node=node), CHANGES_MAX, None)
        found += [
            ChangedPod(
                namespace=row.namespace,
                name=row.name,
                uid=row.pod_uid,
                change="orphaned",
                before=node,
                after=None,
            )
            for row in rows
            if row.pod_uid not in told
        ]
        is_all = is_all and not rows.more
        if len(found) + len(told) > CHANGES_MAX:
            break
    return found, is_all


def _node(row: NodeChange) -> ChangedNode:
    if row.before is None or row.after is None:
        return ChangedNode(name=row.name, change="went" if row.after is None else "came", fields={})
    return ChangedNode(name=row.name, change="changed", fields=_fields(row.before, row.after))


def _fields(before: NodeSpec, after: NodeSpec) -> dict[str, Any]:
    """Return what differs of two specs, in the names and units of a node's answer."""
    pairs = {
        name: (_shown(name, getattr(before, name)), _shown(name, getattr(after, name)))
        for name in NodeSpec.__struct_fields__
        if name not in ("name", "resource_version")
    }
    return {name: {"before": a, "after": b} for name, (a, b) in pairs.items() if a != b}


def _shown(name: str, value: Any) -> Any:
    return quantities(value) if name == "allocatable" else msgspec.to_builtins(value)


def _pod(row: PodChange) -> ChangedPod:
    return ChangedPod(
        namespace=row.namespace,
        name=row.name,
        uid=row.pod_uid,
        change=_change(row),
        before=row.node_before,
        after=row.node_after,
    )


def _change(row: PodChange) -> str:
    if row.node_after is not None:
        return "placed" if row.node_before is None else "moved"
    if row.node_before is None:
        return "waiting" if row.waits_after else "gone"
    if row.evicted:
        return "evicted"
    return "returned" if row.waits_after else "gone"


def past_routes(deps: Deps) -> APIRouter:
    """Return the routes of totals and differences."""
    router = APIRouter()

    @router.get(
        "/v1/totals", operation_id="get_totals", responses=answering(Totals), summary="Sum over the cluster"
    )
    async def totals(request: Request, at: AsOf = None) -> Response:
        store = await as_of_store(deps, request, at)
        return json_answer(await show_totals(store, store.moment))

    @router.get(
        "/v1/moment",
        operation_id="get_moment",
        responses=answering(Looked),
        summary="Say what a moment means",
    )
    async def moment(
        request: Request,
        at: Annotated[str, Query(description=f"The moment: {_WHEN}", max_length=_TIME_MAX)] = "now",
    ) -> Response:
        store = seen_store(deps, request)
        return json_answer(await show_moment(store, await asked_moment(store, "at", at)))

    @router.get(
        "/v1/diff",
        operation_id="diff_moments",
        responses=answering(Diff),
        summary="Say what differs between two moments",
    )
    async def diff(
        request: Request, begin: From, until: Until = "now", namespace: Namespace = None
    ) -> Response:
        store = seen_store(deps, request, namespace)
        asked: Sequence[Any] = as_of("from", begin), as_of("until", until)
        before, after = [await store.past.moment(each) for each in asked]
        if after.position < before.position:
            before, after = after, before
        return json_answer(await show_diff(store, before, after, namespace))

    return router
