"""Begin and end reliefs: pods are told to leave a hot node, and leave it or may stay after all.

What becomes of those that an own shard decided is in the next batch for the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator

from domain.state.changes import FollowRefused, MovesEnded
from domain.state.moves import Move, Relief
from domain.state.nominating import runs
from domain.state.occupancy import Occupancy
from domain.state.steps import ReliefsFollowed, ReliefsPassed, Relieved, Unrelieved

Step = Relieved | ReliefsPassed | Unrelieved | ReliefsFollowed


def take_step(of: Occupancy, step: Step) -> Iterator[MovesEnded | FollowRefused]:
    """Fold what a cycle decided, what time ended, what the ledger refused, or what other workers did."""
    match step:
        case Relieved():
            _relieve(of, step)
        case ReliefsPassed():
            yield from _pass_to(of, step.now_ms)
        case Unrelieved():
            _refuse(of, step)
        case ReliefsFollowed():
            yield from _follow(of, step)


def _relieve(of: Occupancy, step: Relieved) -> None:
    """Tell pods to leave a node of an own shard."""
    node = of.nodes[step.node]
    assert of.leaving.keys().isdisjoint(step.targets), "a pod leaves for one reason"
    moved = ((key, node.pods[key], target) for key, target in step.targets.items())
    pods = tuple(Move(key, pod.spec.uid, pod.shard, target) for key, pod, target in moved)
    relief = Relief(
        node=step.node,
        shard=step.shard,
        at_ms=step.at_ms,
        expires_ms=step.expires_ms,
        rests_until_ms=step.rests_until_ms,
        pods=pods,
    )
    of.moves.begin(relief, pods)
    node.version += 1
    of.own_changes.add_relief(step.node)


def _pass_to(of: Occupancy, now_ms: int) -> Iterator[MovesEnded]:
    """End the moves of own shards whose time is over, and reliefs after which the node has rested."""
    moves = of.moves
    for node, relief in sorted(moves.reliefs.items()):
        if relief.shard not in of.own:
            continue
        if now_ms >= relief.expires_ms and (left := moves.spare(node)):
            of.own_changes.spared.append(node)
            yield MovesEnded(node, relief.shard, tuple(of.pods[pod.key].spec for pod in left))
        if now_ms >= relief.rests_until_ms and not moves.left_on(node):
            moves.end(node)
            of.own_changes.rested.append(node)


def _refuse(of: Occupancy, step: Unrelieved) -> None:
    """Take back the reliefs that the ledger refused. Some of their pods may have left since."""
    for node in step.nodes:
        if node in of.moves.reliefs:
            of.moves.end(node)
            of.nodes[node].version -= 1


def _follow(of: Occupancy, step: ReliefsFollowed) -> Iterator[FollowRefused]:
    """Fold which moves of other workers are over, which nodes have rested, and which reliefs began."""
    moves = of.moves
    for nodes, end in ((step.spared, moves.spare), (step.rested, moves.end)):
        for node in nodes:
            relief = moves.reliefs.get(node)
            if relief is None or relief.shard in of.own:
                yield FollowRefused("node", node, "has no relief by another worker")
            else:
                end(node)
    for relief in step.reliefs:
        if relief.node in moves.reliefs or relief.shard in of.own:
            yield FollowRefused("node", relief.node, "has a relief already, or is of an own shard")
        else:
            moves.begin(relief, [pod for pod in relief.pods if runs(of, pod.key, pod.uid, relief.node)])
