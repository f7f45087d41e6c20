"""Exports of a ``MemoryDatabase``. Its tables do not say when a row became durable, but for decisions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from domain.model.config import NAMESPACE, SEEN_BY_ALL
from domain.model.decisions import Decision
from domain.model.resources import CPU, MEMORY, PODS
from domain.model.timestamps import Moment, to_ms
from services.adapters.memory.database import MemoryDatabase
from services.ports.exports import ExportFilter, ExportRow, Schema, What

_NEVER_MS = 1 << 63
PROFILE = "Profile"
Row = dict[str, Any]
"""The values of a row by the names of its columns; what is missing is None."""


class MemoryExports:
    """The ``Exports`` port over a ``MemoryDatabase``."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def rows(self, schema: Schema, which: ExportFilter) -> AsyncGenerator[Sequence[ExportRow], None]:
        """See ``Exports.rows``."""
        found = list(_TABLES[schema.what](self._database, which))
        rows = [[row.get(name) for name in schema.names] for row in found if _is_asked(schema, row, which)]
        at = [schema.names.index(name) for name in schema.order]
        rows.sort(key=lambda row: [row[each] for each in at])
        for first in range(0, len(rows), schema.rows_at_once):
            yield rows[first : first + schema.rows_at_once]


def _is_asked(schema: Schema, row: Row, which: ExportFilter) -> bool:
    """Return whether a row is in the time, and of a namespace, that is asked for."""
    begins_ms = row[schema.time]
    ends_ms = begins_ms
    if schema.what is What.PLACEMENTS:
        ends_ms = _NEVER_MS if row["released_at"] is None else row["released_at"]
    if which.since_ms is not None and ends_ms < which.since_ms:
        return False
    if which.until_ms is not None and begins_ms >= which.until_ms:
        return False
    if which.namespaces is None or not schema.by_namespace:
        return True
    if schema.what is What.CONFIG:
        is_own = row["kind"] == NAMESPACE and row["name"] in which.namespaces
        is_shared = row["kind"] == PROFILE or row["kind"] in SEEN_BY_ALL
        return is_own or row["namespace"] in which.namespaces or (which.with_shared and is_shared)
    return schema.what is What.ATTEMPTS or row["namespace"] in which.namespaces


def _id(shard: int, seq: int) -> str:
    return f"{shard}-{seq}"


def _text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _moment(text: str | None) -> int | None:
    return None if text is None else to_ms(msgspec.convert(text, Moment))


def _requests(requests: Mapping[str, int]) -> Row:
    amounts = {"cpu_milli": requests.get(CPU, 0), "memory_bytes": requests.get(MEMORY, 0)}
    return {**amounts, "requests": _text(requests)}


def _amounts(prefix: str, amounts: Mapping[str, int]) -> Row:
    return {
        f"{prefix}_cpu_milli": amounts.get(CPU, 0),
        f"{prefix}_memory_bytes": amounts.get(MEMORY, 0),
        f"{prefix}_pods": amounts.get(PODS, 0),
        prefix: _text({name: amount for name, amount in amounts.items() if amount}),
    }


def _decisions(database: MemoryDatabase, _: ExportFilter) -> Iterator[Row]:
    for shard, made in database.decisions.items():
        for (decision, payload), recorded_ms in zip(made, database.recorded_ms[shard], strict=True):
            yield _decision(decision, msgspec.json.decode(payload), recorded_ms)


def _decision(decision: Decision, record: Mapping[str, Any], recorded_ms: int) -> Row:
    version = record["pod"]["resource_version"]
    preemption, migration = record.get("preemption", {}), record.get("migration", {})
    relief = migration.get("relief", {})
    plain = (
        "epoch",
        "seq",
        "shard",
        "outcome",
        "node",
        "node_version",
        "sent_by",
        "profile",
        "reason",
        "score",
    )
    return {
        **{name: record[name] for name in plain},
        **{name: _text(record.get(name)) for name in ("reasons", "warnings", "devices", "labels")},
        **_requests(record["template"]["requests"]),
        "id": record["id"],
        "namespace": record["pod"]["namespace"],
        "name": record["pod"]["name"],
        "pod_uid": record["pod"]["uid"],
        "resource_version": None if version is None else int(version),
        "decided_at": decision.decided_at_ms,
        "event_at": _moment(record["event_at"]),
        "recorded_at": recorded_ms,
        "profile_revision": decision.profile_revision,
        "signature": decision.signature.hex(),
        "cycle": _id(decision.shard, decision.cycle_seq) if decision.cycle_seq else None,
        "victims": _text(preemption.get("victims")),
        "violations": preemption.get("violations"),
        "expires_at": _moment(preemption.get("expires_at")),
        "preemptor": preemption.get("preemptor"),
        "preemptor_priority": preemption.get("priority"),
        "nominated": preemption.get("nominated"),
        "moved_to": migration.get("to"),
        "moved_why": _text(migration.get("why")),
        "relief_cpu_milli": relief.get("cpu"),
        "relief_memory_bytes": relief.get("memory"),
    }


