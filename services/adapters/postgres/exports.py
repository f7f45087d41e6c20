"""Exports on Postgres: one cursor over one snapshot, on a connection of its own.

``COLUMNS`` says for each column of ``SCHEMAS`` how SQL reads it. The views of the schema ``audit`` are the
same statements; a test compares them with what the migrations made.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from domain.model.config import NAMESPACE, SEEN_BY_ALL
from domain.model.resources import CPU, MEMORY, PODS
from services.adapters.postgres.engine import Engine
from services.ports.exports import SCHEMAS, Column, ExportFilter, ExportRow, Kind, Schema, What

# jsonb takes no NUL. OFFSET 0 keeps the planner from reading a record once for each of its columns.
_RECORD = r"SELECT replace(convert_from(d.payload, 'UTF8'), '\u0000', '\ufffd')::jsonb AS record OFFSET 0"
_CONFIG = """
    SELECT kind, namespace, name, 0::bigint AS revision, object, resource_version, at_ms, recorded_at, sent_by
    FROM config_objects
    UNION ALL
    SELECT 'Profile', '', name, revision, spec, resource_version, at_ms, recorded_at, sent_by FROM profiles
"""
SOURCES: Mapping[What, str] = {
    What.DECISIONS: f"decisions d CROSS JOIN LATERAL ({_RECORD}) x",
    What.ATTEMPTS: "group_attempts a",
    What.PLACEMENTS: "placements p LEFT JOIN templates t ON t.signature = p.signature",
    What.NODES: "nodes n LEFT JOIN node_specs s ON s.node_id = n.id AND s.version = n.spec_version",
    What.CONFIG: f"({_CONFIG}) c",
}
"""What each export reads. The first letter of an export, or ``n``, is the name of its main table."""
_MAIN: Mapping[What, str] = {what: what[0] for what in What}
_ORDER: Mapping[What, str] = {
    What.DECISIONS: "d.shard, d.seq",
    What.ATTEMPTS: "a.shard, a.signature, a.number",
    What.PLACEMENTS: "p.shard, p.seq",
    What.NODES: 'n.name COLLATE "C"',
    What.CONFIG: 'c.kind COLLATE "C", c.namespace COLLATE "C", c.name COLLATE "C", c.revision',
}


def _milliseconds(moment: str) -> str:
    return f"floor(extract(epoch FROM {moment}) * 1000)::bigint"


def _integer(text: str) -> str:
    return f"({text})::numeric::bigint"


def _text(*path: str) -> str:
    """Return how SQL reads a text, or a number as text, of the record of a decision."""
    return f"x.record #>> '{{{','.join(path)}}}'"


def _json(*path: str) -> str:
    return f"x.record #> '{{{','.join(path)}}}'"


def _moment(*path: str) -> str:
    return _milliseconds(f"({_text(*path)})::timestamptz")


def _row_id(table: str, seq: str) -> str:
    return f"{table}.shard || '-' || {table}.{seq}"


def _cycle(table: str) -> str:
    return f"CASE WHEN {table}.cycle_seq > 0 THEN {_row_id(table, 'cycle_seq')} END"


def _asked(text: str) -> str:
    return f"coalesce({_integer(text)}, 0)"


def _amount(vector: str, resource: str) -> str:
    return f"coalesce(n.{vector}[(SELECT r.id FROM resources r WHERE r.name = '{resource}')], 0)"


def _amounts(vector: str) -> str:
    amounts = f"unnest(n.{vector}) WITH ORDINALITY AS v (amount, id)"
    return (
        f"coalesce((SELECT json_object_agg(r.name, v.amount ORDER BY r.id) FROM {amounts} "
        "JOIN resources r ON r.id = v.id WHERE v.amount <> 0), '{}'::json)"
    )


COLUMNS: Mapping[What, Mapping[str, str]] = {
    What.DECISIONS: {
        "id": _row_id("d", "seq"),
        "resource_version": _integer(_text("pod", "resource_version")),
        "node_version": _integer(_text("node_version")),
        "decided_at": "d.decided_at_ms",
        "event_at": _moment("event_at"),
        "recorded_at": _milliseconds("d.recorded_at"),
        "sent_by": _text("sent_by"),
        "profile": _text("profile"),
        "reason": _text("reason"),
        "reasons": _json("reasons"),
        "warnings": _json("warnings"),
        "score": f"({_text('score')})::double precision",
        "devices": _json("devices"),
        "cpu_milli": _asked(_text("template", "requests", CPU)),
        "memory_bytes": _asked(_text("template", "requests", MEMORY)),
        "requests": _json("template", "requests"),
        "labels": _json("labels"),
        "signature": "encode(d.signature, 'hex')",
        "cycle": _cycle("d"),
        "victims": _json("preemption", "victims"),
        "violations": _integer(_text("preemption", "violations")),
        "expires_at": _moment("preemption", "expires_at"),
        "preemptor": _text("preemption", "preemptor"),
        "preemptor_priority": _integer(_text("preemption", "priority")),
        "nominated": _text("preemption", "nominated"),
        "moved_to": _text("migration", "to"),
        "moved_why": _json("migration", "why"),
        "relief_cpu_milli": _integer(_text("migration", "relief", "cpu")),
        "relief_memory_bytes": _integer(_text("migration", "relief", "memory")),
    },
    What.ATTEMPTS: {
        "signature": "encode(a.signature, 'hex')",
        "at": "a.at_ms",
        "last_at": "a.last_at_ms",
        "profile_revision": "nullif(a.profile_revision, 0)",
        "nodes": "a.nodes_count",
        "cycle": _cycle("a"),
    },
    What.PLACEMENTS: {
        "id": _row_id("p", "seq"),
        "bound_at": "p.bound_at_ms",
        "released_at": "p.released_at_ms",
        "recorded_at": _milliseconds("p.recorded_at"),
        "released_recorded_at": _milliseconds("p.released_recorded_at"),
        "cpu_milli": _asked(f"t.spec #>> '{{requests,{CPU}}}'"),
        "memory_bytes": _asked(f"t.spec #>> '{{requests,{MEMORY}}}'"),
        "requests": "coalesce(t.spec -> 'requests', '{}'::json)",
        "labels": "coalesce(p.labels, '{}')::json",
        "signature": "encode(p.signature, 'hex')",
    },
    What.NODES: {
        "resource_version": _integer("s.spec ->> 'resource_version'"),
        "unschedulable": "coalesce((s.spec ->> 'unschedulable')::boolean, false)",
        "ready": "(s.spec ->> 'ready')::boolean",
        "node_labels": "coalesce(s.spec -> 'labels', '{}'::jsonb)",
        "taints": "coalesce(s.spec -> 'taints', '[]'::jsonb)",
        "allocatable_cpu_milli": _amount("allocatable", CPU),
        "allocatable_memory_bytes": _amount("allocatable", MEMORY),
        "allocatable": _amounts("allocatable"),
        "requested_cpu_milli": _amount("requested", CPU),
        "requested_memory_bytes": _amount("requested", MEMORY),
        "requested_pods": _amount("requested", PODS),
        "requested": _amounts("requested"),
        "spec_changed_at": "s.at_ms",
        "spec_sent_by": "s.sent_by",
    },
    What.CONFIG: {
        "deleted": "c.object IS NULL",
        "changed_at": "c.at_ms",
        "recorded_at": _milliseconds("c.recorded_at"),
    },
}
"""How SQL reads the columns that are not a column of that name in the main table; a time is milliseconds."""


def _expression(what: What, column: Column) -> str:
    return COLUMNS[what].get(column.name, f"{_MAIN[what]}.{column.name}")


def _shown(what: What, column: Column) -> str:
    """Return what the view has of a column."""
    read = _expression(what, column)
    if column.kind is Kind.TIME:
        read = f"to_timestamp({read} / 1000.0)"
    elif column.kind is Kind.JSON:
        read = f"({read})::json"
    return read if read.endswith(f".{column.name}") else f"{read} AS {column.name}"


def view_statement(what: What) -> str:
    """Return the statement of a view: the columns of its schema, times as ``timestamptz``."""
    columns = ",\n    ".join(_shown(what, each) for each in SCHEMAS[what].columns)
    return f"SELECT\n    {columns}\nFROM {SOURCES[what]}"


def _read(what: What, column: Column) -> str:
    read = _expression(what, column)
    return f"({read})::text" if column.kind is Kind.JSON else read


_OF_NAMESPACES = """
SELECT shard, signature, min(at_ms) AS at_ms FROM (
    SELECT shard, signature, decided_at_ms AS at_ms FROM decisions WHERE namespace = ANY ($1::text[])
    UNION ALL SELECT shard, signature, since_ms FROM pending WHERE namespace = ANY ($1::text[])
) AS pods GROUP BY shard, signature
"""


def export_statement(schema: Schema, which: ExportFilter) -> tuple[str, list[Any]]:
    """Return the statement that reads the rows of an export, and its arguments."""
    what, main = schema.what, _MAIN[schema.what]
    reads = {each.name: _read(what, each) for each in schema.columns}
    source, where, arguments = SOURCES[what], list[str](), list[Any]()

    def argument(value: Any) -> str:
        arguments.append(value)
        return f"${len(arguments)}"

    if which.namespaces is not None and schema.by_namespace:
        seen = f"{argument(sorted(which.namespaces))}::text[]"
        if what is What.ATTEMPTS:
            source += f" JOIN ({_OF_NAMESPACES}) o ON o.shard = a.shard AND o.signature = a.signature"
            where.append("a.last_at_ms >= o.at_ms")
            reads["at"] = "greatest(a.at_ms, o.at_ms)"
        elif what is What.CONFIG:
            shared = f"c.kind = 'Profile' OR c.kind = ANY ({argument(sorted(SEEN_BY_ALL))}::text[])"
            own = f"c.namespace = ANY ({seen}) OR (c.kind = '{NAMESPACE}' AND c.name = ANY ({seen}))"
            where.append(f"({own} OR ({argument(which.with_shared)}::boolean AND ({shared})))")
        else:
            where.append(f"{main}.namespace = ANY ({seen})")
    time = COLUMNS[what][schema.time]
    if which.since_ms is not None:
        at = argument(which.since_ms)
        ended = "coalesce(p.released_at_ms, 9223372036854775807)" if what is What.PLACEMENTS else time
        where.append(f"{ended} >= {at}::bigint")
    if which.until_ms is not None:
        where.append(f"{time} < {argument(which.until_ms)}::bigint")
    condition = f" WHERE {' AND '.join(where)}" if where else ""
    columns = ", ".join(f"{read} AS {name}" for name, read in reads.items())
    return f"SELECT {columns} FROM {source}{condition} ORDER BY {_ORDER[what]}", arguments


class PostgresExports:
    """The ``Exports`` port on Postgres."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def rows(self, schema: Schema, which: ExportFilter) -> AsyncGenerator[Sequence[ExportRow], None]:
        """See ``Exports.rows``."""
        statement, arguments = export_statement(schema, which)
        stream = self._engine.stream(statement, arguments, schema.rows_at_once)
        async with contextlib.aclosing(stream) as reading:
            async for rows in reading:
                yield rows
