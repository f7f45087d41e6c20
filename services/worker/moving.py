"""What a batch says of hot nodes: which pods leave them, and which of these may stay after all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from domain.engine.verdicts import Migration
from domain.model.decisions import Outcome
from domain.state.changes import MovesEnded
from domain.state.moves import Move, Relief
from services.codec.encode import Amount, Migrating
from services.ports.ledger import MoveRow
from services.worker.preempting import Decide, When, shard_of


def relieve(decide: Decide, verdict: Migration, shards: Sequence[int], at_ms: int) -> None:
    """Tell the pods of a migration to leave (``evicted``); ``shards`` are theirs.

    All are decisions of the shard of the node, also where a pod is of another one, so that one transaction
    holds them.
    """
    why = list(verdict.why)
    for moved, its_own in zip(verdict.moves, shards, strict=True):
        told = Migrating(
            source=verdict.node,
            why=why,
            relief=Amount(cpu=moved.estimate.cpu_milli, memory=moved.estimate.memory_bytes),
            to=moved.target,
            shard=shard_of(moved.pod, its_own),
        )
        reason = f"leaves {verdict.node}, which is hot ({'; '.join(why)}); {moved.target} would take it"
        when = at_ms, None, None
        decide(moved.pod, verdict.shard, Outcome.EVICTED, verdict.node, *when, reason=reason, migration=told)


def spare(decide: Decide, change: MovesEnded, when: When) -> None:
    """Say which pods may stay, as they have not left a hot node in time."""
    reason = f"it did not leave {change.node}, which is hot, in time"
    for pod in change.spared:
        decide(pod, change.shard, Outcome.SPARED, change.node, *when, reason=reason)


def move_rows(reliefs: Mapping[str, Relief], nodes: Iterable[str]) -> list[MoveRow]:
    """Return the rows of the moves from some nodes that a batch brings."""
    return [
        MoveRow(
            node=node,
            pod_uid=pod.uid,
            shard=pod.shard,
            namespace=pod.key.partition("/")[0],
            name=pod.key.partition("/")[2],
            target=pod.target,
            decided_by=relief.shard,
            at_ms=relief.at_ms,
            expires_ms=relief.expires_ms,
            rests_until_ms=relief.rests_until_ms,
        )
        for node in nodes
        if (relief := reliefs.get(node)) is not None
        for pod in relief.pods
    ]


def reliefs_of(rows: Iterable[MoveRow]) -> list[Relief]:
    """Return the reliefs of which rows were made, each with the pods that are under way yet."""
    by_node: dict[str, list[MoveRow]] = {}
    for row in rows:
        by_node.setdefault(row.node, []).append(row)
    return [
        Relief(
            node=node,
            shard=of[0].decided_by,
            at_ms=of[0].at_ms,
            expires_ms=of[0].expires_ms,
            rests_until_ms=of[0].rests_until_ms,
            pods=tuple(Move(row.key, row.pod_uid, row.shard, row.target) for row in of if row.is_open),
        )
        for node, of in by_node.items()
    ]
