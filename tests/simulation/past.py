"""Is the past that the ledger tells what a fold of the log and the decisions said then?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.past import as_of, changes_between, moment_of
from services.ports.past import BatchId, Changes
from tests.simulation.outside import Picture

Require = Callable[[bool, str], None]


class Then(NamedTuple):
    """What the ledger tells of a moment.

    Attributes
    ----------
    placed : dict
        The node of each pod that is placed, by the pod's uid.
    waiting : set
        The uids of the pods that wait.
    offered : dict
        What each node offers, by its name.
    """

    placed: dict[str, str]
    waiting: set[str]
    offered: dict[str, dict[str, int]]


class Told(NamedTuple):
    """What the ledger tells of some moments, and what differs between each and the next."""

    moments: list[Then]
    changes: list[Changes]


def told_by_memory(database: MemoryDatabase, numbers: Sequence[BatchId]) -> Told:
    """Return what the ledger in memory tells as of these batches."""
    moments = [moment_of(database, number) for number in numbers]
    told = []
    for moment in moments:
        then = as_of(database, moment)
        placed = {uid: row.opened.node for (uid, _), row in then.open_placements.items()}
        live = [row for row in then.nodes.values() if not row.deleted]
        offered = {row.name: dict(row.spec.allocatable) for row in live if row.spec is not None}
        told.append(Then(placed, {uid for uid, _ in then.pending}, offered))
    changes = [changes_between(database, first, second, None) for first, second in pairwise(moments)]
    return Told(told, changes)


def judge_past(told: Told, pictures: Sequence[Picture], require: Require) -> int:
    """Compare what the ledger tells with what was so right after these transactions; return how many."""
    untold: set[str] = set()
    for picture, then in zip(pictures, told.moments, strict=True):
        at = f"as of batch {picture.number}"
        require(then.placed == picture.placed, f"{at} {then.placed} are placed, and it was {picture.placed}")
        may_wait = picture.waiting <= then.waiting <= picture.waiting | picture.alive
        require(may_wait, f"{at} {then.waiting} wait, and it was {picture.waiting}")
        untold |= then.waiting - picture.waiting
        require(then.offered == picture.nodes, f"{at} nodes offer {then.offered}, and it was {picture.nodes}")
    for (one, two), found in zip(pairwise(pictures), told.changes, strict=True):
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