def _groups(database: MemoryDatabase, which: ExportFilter) -> Mapping[tuple[int, bytes], int] | None:
    """Return the groups of the pods of some namespaces, and since when there are such pods; None: all."""
    if which.namespaces is None:
        return None
    decided = (
        (each.namespace, each.shard, each.signature, each.decided_at_ms)
        for made in database.decisions.values()
        for each, _ in made
    )
    waiting = ((pod.namespace, pod.shard, pod.signature, pod.since_ms) for pod in database.pending.values())
    since = dict[tuple[int, bytes], int]()
    for namespace, shard, signature, at_ms in (*decided, *waiting):
        if namespace in which.namespaces:
            since[shard, signature] = min(at_ms, since.get((shard, signature), at_ms))
    return since


def _attempts(database: MemoryDatabase, which: ExportFilter) -> Iterator[Row]:
    groups = _groups(database, which)
    for (shard, signature), kept in database.group_attempts.items():
        since_ms = 0 if groups is None else groups.get((shard, signature), _NEVER_MS)
        for each in kept:
            if each.last_at_ms >= since_ms:
                yield {
                    **{name: getattr(each, name) for name in ("shard", "number", "times", "profile")},
                    "signature": signature.hex(),
                    "at": max(each.at_ms, since_ms),
                    "last_at": each.last_at_ms,
                    "profile_revision": each.profile_revision or None,
                    "nodes": each.nodes_count,
                    "reasons": _text(each.reasons),
                    "unresolvable": each.unresolvable,
                    "cycle": _id(shard, each.cycle_seq) if each.cycle_seq else None,
                }


def _placements(database: MemoryDatabase, _: ExportFilter) -> Iterator[Row]:
    plain = ("shard", "seq", "namespace", "name", "pod_uid", "resource_version", "node", "adopted", "gang")
    for row in database.placements:
        pod, template = row.opened, database.templates.get(row.opened.signature)
        yield {
            **{name: getattr(pod, name) for name in plain},
            **_requests({} if template is None else template.requests),
            "id": _id(pod.shard, pod.seq),
            "bound_at": pod.at_ms,
            "released_at": row.released_at_ms,
            "orphaned": row.orphaned,
            "labels": _text(pod.labels),
            "signature": pod.signature.hex(),
        }


def _nodes(database: MemoryDatabase, _: ExportFilter) -> Iterator[Row]:
    for row in database.nodes.values():
        spec, (changed_ms, sent_by) = row.spec, database.spec_changes[row.id]
        assert spec is not None, "a node begins with a spec, and keeps its last one"
        yield {
            **{name: getattr(row, name) for name in ("name", "id", "version", "deleted")},
            **_amounts("allocatable", spec.allocatable),
            **_amounts("requested", row.requested),
            "resource_version": spec.resource_version,
            "unschedulable": spec.unschedulable,
            "ready": spec.ready,
            "node_labels": _text(spec.labels),
            "taints": _text(spec.taints),
            "spec_changed_at": changed_ms,
            "spec_sent_by": sent_by,
        }


def _config(database: MemoryDatabase, _: ExportFilter) -> Iterator[Row]:
    for thing in database.config_objects.values():
        about = {"kind": thing.kind, "namespace": thing.namespace, "revision": 0}
        yield about | _changed(thing.name, thing.object, thing.resource_version, thing.at_ms, thing.sent_by)
    for each in database.profiles.values():
        about = {"kind": PROFILE, "namespace": "", "revision": each.revision}
        yield about | _changed(each.name, each.spec, each.resource_version, each.at_ms, each.sent_by)


def _changed(name: str, said: Any, version: int | None, at_ms: int, sent_by: str | None) -> Row:
    return {
        "name": name,
        "resource_version": version,
        "deleted": said is None,
        "changed_at": at_ms,
        "sent_by": sent_by,
        "object": _text(said),
    }


_TABLES: Mapping[What, Callable[[MemoryDatabase, ExportFilter], Iterator[Row]]] = {
    What.DECISIONS: _decisions,
    What.ATTEMPTS: _attempts,
    What.PLACEMENTS: _placements,
    What.NODES: _nodes,
    What.CONFIG: _config,
}
