"""What keeps old history from being pruned: since when, and what to do about it."""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

from services.adapters.postgres.connections import Connection

# The oldest row of each journal, where it is older than asked and not the last one, and what may hold it.
_JOURNALS = """
SELECT j.shard, j.batch, j.recorded_at, o.owner AS worker, a.at AS audited_at,
    (a.batches->(j.shard::text)->>1)::bigint AS audited, first.shard AS checkpoint_shard,
    first.batch AS checkpoint, first.recorded_at AS checkpoint_at, last.recorded_at AS checkpoint_last_at
FROM shards s
CROSS JOIN LATERAL (SELECT * FROM journal WHERE shard = s.shard ORDER BY batch LIMIT 1) AS j
LEFT JOIN (SELECT at, batches FROM audits WHERE ok ORDER BY at DESC LIMIT 1) AS a ON true
LEFT JOIN (SELECT * FROM checkpoints ORDER BY recorded_at LIMIT 1) AS first ON true
LEFT JOIN (SELECT * FROM checkpoints ORDER BY recorded_at DESC LIMIT 1) AS last ON true
LEFT JOIN worker_leases o ON o.shard = 0 AND o.expires_at > now()
WHERE j.recorded_at < now() - $1::interval
    AND j.batch < (SELECT max(batch) FROM journal WHERE shard = s.shard)
ORDER BY j.shard
"""
# Of each shard the first decision that is older than asked, and not published or not audited.
_DECISIONS = """
SELECT s.shard, d.seq, d.recorded_at, o.owner AS relay, a.at AS audited_at,
    coalesce(r.decisions_seq, 0) AS published
FROM shards s
LEFT JOIN relay_cursor r USING (shard)
LEFT JOIN relay_leases o ON o.shard = s.shard AND o.expires_at > now()
LEFT JOIN (SELECT at, seqs FROM audits WHERE ok ORDER BY at DESC LIMIT 1) AS a ON true
CROSS JOIN LATERAL (
    SELECT seq, recorded_at FROM decisions
    WHERE shard = s.shard
        AND seq >= least(coalesce(r.decisions_seq, 0) + 1, coalesce((a.seqs->(s.shard::text)->>1)::bigint, 0))
    ORDER BY seq LIMIT 1
) AS d
WHERE d.recorded_at < now() - $1::interval
ORDER BY s.shard
"""


class Held(NamedTuple):
    """What is old enough to go and stays: what it is, what holds it, and the remedy, as sentences."""

    what: str
    by: str
    remedy: str


async def held(
    connection: Connection, journal: datetime.timedelta, history: datetime.timedelta
) -> list[Held]:
    """Return what is held of the journals and, unless ``history`` is 0, of the decisions."""
    found = [_journal(row) for row in await connection.fetch(_JOURNALS, journal)]
    if history:
        found += [_decisions(row) for row in await connection.fetch(_DECISIONS, history)]
    return found


def _journal(row: Any) -> Held:
    what = f"the journal of shard {row['shard']} from batch {row['batch']} on, of {_at(row['recorded_at'])}"
    if row["checkpoint"] is None or row["batch"] >= (row["audited"] or 0):
        return Held(what, _since_audit(row["audited_at"]), _AUDIT)
    which = (
        f"the oldest checkpoint, after batch {row['checkpoint']} of shard {row['checkpoint_shard']}, of "
        f"{_at(row['checkpoint_at'])}; the latest one is of {_at(row['checkpoint_last_at'])}"
    )
    worker = "no worker holds" if row["worker"] is None else f"worker {row['worker']} holds"
    return Held(
        what,
        f"{which}, and {worker} shard 0, whose worker writes them",
        "a checkpoint goes when BERTH_CHECKPOINTS newer ones are there. Give the workers a "
        "BERTH_CHECKPOINT_BATCHES above 0; where that is so, see whether the worker of shard 0 warns "
        "'no checkpoint after batch'. If no replay is wanted, DELETE FROM checkpoints as the tables' owner",
    )


def _decisions(row: Any) -> Held:
    what = f"the decisions of shard {row['shard']} from {row['seq']} on, of {_at(row['recorded_at'])}"
    if row["seq"] <= row["published"]:
        return Held(what, _since_audit(row["audited_at"]), _AUDIT)
    relay = "no relay publishes it" if row["relay"] is None else f"relay {row['relay']} publishes it"
    by = f"the relay's cursor, which is at {row['published']}; {relay}"
    return Held(what, by, "start a relay, or see what its log says under 'not publishing'")


_AUDIT = "let a login that may write the table audits run berth audit or berth prune"


def _since_audit(at: datetime.datetime | None) -> str:
    return (
        "no audit that was remembered" if at is None else f"the last audit that was remembered, of {_at(at)}"
    )


def _at(at: datetime.datetime) -> str:
    return f"{at.astimezone(datetime.UTC):%Y-%m-%d %H:%MZ}"
