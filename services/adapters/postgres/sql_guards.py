"""The statements about what spans nodes, and the table that they read."""

from __future__ import annotations

_LOCK = 7_230_118_402  # an advisory lock of its own, held until the end of the transaction

LOCK_SHARED = f"SELECT pg_advisory_xact_lock_shared({_LOCK})"
LOCK_ALONE = f"SELECT pg_advisory_xact_lock({_LOCK})"

_CLAIMS = "SELECT key, version, batches::text FROM claims WHERE key = ANY($1::text[])"
READ = _CLAIMS

# A key that another batch is about to raise is left out: to wait for it would only be in vain.
LOCK_RAISED = f"{_CLAIMS} ORDER BY key FOR UPDATE SKIP LOCKED"

BRING = """
INSERT INTO claims (key, version, batches) SELECT w.key, 0, '{}' FROM unnest($1::text[]) AS w (key)
ORDER BY w.key
ON CONFLICT (key) DO NOTHING
"""

RAISE = "UPDATE claims SET version = version + 1 WHERE key = ANY($1::text[])"

# Batches that are in the ledger by now could not know of a key that comes.
ANNOUNCE = """
INSERT INTO claims (key, version, batches)
SELECT w.key, 1, (
    SELECT coalesce(jsonb_object_agg(o.shard, o.next_offset), '{}')
    FROM shard_offsets o WHERE o.topic = '~batches'
)
FROM unnest($1::text[]) AS w (key)
ORDER BY w.key
ON CONFLICT (key) DO UPDATE SET version = claims.version + 1
"""

DROP = "DELETE FROM claims WHERE key = ANY($1::text[])"

LOAD = "SELECT key, version FROM claims"
