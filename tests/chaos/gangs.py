"""Judges gangs: whenever a transaction placed pods of one, as many of it run as have to run together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from domain.model.decisions import Outcome
from domain.model.pods import POD_GROUP_LABEL
from services.adapters.memory.database import MemoryDatabase
from tests.chaos.scenario import GANGS
from tests.simulation.tape import Commit

_COMES = (Outcome.BOUND, Outcome.ADOPTED, Outcome.RESIZED)
_GOES = (Outcome.RELEASED, Outcome.BIND_FAILED)
_LEFT = """
SELECT gang, count(*) FILTER (WHERE waits) AS waiting, count(*) AS alive FROM (
    SELECT labels::json->>$1 AS gang, true AS waits FROM pending
    UNION ALL SELECT labels::json->>$1, false FROM placements WHERE released_at_ms IS NULL
) AS pods WHERE gang IS NOT NULL GROUP BY gang ORDER BY gang
"""


def members_of(tables: MemoryDatabase) -> Mapping[str, str]:
    """Return uid -> gang of all pods of which anything was decided."""
    found = {}
    for rows in tables.decisions.values():
        for decision, payload in rows:
            gang = (orjson.loads(payload).get("labels") or {}).get(POD_GROUP_LABEL)
            if gang is not None:
                found[decision.pod_uid] = gang
    return found


def parts(tables: MemoryDatabase, commits: Sequence[Commit]) -> list[str]:
    """Return where a part of a gang was placed without the rest; ``commits`` are in order."""
    gangs = members_of(tables)
    running: dict[str, set[str]] = {gang: set() for gang in GANGS}
    wrong = []
    for commit in commits:
        placed = set()
        for shard, seq in commit.decided:
            decision, _ = tables.decisions[shard][seq - 1]
            if (gang := gangs.get(decision.pod_uid)) is None:
                continue
            if decision.outcome in _COMES:
                running[gang].add(decision.pod_uid)
            elif decision.outcome in _GOES:
                running[gang].discard(decision.pod_uid)
            placed |= {gang} if decision.outcome == Outcome.BOUND else set()
        wrong += [
            f"{gang}: {len(running[gang])} of {GANGS[gang]} run after batch {commit.number}"
            for gang in sorted(placed)
            if len(running[gang]) < GANGS[gang]
        ]
    return wrong


async def left_out(connection: Any) -> list[str]:
    """Return the gangs of which enough pods live, and some wait, at the end of a day with room for all."""
    rows = await connection.fetch(_LEFT, POD_GROUP_LABEL)
    left = [(gang, waiting, alive) for gang, waiting, alive in rows if waiting and alive >= GANGS[gang]]
    return [f"{gang}: {waiting} of {alive} wait" for gang, waiting, alive in left]
