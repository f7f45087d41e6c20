"""Audits the ledger: asks its invariants, in one snapshot, of what came since the last audit."""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from services.adapters.postgres.connections import BULK, Connection, Limits, fresh
from services.adapters.postgres.invariants import INVARIANTS, unconfirmed
from services.adapters.postgres.rows import json_text
from services.ports.audit import Audit, Broken, Span

ROWS_MAX = 100

# A live system keeps its other cores: one statement takes one of them.
LIMITS = Limits({**BULK.settings, "max_parallel_workers_per_gather": "0"}, BULK.answer_seconds)

ASKED = Limits({**LIMITS.settings, "statement_timeout": "60s"}, answer_seconds=65)
"""For the audits of the API."""

_ENDS = """
SELECT s.shard, s.seq_next, coalesce(p.seq_below, 1) AS first FROM shards s LEFT JOIN pruned p USING (shard)
ORDER BY s.shard
"""
_JOURNALS = """
SELECT s.shard, f.batch AS first, l.batch AS last
FROM shards s
CROSS JOIN LATERAL (SELECT batch FROM journal j WHERE j.shard = s.shard ORDER BY batch LIMIT 1) AS f
CROSS JOIN LATERAL (SELECT batch FROM journal j WHERE j.shard = s.shard ORDER BY batch DESC LIMIT 1) AS l
ORDER BY s.shard
"""
_LAST = "SELECT seqs, batches FROM audits WHERE ok ORDER BY at DESC LIMIT 1"
# Walks back from the end, to the last one before that time.
_LAST_SEQ = "SELECT max(seq) FROM decisions WHERE shard = $1 AND recorded_at < $2"
_LAST_BATCH = "SELECT max(batch) FROM journal WHERE shard = $1 AND recorded_at < $2"
_REMEMBER = """
INSERT INTO audits (at, seconds, ok, seqs, batches, broken)
VALUES ($1, $2, $3, $4::text::json, $5::text::json, $6::text::json)
"""


async def check(dsn: str) -> list[Broken]:
    """Return the broken invariants of the whole ledger, warnings included."""
    return list((await audit(dsn, everything=True, remember=False)).broken)


async def audit(
    dsn: str,
    *,
    since: datetime.datetime | None = None,
    everything: bool = False,
    unconfirmed_seconds: int = 0,
    remember: bool = True,
    report: Callable[[str], None] = lambda _: None,
    limits: Limits = LIMITS,
) -> Audit:
    """Ask all invariants of one snapshot of the ledger.

    Of its history they are asked from where the last audit ended in which all held, or from ``since`` on, or
    of all that is kept (``everything``). ``unconfirmed_seconds``: ask, too, of which pods nothing was heard
    for so long since they were placed; 0: not. ``report`` is told each invariant before it is asked. Where
    ``remember`` is given and the login may write ``audits``, the next audit goes on from here.

    Raises
    ------
    Unavailable
        The server does not answer, or a statement takes longer than ``limits`` say.
    """
    started = time.monotonic()
    broken: list[Broken] = []
    asked = INVARIANTS + ((unconfirmed(unconfirmed_seconds),) if unconfirmed_seconds else ())
    async with fresh(dsn, "berth-audit", limits) as connection:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            at = await connection.fetchval("SELECT now()")
            may_write = await connection.fetchval("SELECT has_table_privilege('audits', 'INSERT')")
            seqs, batches, kept_from = await _window(connection, since, everything=everything)
            relations = _relations(seqs, batches, kept_from)
            for invariant in asked:
                report(invariant.name)
                query = invariant.query
                for name, rows in relations.items():
                    query = query.replace(name, rows)
                found = await connection.fetch(f"SELECT * FROM ({query}) AS broken LIMIT {ROWS_MAX}")
                if found:
                    rows_told = [{key: _plain(value) for key, value in row.items()} for row in found]
                    name, says, _, warning = invariant
                    broken.append(Broken(name=name, says=says, warning=warning, rows=rows_told))
        result = Audit(
            at=at,
            seconds=round(time.monotonic() - started, 3),
            invariants_count=len(asked),
            kept_from=kept_from,
            seqs=seqs,
            batches=batches,
            broken=broken,
            remembered=remember and may_write,
        )
        if result.remembered:
            told = (json_text(result.seqs), json_text(result.batches), json_text(result.broken))
            await connection.execute(_REMEMBER, at, result.seconds, result.ok, *told)
    return result


async def _window(
    connection: Connection, since: datetime.datetime | None, *, everything: bool
) -> tuple[dict[int, Span], dict[int, Span], dict[int, int]]:
    """Return decisions per shard, batches per journal, and the first decision that each shard keeps."""
    ends = await connection.fetch(_ENDS)
    journals = await connection.fetch(_JOURNALS)
    begun: list[dict[int, Span]] = [{}, {}]
    if since is None and not everything and (last := await connection.fetchrow(_LAST)) is not None:
        begun = [msgspec.json.decode(each, type=dict[int, Span]) for each in last]
    seqs, batches = {}, {}
    for shard, end, first in ends:
        lo = begun[0][shard].hi if shard in begun[0] else first
        if since is not None:
            lo = 1 + (await connection.fetchval(_LAST_SEQ, shard, since) or 0)
        seqs[shard] = Span(min(max(lo, first), end), end)
    for shard, first, last_batch in journals:
        lo = 1 + begun[1][shard].hi if shard in begun[1] else first
        if since is not None:
            lo = 1 + (await connection.fetchval(_LAST_BATCH, shard, since) or 0)
        batches[shard] = Span(max(lo, first), last_batch)
    return seqs, batches, {shard: first for shard, _, first in ends}


def _relations(
    seqs: Mapping[int, Span], batches: Mapping[int, Span], firsts: Mapping[int, int]
) -> dict[str, str]:
    """Return what stands for each name in the queries of invariants.

    The numbers stand in the text, so that the planner knows how many rows it will read.
    """

    def rows(table: str, number: str, spans: Mapping[int, Span]) -> str:
        parts = [
            f"SELECT * FROM {table} WHERE shard = {shard} AND {number} BETWEEN {lo} AND {hi}"
            for shard, (lo, hi) in spans.items()
        ]
        return f"({' UNION ALL '.join(parts) or f'SELECT * FROM {table} WHERE false'})"

    def values(names: str, found: list[tuple[int, ...]]) -> str:
        listed = ", ".join(f"({shard}, {', '.join(f'{n}::bigint' for n in more)})" for shard, *more in found)
        none = f"SELECT 0, {', '.join(['0::bigint'] * names.count(','))} WHERE false"
        return f"(SELECT * FROM ({f'VALUES {listed}' if found else none}) AS v ({names}))"

    decided = {shard: Span(lo, hi - 1) for shard, (lo, hi) in seqs.items()}
    chained = {shard: Span(lo - 1, hi) for shard, (lo, hi) in batches.items()}
    return {
        "@decisions": rows("decisions", "seq", decided),
        "@placements": rows("placements", "seq", decided),
        "@cycles": rows("cycles", "seq", decided),
        "@journal": rows("journal", "batch", batches),
        "@chain": rows("journal", "batch", chained),
        "@spans": values("shard, first, lo, hi", [(n, firsts[n], *span) for n, span in seqs.items()]),
        "@batches": values("shard, lo, hi", [(n, *span) for n, span in batches.items()]),
    }


def _plain(value: Any) -> Any:
    """Return a column's value as JSON has it."""
    match value:
        case bytes():
            return value.hex()
        case datetime.datetime():
            return value.isoformat()
        case uuid.UUID():
            return str(value)
        case _:
            return value
