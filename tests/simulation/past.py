"""Is the past that the ledger tells what a fold of the log and the decisions said then?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.past import as_of, changes_between, moment_of
from services.ports.past import BatchId, Changes
from tests.simulation.outside import Picture

Require = Callable[[bool, str], None]


def judge_past(database: MemoryDatabase, pictures: Sequence[Picture], require: Require) -> int:
    """Compare the ledger as of each of these transactions, and what differs between two; return how many."""
    moments = [moment_of(database, BatchId(*each.number)) for each in pictures]
    untold: set[str] = set()
    for picture, moment in zip(pictures, moments, strict=True):
        then = as_of(database, moment)
        placed = {uid: row.opened.node for (uid, _), row in then.open_placements.items()}
        nodes = {
            row.name: row.spec for row in then.nodes.values() if not row.deleted and row.spec is not None
        }
        offered = {name: dict(spec.allocatable) for name, spec in nodes.items()}
        waiting = {uid for uid, _ in then.pending}
        at = f"as of batch {picture.number}"
        require(placed == picture.placed, f"{at} {placed} are placed, and it was {picture.placed}")
        told = picture.waiting <= waiting <= picture.waiting | picture.alive
        require(told, f"{at} {waiting} wait, and it was {picture.waiting}")
        untold |= waiting - picture.waiting
        require(offered == picture.nodes, f"{at} nodes offer {offered}, and it was {picture.nodes}")
    for (one, first), (two, second) in pairwise(zip(pictures, moments, strict=True)):
        found = changes_between(database, first, second, None)
        told_of, said = (
            {uid: each for uid, each in of.items() if uid not in untold}
            for of in (_told(found), _differs(one, two))
        )
        require(told_of == said, f"between {one.number} and {two.number} {told_of}, and it was {said}")
    return len(pictures)


def _told(changes: Changes) -> dict[str, tuple[object, ...]]:
    pods: dict[str, tuple[object, ...]] = {
        each.pod_uid: (each.node_before, each.node_after, each.waited_before, each.waits_after)
        for each in changes.pods
    }
    nodes = {
        f"node {each.name}": (each.before is None, each.after is None)
        for each in changes.nodes
        if (each.before is None) != (each.after is None)
    }
    return pods | nodes


def _differs(one: Picture, two: Picture) -> dict[str, tuple[object, ...]]:
    pods: dict[str, tuple[object, ...]] = {}
    for uid in {*one.placed, *two.placed, *one.waiting, *two.waiting}:
        before, after = one.placed.get(uid), two.placed.get(uid)
        waited, waits = uid in one.waiting, uid in two.waiting
        if before != after or waited != waits:
            pods[uid] = before, after, waited, waits
    changed = one.nodes.keys() ^ two.nodes.keys()
    return pods | {f"node {name}": (name in two.nodes, name in one.nodes) for name in changed}
