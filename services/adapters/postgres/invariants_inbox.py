"""The invariant of the inbox: name, what it says, and the query for the rows that break it."""

from __future__ import annotations

# Reads what waits alone: the ranges of what was folded are those of journals, which chain.
INBOX = (
    (
        "inbox-without-hole",
        "what a shard handed over to another one was folded there, or waits, each number once",
        """
        SELECT h.home, h.source, h.folded, h.handed, count(i.number) AS waiting
        FROM (
            SELECT e.home, e.source, e.handed, coalesce(t.next_offset, 0) AS folded FROM (
                SELECT split_part(topic, '/', 2)::int AS home, shard AS source, next_offset AS handed
                FROM shard_offsets WHERE topic LIKE '~handed/%'
            ) AS e LEFT JOIN shard_offsets t ON t.shard = e.home AND t.topic = '~inbox/' || e.source
        ) AS h LEFT JOIN inbox i ON i.home = h.home AND i.source = h.source AND i.number >= h.folded
        GROUP BY h.home, h.source, h.folded, h.handed
        HAVING count(i.number) <> h.handed - h.folded OR max(i.number) >= h.handed
        """,
    ),
)
