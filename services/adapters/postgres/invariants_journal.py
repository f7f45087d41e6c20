"""The invariants of the journal: name, what it says, and the query for the rows that break it."""

from __future__ import annotations

JOURNAL = (
    (
        "journal-without-hole",
        "every batch since the first has its row in the journal",
        """
        SELECT shard, batch, following FROM (
            SELECT shard, batch, lead(batch) OVER (PARTITION BY shard ORDER BY batch) AS following
            FROM journal
        ) AS j WHERE following <> batch + 1
        UNION ALL
        SELECT j.shard, max(j.batch), o.next_offset
        FROM journal j JOIN shard_offsets o ON o.shard = j.shard AND o.topic = '~batches'
        GROUP BY j.shard, o.next_offset HAVING max(j.batch) <> o.next_offset
        """,
    ),
    # A start gives the offsets anew: they are those of the batch before, but where the log was read again.
    (
        "journal-ranges-chain",
        "a batch takes the records of a partition where the one before ended",
        """
        SELECT * FROM (
            SELECT j.shard, j.batch, at.lane->>1 AS topic, (at.lane->>2)::int AS partition, at.is_start,
                (at.lane->>3)::bigint AS lo,
                lag((at.lane->>(CASE WHEN at.is_start THEN 3 ELSE 4 END))::bigint) OVER (
                    PARTITION BY j.shard, at.lane->>0, at.lane->>1, at.lane->>2
                    ORDER BY j.batch, NOT at.is_start
                ) AS before
            FROM journal j CROSS JOIN LATERAL (
                SELECT lane, false AS is_start FROM json_array_elements(j.lanes) AS lane
                UNION ALL
                SELECT lane, true FROM json_array_elements(j.start->'offsets') AS lane
            ) AS at
        ) AS taken WHERE NOT is_start AND before <> lo
        """,
    ),
    (
        "decisions-have-a-batch",
        "since the journal is kept, every decision is of one batch, in order",
        """
        SELECT * FROM (
            SELECT s.key::int AS shard, (s.value->>1)::bigint AS after,
                lead((s.value->>0)::bigint) OVER (
                    PARTITION BY s.key ORDER BY (s.value->>0)::bigint
                ) AS following, t.seq_next
            FROM journal j CROSS JOIN LATERAL json_each(j.seqs) AS s JOIN shards t ON t.shard = s.key::int
        ) AS spans WHERE after <> coalesce(following, seq_next)
        """,
    ),
    (
        "decisions-are-the-journals",
        "the decisions of a batch are those of which the journal holds the hash",
        """
        SELECT j.shard, j.batch, j.seqs FROM journal j CROSS JOIN LATERAL (
            SELECT sha256(coalesce(string_agg(d.payload, ''::bytea ORDER BY d.shard, d.seq), '')) AS hash
            FROM json_each(j.seqs) AS s
            JOIN decisions d ON d.shard = s.key::int
                AND d.seq >= (s.value->>0)::bigint AND d.seq < (s.value->>1)::bigint
        ) AS found WHERE found.hash <> j.decisions_hash
        """,
    ),
)
