"""Answers of the API as JSON-ready values: rows of the ledger in, the documented shapes out."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

import msgspec
import orjson

from domain.model.usage import SeriesRecord, UsageRecord
from domain.state.usage import window_of
from services.api.explanation import decision_view
from services.api.words import (
    Json,
    cursor,
    instant,
    page,
    parse_cursor,
    parse_position,
    quantities,
    stamp,
    vector,
)
from services.ports.store import DecisionFilter, PodFilter, Row, Store

HISTORY_MAX = 100


# ------------------------------------------------------------------------------------------ nodes and pods


def _node(row: Row, names: Mapping[int, str]) -> Json:
    spec: Json = row["spec"] or {}
    allocatable = vector(row["allocatable"], names)
    requested = vector(row["requested"], names)
    free = {name: max(0, amount - requested.get(name, 0)) for name, amount in allocatable.items()}
    return {
        "name": row["name"],
        "version": row["version"],
        "deleted": row["deleted"],
        "unschedulable": bool(spec.get("unschedulable", False)),
        "labels": spec.get("labels", {}),
        "taints": [
            {
                "key": taint["key"],
                "value": taint.get("value", ""),
                "effect": taint.get("effect", "NoSchedule"),
            }
            for taint in spec.get("taints", [])
        ],
        "allocatable": quantities(allocatable),
        "requested": quantities(requested),
        "free": quantities(free),
        "spec_changed_at": instant(row["at_ms"]),
    }


async def list_nodes(store: Store, *, limit: int, at: str | None, name: str | None) -> Json:
    """Return a page of nodes."""
    after = parse_cursor(at)[0] if at else None
    names = await store.resources()
    rows = await store.nodes(limit, after, name)
    items = [_node(row, names) for row in rows]
    return page(items, limit, cursor(items[-1]["name"]) if items else None)


async def show_node(store: Store, name: str) -> Json | None:
    """Return one node with the pods on it."""
    row = await store.node(name)
    if row is None:
        return None
    pods = await store.pods(PodFilter(node=name, phase="bound"), HISTORY_MAX * 100, None)
    usage = await store.usage(name)
    return _node(row, await store.resources()) | {
        "usage": None if usage is None else _usage(usage),
        "pods": [_pod(pod) for pod in pods],
    }


def _usage(row: Row) -> Json:
    series = msgspec.convert(row["series"], dict[str, SeriesRecord], str_keys=True)
    window = window_of(UsageRecord(node=row["node"], at_ms=row["at_ms"], series=series))
    return {
        "at": instant(window.at_ms),
        "resources": {
            resource: {
                "avg": figures.avg,
                "std": figures.std,
                "latest": figures.latest,
                "peak_yesterday": figures.peak,
                "samples": len(window.series[resource].at_ms),
            }
            for resource, figures in sorted(window.measured().items())
        },
    }


def _pod(row: Row) -> Json:
    template: Json = row["template"] or {}
    bound = row["node"] is not None
    return {
        "namespace": row["namespace"],
        "name": row["name"],
        "uid": row["pod_uid"],
        "resource_version": row["resource_version"],
        "phase": "bound" if bound else "pending",
        "node": row["node"],
        "adopted": row["adopted"],
        "since": instant(row["since_ms"]),
        "requests": quantities(template.get("requests", {})),
        "labels": orjson.loads(row["labels"]) if row["labels"] else {},
        "signature": row["signature"].hex(),
        "shard": row["shard"],
        "decision": f"{row['shard']}-{row['seq']}" if row["seq"] is not None else None,
    }


async def list_pods(store: Store, which: PodFilter, *, limit: int, at: str | None) -> Json:
    """Return a page of live pods."""
    after = parse_cursor(at)[0] if at else None
    items = [_pod(row) for row in await store.pods(which, limit, after)]
    return page(items, limit, cursor(items[-1]["uid"]) if items else None)


async def show_pod(store: Store, namespace: str, name: str) -> Json | None:
    """Return one pod, live or gone, with its decisions and placements, latest first."""
    live = await store.pod(namespace, name)
    which = DecisionFilter(namespace=namespace, name=name)
    decisions = await store.decisions(which, HISTORY_MAX, None, True)
    if live is None and not decisions:
        return None
    placements = await store.pod_placements(namespace, name, HISTORY_MAX)
    waiting = live is not None and live["node"] is None
    groups = await store.pending(live["shard"], live["signature"]) if live and waiting else []
    return {
        **(_pod(live) if live is not None else await _gone(store, decisions[0])),
        "group": _group(groups[0]) if groups else None,
        "decisions": [decision_view(row) for row in decisions],
        "placements": [
            {
                "node": row["node"],
                "uid": row["pod_uid"],
                "adopted": row["adopted"],
                "from": instant(row["bound_at_ms"]),
                "to": instant(row["released_at_ms"]),
                "decision": f"{row['shard']}-{row['seq']}",
            }
            for row in placements
        ],
    }


async def _gone(store: Store, last: Row) -> Json:
    """Return what is still known of a pod that neither waits nor counts on a node."""
    template = await store.template(last["signature"])
    row: Json = {
        **last,
        "template": template["spec"] if template else None,
        "labels": None,
        "adopted": False,
        "node": None,
        "since_ms": last["decided_at_ms"],
        "resource_version": None,
    }
    return _pod(row) | {"phase": "released"}


# ------------------------------------------------------------------------------ pending, shards, dead letters


async def list_pending(store: Store, shard: int | None) -> Json:
    """Return the groups of pending pods with why they wait, largest first."""
    return {"items": [_group(row) for row in await store.pending(shard)], "next": None}


def _group(row: Row) -> Json:
    template: Json = row["template"] or {}
    return {
        "signature": row["signature"].hex(),
        "shard": row["shard"],
        "count": row["count"],
        "reasons": row["reasons"] or {},
        "unresolvable": bool(row["unresolvable"]),
        "since": instant(row["since_ms"]),
        "tried_at": instant(row["at_ms"]),
        "cycle": f"{row['shard']}-{row['cycle_seq']}" if row["cycle_seq"] else None,
        "requests": quantities(template.get("requests", {})),
        "profile": template.get("profile", ""),
        "priority": template.get("priority", 0),
        "examples": list(row["examples"]),
    }


async def list_shards(store: Store) -> Json:
    """Return the shards with their owners and how far they and the relay have come."""
    offsets: dict[int, list[Json]] = {}
    for row in await store.offsets():
        if row["topic"].startswith("~"):  # the worker's own counter, no topic of the log
            continue
        position = {key: row[key] for key in ("topic", "partition", "next_offset")}
        offsets.setdefault(row["shard"], []).append(position)
    items = [
        {
            "shard": row["shard"],
            "owner": row["owner"],
            "epoch": row["epoch"],
            "lease_until": stamp(row["lease_until"]),
            "decisions": row["seq_next"] - 1,
            "published": row["decisions_seq"] or 0,
            "deadletters": row["dead_seq_next"] - 1,
            "relay": row["relay_owner"],
            "log_time": instant(row["log_time_ms"]) if row["log_time_ms"] else None,
            "offsets": offsets.get(row["shard"], []),
        }
        for row in await store.shards()
    ]
    return {"items": items, "next": None}


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


async def list_deadletters(store: Store, *, limit: int, at: str | None) -> Json:
    """Return a page of records that could not be accepted, latest first."""
    rows: Sequence[Row] = await store.deadletters(limit, parse_position(at) if at else None)
    items = [
        {
            "id": f"{row['shard']}-{row['seq']}",
            "topic": row["topic"],
            "partition": row["partition"],
            "offset": row["log_offset"],
            "key": _text(row["key"]) if row["key"] is not None else None,
            "code": row["code"],
            "path": row["path"],
            "message": row["message"],
            "at": instant(row["at_ms"]),
            "raw_base64": base64.b64encode(row["raw"]).decode(),
            "raw_text": _text(row["raw"]),
        }
        for row in rows
    ]
    last = rows[-1] if rows else None
    return page(items, limit, cursor(last["seq"], last["shard"]) if last else None)
