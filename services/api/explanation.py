"""Decisions and their explanations: what was decided for a pod, from what, and the same in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from domain.manifests.codes import ignored_in_words
from services.api.words import (
    Json,
    cursor,
    instant,
    page,
    parse_position,
    plural,
    profile_target,
    quantities,
    reasons_in_words,
    stamp,
    sum_in_units,
)
from services.ports.store import DecisionFilter, Row, Store


def decision_view(row: Row) -> Json:
    payload = orjson.loads(row["payload"])
    pod = payload.get("pod") or {}
    return {
        "id": f"{row['shard']}-{row['seq']}",
        "shard": row["shard"],
        "seq": row["seq"],
        "epoch": row["epoch"],
        "pod": {
            "namespace": row["namespace"],
            "name": row["name"],
            "uid": row["pod_uid"],
            "resource_version": pod.get("resource_version"),
        },
        "outcome": row["outcome"],
        "node": row["node"],
        "node_version": payload.get("node_version"),
        "decided_at": instant(row["decided_at_ms"]),
        "event_at": payload.get("event_at"),
        "recorded_at": stamp(row["recorded_at"]),
        "profile": payload.get("profile") or "",
        "profile_revision": payload.get("profile_revision"),
        "reason": payload.get("reason") or "",
        "reasons": payload.get("reasons") or {},
        "warnings": payload.get("warnings") or [],
        "score": payload.get("score"),
        "signature": row["signature"].hex(),
        "cycle": f"{row['shard']}-{row['cycle_seq']}" if row["cycle_seq"] else None,
    }


async def list_decisions(
    store: Store, which: DecisionFilter, *, limit: int, at: str | None, newest_first: bool
) -> Json:
    """Return a page of decisions in commit order per shard, or the reverse."""
    after = parse_position(at) if at else None
    items = [decision_view(row) for row in await store.decisions(which, limit, after, newest_first)]
    return page(items, limit, cursor(items[-1]["seq"], items[-1]["shard"]) if items else None)


def cycle_view(row: Row) -> Json:
    doc: Json = row["doc"]
    return {
        "id": f"{row['shard']}-{row['seq']}",
        "profile": doc["profile"],
        "profile_revision": doc["profile_revision"],
        "seed": doc["seed"],
        "generation": doc["generation"],
        "nodes": doc["nodes_count"],
        "feasible": doc["feasible_count"],
        "unresolvable": doc["unresolvable_count"],
        "reasons": doc["reasons"],
        "looked_at": instant(doc.get("looked_at_ms")),
        "repeated_at_generation": doc.get("repeated_at") or None,
        "candidates": [
            {"node": each["node"], "score": each["score"], "parts": each["parts"], "inputs": inputs}
            for each, inputs in zip(doc["candidates"], _inputs(doc), strict=True)
        ],
        "extremes": {
            label: {
                "low": found["low"],
                "high": found["high"],
                "nodes": found.get("nodes_count", 0),
                "metrics_sum": found.get("metrics_sum", 0),
            }
            for label, found in (doc.get("basis") or {}).get("extremes", {}).items()
        },
        "pods": doc["pods_count"],
        "bound": doc["bound_count"],
        "duration_us": doc.get("duration_us", 0),
    }


def _inputs(doc: Json) -> list[Json | None]:
    """Return per candidate of a cycle what it was scored from, None where that is not kept."""
    basis: Json = doc.get("basis") or {}
    names = basis.get("resources", [])
    count, width = len(doc["candidates"]), len(names)
    found: list[Json | None] = []
    for i in range(count):
        of_each = slice(i * width, (i + 1) * width)
        allocatable = basis.get("allocatable", [])[of_each]
        requested = basis.get("requested", [])[of_each]
        if not allocatable:
            found.append(None)
            continue
        at_ms = _at(basis, "usage_at_ms", i)
        found.append(
            {
                "node_version": _at(basis, "node_versions", i),
                "resource_version": _at(basis, "resource_versions", i),
                "sums": {
                    name: {"allocatable": sum_in_units(name, offers), "requested": sum_in_units(name, holds)}
                    for name, offers, holds in zip(names, allocatable, requested, strict=True)
                },
                "usage": {
                    "at": instant(at_ms) if at_ms else None,
                    "resources": {
                        resource: {key: figures[key] for key in ("avg", "std", "latest")}
                        | {"peak_yesterday": figures["peak"]}
                        for resource, figures in basis["usage"][i].items()
                    },
                }
                if basis.get("usage")
                else None,
            }
        )
    return found


def _at(basis: Json, field: str, i: int) -> Any:
    values = basis.get(field)
    return values[i] if values else None


async def explain(store: Store, shard: int, seq: int) -> Json | None:
    """Return a decision with the cycle that explains it and a summary in words."""
    row = await store.decision(shard, seq)
    if row is None:
        return None
    found = await store.cycle(shard, row["cycle_seq"]) if row["cycle_seq"] else None
    decision, cycle = decision_view(row), cycle_view(found) if found else None
    template = await store.template(row["signature"])
    spec: Json = template["spec"] if template else {}
    revision = decision["profile_revision"]
    requests = quantities(spec.get("requests", {}))
    return {
        "decision": decision,
        "requests": requests,
        "template": {field: value for field, value in spec.items() if value},
        "cycle": cycle,
        "profile": profile_target(decision["profile"], revision) if revision else None,
        "summary": summary(decision, requests, cycle),
    }


def summary(decision: Json, requests: Mapping[str, str], cycle: Json | None) -> str:
    """Say in a few sentences what was decided for a pod and why."""
    pod, outcome = decision["pod"], decision["outcome"]
    name = f"{pod['namespace']}/{pod['name']}"
    asks = ", ".join(f"{amount} {resource}" for resource, amount in requests.items()) or "nothing"
    node = decision["node"]
    said = {
        "bound": f"{name} was placed on {node}; it asks for {asks}.",
        "adopted": f"{name} was already bound to {node} when its event arrived; berth counts it there.",
        "unschedulable": f"{name} waits: no node fits now; it asks for {asks}.",
        "unresolvable": f"{name} waits: no node would fit even if all other pods left; it asks for {asks}.",
        "released": f"{name} is gone{f' from {node}' if node else ''}; what it held is free.",
        "nominated": f"{name} waits for its victims to leave {node}.",
        "evicted": f"{name} was evicted{f' from {node}' if node else ''}.",
        "migrated": f"{name} moves to {node}.",
    }
    sentences = [said.get(outcome, f"{name}: {outcome}.")]
    waits = outcome in ("unschedulable", "unresolvable")
    if decision["reasons"]:
        sentences.append(f"Of all nodes, {reasons_in_words(decision['reasons'])}.")
    elif decision["reason"] and (waits or outcome not in ("bound", "adopted")):
        sentences.append(f"Reason: {decision['reason']}.")
    if cycle is not None and cycle["repeated_at_generation"]:
        sentences.append(
            f"Nothing was looked at anew for it: its group was parked at generation {cycle['generation']}"
            f" (log time {cycle['looked_at']}), and what changed until generation"
            f" {cycle['repeated_at_generation']} made no room for it."
        )
    if decision["warnings"]:
        things = "; ".join(map(ignored_in_words, decision["warnings"]))
        sentences.append(f"Not looked at: {things}.")
    if cycle is not None:
        sentences += _wait_in_words(cycle) if waits else _choice_in_words(decision, cycle)
    return " ".join(sentences)


def _choice_in_words(decision: Json, cycle: Json) -> list[str]:
    said = [f"{cycle['feasible']:,} of {plural(cycle['nodes'], 'node')} could take a pod of its group."]
    if cycle["reasons"]:
        said.append(f"Of the others, {reasons_in_words(cycle['reasons'])}.")
    chosen = next((each for each in cycle["candidates"] if each["node"] == decision["node"]), None)
    if chosen is not None:
        parts = ", ".join(f"{name} {value:.6g}" for name, value in chosen["parts"].items())
        said.append(f"{chosen['node']} scored {chosen['score']:.6g}{f' ({parts})' if parts else ''}.")
    elif decision["score"] is not None:
        said.append(f"{decision['node']} scored {decision['score']:.6g}, the best when its turn came.")
    said.append(f"Profile {cycle['profile']}, revision {cycle['profile_revision']}, says what is best.")
    if cycle["pods"] > 1:
        said.append(f"The cycle placed {cycle['bound']:,} of {plural(cycle['pods'], 'equal pod')}.")
    return said


def _wait_in_words(cycle: Json) -> list[str]:
    if not cycle["feasible"]:
        return []
    return [
        f"When its cycle began, {plural(cycle['feasible'], 'node')} had room; "
        f"{plural(cycle['bound'], 'equal pod')} got there first."
    ]
