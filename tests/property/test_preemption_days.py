"""Do promises and evictions hold on random days: kept or ended, nobody evicted twice, through restarts?"""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
import pytest

from domain.model.limits import preemption_seconds
from tests.depth import some
from tests.property.site import Producer, Site, audit, batches, kept

ENDS = {"bound", "cleared", "conflict"}


def live(seed: int) -> Site:
    """Live a day of a busy site, with jumps of time and a restart now and then."""
    random = Random(seed)
    producer, site = Producer(random), Site(preempts=True)
    for _ in range(4):
        for batch in batches(producer.records(60), random):
            site.take(batch)
            audit(site)
            check(site)
            if random.random() < 0.1:
                again = site.restarted()
                assert kept(site.planner) == kept(again)
                site.planner = again
        producer.at_ms += random.choice((0, preemption_seconds * 1000))
    return site


def check(site: Site) -> None:
    """Compare what was decided with what is open."""
    open_of: dict[str, str] = {}
    evicted: dict[str, str] = {}
    for row in told(site):
        uid, outcome = row["pod"]["uid"], row["outcome"]
        if outcome == "evicted":
            assert uid not in evicted, "evicted once"
            evicted[uid] = row["preemption"]["preemptor"]
            assert open_of[evicted[uid]] == row["node"]
        elif outcome == "spared":
            evicted.pop(uid, None)  # it may have left in the same batch
        elif uid in open_of:
            assert outcome in ENDS
            del open_of[uid]
        elif outcome == "nominated":
            open_of[uid] = row["node"]
        if outcome in ("released", "adopted", "resized"):
            evicted.pop(uid, None)
    tables = site.database.nominations
    assert open_of == {row.pod_uid: row.node for row in tables.rows.values()}
    left = {victim: by for (victim, _), (by, _) in tables.evictions.items()}
    assert left == {uid: by for uid, by in evicted.items() if by in open_of}


def told(site: Site) -> list[dict[str, Any]]:
    """Return the decisions of all shards, batch after batch. In a batch, what is promised comes last."""
    rows = [
        (batch, decision.outcome in ("nominated", "evicted"), shard, decision.seq, orjson.loads(payload))
        for shard, decisions in site.database.decisions.items()
        for (decision, payload), batch in zip(decisions, site.database.recorded_ms[shard], strict=True)
    ]
    return [row[-1] for row in sorted(rows, key=lambda each: each[:4])]


@pytest.mark.parametrize("seed", some(range(12)))
def test_promises_hold_on_a_random_day(seed: int) -> None:
    live(seed)


@pytest.mark.wide
def test_the_days_have_promises_that_are_kept_and_some_that_are_not() -> None:
    outcomes = {row["outcome"] for seed in range(12) for row in told(live(seed))}
    assert outcomes >= {"nominated", "evicted", "cleared", "spared"}
