"""The statements that change nodes: facts, which are never refused, and claims, which may lose.

Both add to what is there. Each returns one row: the ids of the nodes that it changed, null where that is all
that were asked for; and of the nodes that were not as the writer saw them, their ids, and how far
ahead they were. A join of what was asked for with what was changed would cost more than all the rest.

Columns are sent as texts (``rows.array_text``): of each element of an array asyncpg asks at length whether
that is an array, too.
"""

from __future__ import annotations

from functools import cache

# A row that others changed since the statement began is read anew once it is locked, and judged as it is.
_CHANGE = """
WITH locked AS (
    SELECT n.id, n.version AS found, w.seen, w.changes{taken},
        ARRAY[{sums}]::bigint[] || n.requested[{after}:] AS requested
    FROM unnest({types}) AS w ({names}) JOIN nodes n USING (id)
    {where}
    ORDER BY n.id
    FOR UPDATE OF n{skip}
), written AS (
    UPDATE nodes n SET version = l.found + l.changes, requested = l.requested{spec}
    FROM locked l WHERE n.id = l.id
)
SELECT CASE WHEN count(*) < cardinality($1::text::bigint[])
        THEN coalesce(array_agg(id), '{{}}') END AS changed,
    array_agg(id) FILTER (WHERE found <> seen) AS moved,
    array_agg(found - seen) FILTER (WHERE found <> seen) AS ahead
FROM locked
"""

_SPEC = """,
        allocatable = coalesce(l.allocatable::bigint[], n.allocatable),
        deleted = CASE WHEN l.allocatable IS NULL THEN n.deleted ELSE l.deleted END,
        spec_version = CASE WHEN l.allocatable IS NULL THEN n.spec_version ELSE l.found + l.changes END,
        spec_count = CASE WHEN l.allocatable IS NULL THEN n.spec_count ELSE l.spec_count END"""

# What a claim adds nothing to may be short: nothing of it was asked for.
_ROOM = "(w.r{i} = 0 OR coalesce(n.requested[{at}], 0) + w.r{i} <= coalesce(n.allocatable[{at}], 0))"

_CLAIMS = {
    "id": "bigint", "seen": "bigint", "changes": "bigint", "spec_seen": "bigint", "by_version": "bool",
    "by_room": "bool",
}  # fmt: skip
_FACTS = {
    "id": "bigint", "seen": "bigint", "changes": "bigint", "allocatable": "text", "deleted": "bool",
    "spec_count": "bigint",
}  # fmt: skip


@cache
def take_facts(resources: int) -> str:
    """Return the statement for facts with so many resources: ``_FACTS``, then a column per resource."""
    taken = ", w.allocatable, w.deleted, w.spec_count"
    return _statement(_FACTS, resources, taken=taken, where="", skip="", spec=_SPEC)


@cache
def grant_claims(resources: int) -> str:
    """Return the statement for claims with so many resources: ``_CLAIMS``, then a column per resource."""
    room = " AND ".join(["w.by_room", *(_ROOM.format(i=i, at=i + 1) for i in range(resources))])
    where = f"""WHERE n.spec_count = w.spec_seen AND NOT n.deleted
        AND ((w.by_version AND n.version = w.seen) OR ({room}))"""
    return _statement(_CLAIMS, resources, taken="", where=where, skip=" SKIP LOCKED", spec="")


def _statement(columns: dict[str, str], resources: int, **parts: str) -> str:
    types = {**columns, **{f"r{i}": "bigint" for i in range(resources)}}
    return _CHANGE.format(
        types=", ".join(f"${at}::text::{kind}[]" for at, kind in enumerate(types.values(), 1)),
        names=", ".join(types),
        sums=", ".join(f"coalesce(n.requested[{i + 1}], 0) + w.r{i}" for i in range(resources)),
        after=resources + 1,
        **parts,
    )
