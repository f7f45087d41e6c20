"""The part of a commit that changes nodes: facts first, then claims, each in the order of the nodes' ids."""

from __future__ import annotations

from collections.abc import Sequence, Set

from domain.model.errors import LedgerMismatch
from services.adapters.batches import mark_of
from services.adapters.postgres import rows, sql, sql_nodes
from services.adapters.postgres.connections import Connection
from services.ports.ledger import CommitBatch, NodeClaim, NodeFact


async def change_nodes(
    connection: Connection, batch: CommitBatch, ids: rows.ResourceIds, refused: Set[int] = frozenset()
) -> tuple[set[int], dict[int, int]]:
    """Write facts and claims; return the ids of the nodes that lost, and how far others were ahead.

    Claims on nodes in ``refused`` are lost whatever the node is like.

    Raises
    ------
    LedgerMismatch
        A fact is about a node that is not there.
    asyncpg.UniqueViolationError
        A node that is new by its id or its name is there already.
    """
    cluster, at_ms = batch.cluster, batch.offsets.log_time_ms
    facts = sorted(cluster.facts, key=lambda fact: fact.id)
    claims = sorted((c for c in cluster.claims if c.id not in refused), key=lambda claim: claim.id)
    moved = await _take(connection, [fact for fact in facts if fact.version_seen], ids)
    new = [rows.node_columns(fact, ids) for fact in facts if not fact.version_seen]
    if new:
        await connection.copy_records_to_table("nodes", records=new, columns=sql.NODE_COLUMNS)
    history = [
        rows.node_spec_columns(fact, moved.get(fact.id, 0), at_ms, mark_of(batch))
        for fact in facts
        if fact.spec is not None
    ]
    if history:
        await connection.copy_records_to_table("node_specs", records=history, columns=sql.NODE_SPEC_COLUMNS)
    lost_nodes, ahead = await _grant(connection, claims, ids)
    return lost_nodes | refused, moved | ahead


async def undo_claims(
    connection: Connection, granted: Sequence[NodeClaim], ids: rows.ResourceIds, nodes: Set[int]
) -> None:
    """Undo claims on some nodes that this transaction was granted."""
    claims = sorted((claim for claim in granted if claim.id in nodes), key=lambda claim: claim.id)
    added = ids.columns([{name: -value for name, value in claim.delta.items()} for claim in claims])
    none = rows.texts_array(["NULL"] * len(claims))
    columns = [
        rows.array_text([claim.id for claim in claims]),
        rows.array_text([claim.version_seen for claim in claims]),
        rows.array_text([-claim.changes for claim in claims]),
        none,
        rows.array_text([False] * len(claims)),
        none,
    ]
    await connection.fetchrow(sql_nodes.take_facts(len(added)), *columns, *map(rows.array_text, added))


async def _take(connection: Connection, facts: Sequence[NodeFact], ids: rows.ResourceIds) -> dict[int, int]:
    if not facts:
        return {}
    added = ids.columns([fact.delta for fact in facts])
    asked = [fact.id for fact in facts]
    offers = ["NULL" if fact.spec is None else f'"{ids.text(fact.spec.allocatable)}"' for fact in facts]
    columns = [
        rows.array_text(asked),
        rows.array_text([fact.version_seen for fact in facts]),
        rows.array_text([fact.changes for fact in facts]),
        rows.texts_array(offers),
        rows.array_text([fact.deleted for fact in facts]),
        rows.array_text([fact.spec_count for fact in facts]),
    ]
    row = await connection.fetchrow(sql_nodes.take_facts(len(added)), *columns, *map(rows.array_text, added))
    missing, moved = _judged(asked, *row)
    if missing:
        raise LedgerMismatch(f"nodes to change are not there: {sorted(missing)}")
    return moved


async def _grant(
    connection: Connection, claims: Sequence[NodeClaim], ids: rows.ResourceIds
) -> tuple[set[int], dict[int, int]]:
    if not claims:
        return set(), {}
    added = ids.columns([claim.delta for claim in claims])
    columns: list[list[int]] = [
        [claim.id for claim in claims],
        [claim.version_seen for claim in claims],
        [claim.changes for claim in claims],
        [claim.spec_count_seen for claim in claims],
        [not claim.is_doubtful for claim in claims],
        [claim.resource_only for claim in claims],
        *added,
    ]
    row = await connection.fetchrow(sql_nodes.grant_claims(len(added)), *map(rows.array_text, columns))
    return _judged(columns[0], *row)


def _judged(
    asked: list[int], changed: list[int] | None, moved: list[int] | None, ahead: list[int] | None
) -> tuple[set[int], dict[int, int]]:
    """Return which nodes were left alone, and by how much the versions of the others were ahead."""
    left = set() if changed is None else set(asked) - set(changed)
    return left, dict(zip(moved or (), ahead or (), strict=True))
