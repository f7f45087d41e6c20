"""What was open at a moment and has ended since is found by its lifespan: all of it, and nothing else."""

from __future__ import annotations

import random
from typing import NamedTuple

import asyncpg
import pytest

from tests.servers import MakeDatabase

SHARDS, SPANS = 4, (0, 1, 2, 7, 8, 31, 32, 511, 2_048, 524_287, 524_288, 10**9)
_COLUMNS = "shard, seq, pod_uid, node, opened_by, opened_batch, closed_by, closed_batch"
_INSERT = f"""
INSERT INTO placements ({_COLUMNS}, namespace, name, signature, adopted, bound_at_ms, released_at_ms)
SELECT *, 'ns', uid, '', false, 1, CASE WHEN closed IS NOT NULL THEN 2 END
FROM unnest($1::int[], $2::bigint[], $3::text[], $4::text[], $5::int[], $6::bigint[], $7::int[], $8::bigint[])
    AS drawn (shard, seq, uid, node, opened_by, opened, closed_by, closed)
"""


class Row(NamedTuple):
    """A placement: of a pod whose shard was its worker's all along, was another's, or is older."""

    shard: int
    seq: int
    uid: str
    node: str
    opened_by: int | None
    opened: int | None
    closed_by: int | None
    closed: int | None

    def was_there(self, batches: list[int], seqs: list[int]) -> bool:
        """Return whether it was open then, and has ended since."""
        if self.closed_by is None or self.closed is None or self.closed <= batches[self.closed_by]:
            return False
        began = self.opened_by is None or self.opened is None or self.opened <= batches[self.opened_by]
        return began and self.seq < seqs[self.shard]


def _drawn(draw: random.Random, number: int) -> Row:
    shard, opened, lasted = number % SHARDS, draw.randrange(1_000), draw.choice(SPANS)
    closed = (draw.choice((shard, shard, 0)), opened + lasted) if draw.random() < 0.9 else (None, None)
    begun = (None, None) if draw.random() < 0.1 else (shard, opened)
    return Row(shard, number // SHARDS + 1, f"uid{number}", "n", *begun, *closed)


@pytest.mark.parametrize("seed", range(3))
async def test_what_ended_since_is_found_whatever_it_lasted(
    embedded_dsn: str, database: MakeDatabase, seed: int
) -> None:
    draw = random.Random(seed)
    rows = [_drawn(draw, number) for number in range(4_000)]
    connection = await asyncpg.connect(await database(embedded_dsn))
    try:
        await connection.execute(_INSERT, *map(list, zip(*rows, strict=True)))
        for _ in range(20):
            batches = [draw.randrange(2_000) for _ in range(SHARDS)]
            seqs = [draw.randrange(1_200) for _ in range(SHARDS)]
            found = await connection.fetch(
                "SELECT pod_uid FROM past.closed_between($1, $2, NULL) WHERE opened_batch IS NULL "
                "OR opened_batch <= ($1::bigint[])[opened_by + 1]",
                batches,
                seqs,
            )
            expected = [row.uid for row in rows if row.was_there(batches, seqs)]
            assert sorted(row["pod_uid"] for row in found) == sorted(expected)
            assert expected
    finally:
        await connection.close()
