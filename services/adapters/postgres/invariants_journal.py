"""The invariants of the journal: name, what it says, and the query for the rows that break it."""

from __future__ import annotations

JOURNAL = (
    (
        "journal-without-hole",
        "every batch since the first has its row in the journal",
        """
        SELECT shard, batch, following FROM (
            SELECT shard, batch, lead(batch) OVER (PARTITION BY shard ORDER BY batch) AS following
            FROM @chain AS j
        ) AS j WHERE following <> batch + 1
        UNION ALL
        SELECT j.shard, max(j.batch), o.next_offset
        FROM @chain AS j JOIN shard_offsets o ON o.shard = j.shard AND o.topic = '~batches'
        GROUP BY j.shard, o.next_offset HAVING max(j.batch) <> o.next_offset
        """,
    ),
    # A start gives the offsets anew: they are those of the batch before, but where the log was read again. A
    # worker that had shards already does not start: what it took by then tells the offsets, behind a fault of
    # the log and while records are read once more. A re-fold only sets back. A shard goes from
    # worker to worker, so a partition's ranges may be in several journals. The last row of the audit before
    # is the first of this one: of another journal it may not be what came just before.
    (
        "journal-ranges-chain",
        "a batch takes the records of a partition where the one before ended",
        """
        SELECT * FROM (
            SELECT j.shard, j.batch, at.lane->>1 AS topic, (at.lane->>2)::int AS partition, at.is_start,
                at.is_refold,
                (at.lane->>3)::bigint AS lo,
                lag((at.lane->>(CASE WHEN at.is_start THEN 3 ELSE 4 END))::bigint) OVER lane AS before,
                lag(j.shard) OVER lane = j.shard OR lag(j.batch) OVER lane >= lag(b.lo) OVER lane AS is_next
            FROM @chain AS j JOIN @batches AS b USING (shard) CROSS JOIN LATERAL (
                SELECT lane, false AS is_start, false AS is_refold, 0 AS number
                FROM json_array_elements(j.lanes) AS lane
                UNION ALL
                SELECT lane, true, false, 0 FROM json_array_elements(j.start->'offsets') AS lane
                UNION ALL
                SELECT lane, true, NOT is_behind_fault, number FROM (
                    SELECT lane, o.number, EXISTS (
                        SELECT FROM log_faults f WHERE f.topic = lane->>1 AND f.partition = (lane->>2)::int
                            AND f.epoch = (o.owned->'leases'->>(lane->>0))::bigint
                    ) AS is_behind_fault, EXISTS (
                        SELECT FROM shard_offsets r WHERE r.shard = (lane->>0)::int AND r.topic = lane->>1
                            AND r.partition = (lane->>2)::int AND (lane->>3)::bigint <= r.refold_below
                    ) AS is_read_again
                    FROM json_array_elements(j.owned) WITH ORDINALITY AS o (owned, number)
                    CROSS JOIN LATERAL json_array_elements(o.owned->'offsets') AS lane
                ) AS taken WHERE is_behind_fault OR is_read_again
            ) AS at
            WINDOW lane AS (
                PARTITION BY at.lane->>0, at.lane->>1, at.lane->>2
                ORDER BY j.position, NOT at.is_start, at.number
            )
        ) AS taken WHERE (NOT is_start AND before <> lo OR is_refold AND before < lo) AND is_next
        """,
    ),
    (
        "decisions-have-a-batch",
        "since the journal is kept, every decision is of one batch, in order",
        """
        SELECT * FROM (
            SELECT s.shard, (s.value->>1)::bigint AS after, s.hi AS seq_next,
                lead((s.value->>0)::bigint) OVER (
                    PARTITION BY s.shard ORDER BY (s.value->>0)::bigint
                ) AS following
            FROM (
                SELECT t.shard, t.lo, t.hi, e.value
                FROM @chain AS j CROSS JOIN LATERAL json_each(j.seqs) AS e
                JOIN @spans AS t ON t.shard = e.key::int
            ) AS s WHERE (s.value->>1)::bigint >= s.lo
        ) AS spans WHERE after <> coalesce(following, seq_next)
        """,
    ),
    (
        "decisions-are-the-journals",
        "the decisions of a batch, if all are kept, are those of which the journal holds the hash",
        """
        SELECT j.shard, j.batch, j.seqs FROM @journal AS j CROSS JOIN LATERAL (
            SELECT sha256(coalesce(string_agg(d.payloads, ''::bytea ORDER BY s.key::int), '')) AS hash
            FROM json_each(j.seqs) AS s CROSS JOIN LATERAL (
                SELECT string_agg(d.payload, ''::bytea ORDER BY d.seq) AS payloads FROM decisions d
                WHERE d.shard = s.key::int AND d.seq >= (s.value->>0)::bigint
                    AND d.seq < (s.value->>1)::bigint
            ) AS d
        ) AS found WHERE found.hash <> j.decisions_hash AND NOT EXISTS (
            SELECT FROM json_each(j.seqs) AS e JOIN @spans AS t ON t.shard = e.key::int
            WHERE (e.value->>0)::bigint < t.first
        )
        """,
    ),
    # The last row of a journal before this audit is stale for a partition that went to another journal
    # then. So what differs is looked up behind it, in all journals.
    (
        "offsets-are-the-journals",
        "a shard goes on in a partition where its last batch ended",
        """
        SELECT * FROM (SELECT j.*, o.next_offset FROM (
            SELECT DISTINCT ON (1, 2, 3) (lane->>0)::int AS shard, lane->>1 AS topic,
                (lane->>2)::int AS partition, (lane->>4)::bigint AS hi, j.recorded_at, j.position
            FROM @chain AS j CROSS JOIN LATERAL json_array_elements(j.lanes) AS lane
            ORDER BY 1, 2, 3, j.position DESC
        ) AS j JOIN shard_offsets o USING (shard, topic, partition)
        WHERE o.next_offset < j.hi AND o.refold_below IS NULL AND NOT EXISTS (
            SELECT FROM log_faults f
            WHERE (f.topic, f.partition) = (o.topic, o.partition) AND f.found_at > j.recorded_at
        ) OR o.next_offset > j.hi AND NOT EXISTS (
            SELECT FROM log_faults f WHERE (f.topic, f.partition) = (o.topic, o.partition)
        )
        OFFSET 0) AS other WHERE next_offset IS DISTINCT FROM (
            SELECT (lane->>4)::bigint FROM journal l CROSS JOIN LATERAL json_array_elements(l.lanes) AS lane
            WHERE l.position > other.position AND (lane->>0)::int = other.shard AND lane->>1 = other.topic
                AND (lane->>2)::int = other.partition
            ORDER BY l.position DESC LIMIT 1
        )
        """,
    ),
    (
        "checkpoints-are-whole",
        "a checkpoint has all of its parts",
        """
        SELECT c.shard, c.batch, c.parts_count, count(p.part) AS parts
        FROM checkpoints c LEFT JOIN checkpoint_parts p USING (shard, batch)
        GROUP BY c.shard, c.batch HAVING count(p.part) <> c.parts_count
        """,
    ),
)
