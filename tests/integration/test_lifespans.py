"""What was open at a moment and has ended since is found by its lifespan: all of it, and nothing else."""

from __future__ import annotations

import random
import re
from collections import Counter
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


_TEMPLATES = """
INSERT INTO templates (signature, spec) VALUES
    ('', '{"requests": {"cpu": 2}}'), ('d', '{"requests": {"cpu": 1, "berth.dev/gpu-milli": 300}}')
"""
_OF_DEVICES = """
UPDATE placements SET signature = 'd', life = '{"devices": [' || seq % 2 || ']}' WHERE seq % 5 = 0
"""
_DECIDED = """
INSERT INTO decisions (shard, seq, epoch, pod_uid, namespace, name, outcome, node, signature, cycle_seq,
    decided_at_ms, payload)
SELECT shard, seq, 1, pod_uid, namespace, name, 'bound', node, signature, 0, 1, '' FROM placements
"""
_AT = "SELECT set_config('berth.batches', $1, false), set_config('berth.seqs', $2, false)"


def _lived(row: Row) -> Row:
    """Return the placement as a batch of its shard began it, or as one of before this was noted."""
    lasted = 0 if row.closed is None or row.opened is None else max(0, row.closed - row.opened)
    opened = (None, None) if row.seq < 100 else (row.shard, row.seq)
    return row._replace(
        opened_by=opened[0], opened=opened[1], closed=None if row.closed is None else row.seq + lasted
    )


def _held_by(rows: list[Row], batches: list[int], seqs: list[int]) -> Counter[tuple[str, str]]:
    """Return what the pods asked for that counted then, by node and resource."""
    held = Counter[tuple[str, str]]()
    for row in rows:
        began = row.opened_by is None or row.opened is None or row.opened <= batches[row.opened_by]
        if row.was_there(batches, seqs) or (row.closed is None and began):
            has_device = row.seq % 5 == 0
            held[row.node, "pods"] += 1
            held[row.node, "cpu"] += 1 if has_device else 2
            if has_device:
                held[row.node, "berth.dev/gpu-milli"] += 300
                held[row.node, f"nvidia.com/gpu#{row.seq % 2}"] += 300
    return held


async def test_nodes_hold_what_their_pods_asked_for_however_many_are_asked_about(
    embedded_dsn: str, database: MakeDatabase
) -> None:
    draw = random.Random(0)
    rows = [_lived(_drawn(draw, number)._replace(node=f"n{number % 30}")) for number in range(4_000)]
    connection = await asyncpg.connect(await database(embedded_dsn))
    try:
        await connection.execute(_INSERT, *map(list, zip(*rows, strict=True)))
        for statement in (_TEMPLATES, _OF_DEVICES, _DECIDED):
            await connection.execute(statement)
        for _ in range(5):
            batches = [draw.randrange(100, 1_200) for _ in range(SHARDS)]
            seqs = [batch + 1 for batch in batches]
            await connection.execute(_AT, *("{" + ",".join(map(str, each)) + "}" for each in (batches, seqs)))
            expected = _held_by(rows, batches, seqs)
            for names in (None, ["n1"], ["n1", "n2", "n1"], [f"n{i}" for i in range(20)]):
                found = await connection.fetch("SELECT * FROM past.held($1)", names)
                of_names = {at: held for at, held in expected.items() if names is None or at[0] in names}
                assert {(row["node"], row["resource"]): row["held"] for row in found} == of_names
                assert of_names
    finally:
        await connection.close()


async def test_what_ended_before_the_past_was_kept_is_not_there(
    embedded_dsn: str, database: MakeDatabase
) -> None:
    """Of a ledger that came from then, no batch is known that closed it."""
    connection = await asyncpg.connect(await database(embedded_dsn))
    try:
        rows = [
            Row(0, seq, name, "n", None, None, None, None) for seq, name in enumerate(("gone", "there"), 1)
        ]
        await connection.execute(_INSERT, *map(list, zip(*rows, strict=True)))
        await connection.execute("UPDATE placements SET released_at_ms = 2 WHERE pod_uid = 'gone'")
        await connection.execute(_DECIDED)
        await connection.execute(_TEMPLATES)
        await connection.execute(_AT, "{5,5,5,5}", "{9,9,9,9}")
        was_open = await connection.fetch("SELECT pod_uid FROM past.placements WHERE released_at_ms IS NULL")
        assert [row["pod_uid"] for row in was_open] == ["there"]
        for names in (None, ["n"], [f"n{i}" for i in range(11)] + ["n"]):
            held = await connection.fetch("SELECT resource, held FROM past.held($1)", names)
            assert dict(map(tuple, held)) == {"cpu": 2, "pods": 1}
    finally:
        await connection.close()


async def test_a_node_with_a_long_history_is_read_by_what_was_open(
    embedded_dsn: str, database: MakeDatabase
) -> None:
    """What is decided of one node may be more than all that was open: both ways say the same."""
    connection = await asyncpg.connect(await database(embedded_dsn))
    try:
        rows = [Row(0, seq, f"uid{seq}", "n", 0, seq, 0, seq + 3) for seq in range(1, 6_001)]
        await connection.execute(_INSERT, *map(list, zip(*rows, strict=True)))
        await connection.execute(_DECIDED)
        await connection.execute(_TEMPLATES)
        await connection.execute(_AT, "{3000,0,0,0}", "{3001,1,1,1}")
        plan = await connection.fetch("EXPLAIN (ANALYZE) SELECT * FROM past.held(ARRAY['n'])")
        held = await connection.fetch("SELECT resource, held FROM past.held(ARRAY['n'])")
        assert dict(map(tuple, held)) == {"cpu": 6, "pods": 3}
        scans = [row[0] for row in plan if " on placements" in row[0]]
        read = [int(found) for scan in scans for found in re.findall(r"actual .*rows=(\d+)", scan)]
        assert read
        assert max(read) <= 3
    finally:
        await connection.close()
