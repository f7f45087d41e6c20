"""Makes of a planned batch the one that is written, where others changed some of its nodes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set

import msgspec

from domain.model.decisions import Decision, Outcome
from services.codec.effects import decisions_hash, effects_of
from services.codec.encode import conflict_reason, encode_conflict, encode_spared, move_version
from services.codec.feed import pack_again
from services.ports.journal import JournalRow
from services.ports.ledger import (
    AttemptRows,
    BatchPods,
    CommitBatch,
    Committed,
    GangPlaced,
    NodeUpdate,
    PendingPod,
    PlacementOpened,
)

_replace = msgspec.structs.replace

_CLAIMING = (Outcome.BOUND, Outcome.NOMINATED, Outcome.EVICTED)
"""Outcomes that stand or fall with the claim on their node."""


def settle_batch(
    batch: CommitBatch, lost_nodes: Set[int], moved: Mapping[int, int], raised: Sequence[str] = ()
) -> CommitBatch:
    """Return the batch without the claims that were not granted, and with the true versions of nodes.

    Pods that it had bound to a lost node, or had nominated there, have the outcome ``conflict``
    under the same seq, and wait again. Those that were bound to their nominated node are nominated again.
    Those that had to leave a lost node, for a pod or as it is hot, are ``spared`` under theirs.

    Parameters
    ----------
    batch : CommitBatch
        As planned.
    lost_nodes : set of int
        Ids of the nodes whose claims were not granted.
    moved : mapping of int to int
        Node id -> by how much its version is ahead of what the batch's decisions say.
    raised : sequence of str
        The keys of its guards that go up.
    """
    if not lost_nodes and not moved and not raised:
        return batch
    lost_names = {claim.name for claim in batch.cluster.claims if claim.id in lost_nodes}
    changes: list[NodeUpdate] = [*batch.cluster.facts, *batch.cluster.claims]
    shifts = {change.name: moved[change.id] for change in changes if change.id in moved}
    decisions: list[tuple[Decision, bytes]] = []
    undone: dict[tuple[int, int], int] = {}  # shard and seq of a decision that lost -> its attempt
    for decision, payload in batch.decisions.made:
        if decision.outcome in _CLAIMING and decision.node in lost_names:
            if decision.outcome is Outcome.BOUND:
                undone[decision.shard, decision.seq] = decision.cycle_seq
            decision, payload = _undone(decision, payload)
        elif decision.node in shifts:
            payload = move_version(payload, shifts[decision.node])
        decisions.append((decision, payload))
    losers = [placed for placed in batch.pods.opened if (placed.shard, placed.seq) in undone]
    unnominated = {row.pod_uid for row in batch.pods.nominated if row.node in lost_names}
    waiting = [_replace(p, tried=False) if p.pod_uid in unnominated else p for p in batch.pods.pending_added]
    opened = [placed for placed in batch.pods.opened if (placed.shard, placed.seq) not in undone]
    nominated = [row for row in batch.pods.nominated if row.node not in lost_names]
    moved_pods = [row for row in batch.pods.moved if row.node not in lost_names]
    kept = [batch.pods.kept[placed.pod_uid] for placed in losers if placed.pod_uid in batch.pods.kept]
    pending = [*waiting, *(_waits(placed, batch.pods) for placed in losers)]
    claims = [claim for claim in batch.cluster.claims if claim.id not in lost_nodes]
    attempts = _mended(batch.decisions.attempts, undone)
    call = None if lost_nodes else batch.journal.call  # first its worker takes back what it lost
    nominated += kept
    pods = _replace(batch.pods, opened=opened, pending_added=pending, nominated=nominated, moved=moved_pods)
    settled = CommitBatch(
        offsets=batch.offsets,
        cluster=_replace(batch.cluster, claims=claims),
        pods=pods,
        decisions=_replace(batch.decisions, made=decisions, attempts=attempts),
        journal=_replace(batch.journal, raised=raised, call=call),
    )
    row = _journalled(settled, lost_nodes, moved)
    return _replace(settled, journal=_replace(settled.journal, row=row))


def _undone(decision: Decision, payload: bytes) -> tuple[Decision, bytes]:
    """Return a decision that claimed something of a node that was lost, as it is written."""
    reason = conflict_reason(decision.node)
    if decision.outcome is Outcome.EVICTED:
        return _replace(decision, outcome=Outcome.SPARED, reason=reason), encode_spared(payload)
    lost = _replace(decision, outcome=Outcome.CONFLICT, node=None, score=None, reason=reason, devices=())
    return lost, encode_conflict(payload)


def _waits(placed: PlacementOpened, pods: BatchPods) -> PendingPod:
    """Return the row of a pod that waits again, in its place; it is to be tried as if it came now.

    A nominated pod is not: it waits for its node.
    """
    arrival, since_ms, sent_by = pods.waited[placed.pod_uid]
    return PendingPod(
        pod_uid=placed.pod_uid,
        namespace=placed.namespace,
        name=placed.name,
        resource_version=placed.resource_version,
        signature=placed.signature,
        labels=placed.labels,
        life=None if placed.life is None else placed.life.waiting(),
        gang=placed.gang,
        shard=placed.shard,
        arrival=arrival,
        since_ms=since_ms,
        sent_by=sent_by,
        tried=placed.pod_uid in pods.kept,
    )


def _mended(attempts: Sequence[AttemptRows], undone: Mapping[tuple[int, int], int]) -> list[AttemptRows]:
    """Count what the attempts bound without the pods that lost. Each shard's row has the whole count."""
    counts = Counter((shard, cycle_seq) for (shard, _), cycle_seq in undone.items())
    mended = []
    for rows in attempts:
        if lost_count := sum(counts[at] for at in rows.seqs.items()):
            bound_count = rows.attempt.bound_count - lost_count
            rows = rows._replace(attempt=_replace(rows.attempt, bound_count=bound_count))
        mended.append(rows)
    return mended


def _journalled(settled: CommitBatch, lost_nodes: Set[int], moved: Mapping[int, int]) -> JournalRow | None:
    row = settled.journal.row
    if row is None:
        return None
    row = _replace(row, decisions_hash=decisions_hash(settled), lost=sorted(lost_nodes), moved=dict(moved))
    if lost_nodes:  # the state of which a digest was made counted the pods that lost
        row = _replace(row, effects=effects_of(settled), digest=None)
    return _replace(row, feed=pack_again(settled, row.feed)) if lost_nodes or settled.journal.raised else row


def lost_together(batch: CommitBatch, lost_nodes: Set[int]) -> set[int]:
    """Return the ids of nodes whose claims are lost, with those of pods that were placed beside these.

    A batch counts the pods of a matcher one after another: where one of them is lost, what the others saw in
    their zones is not so. A batch of the only worker says nothing of matchers: all go that ask for more than
    room. The pods of a gang of which too few are left go, too.
    """
    found = set(lost_nodes)
    together = [guard.nodes for guard in batch.cluster.guards if guard.raises]
    if found and not batch.cluster.guards:
        together = [frozenset(claim.id for claim in batch.cluster.claims if not claim.resource_only) | found]
    while True:
        gone = [nodes for nodes in together if not nodes.isdisjoint(found)]
        gone += [frozenset(gang.nodes) for gang in batch.cluster.gangs if _is_short(gang, found)]
        more = set().union(*gone) - found
        if not more:
            return found
        found |= more


def _is_short(gang: GangPlaced, lost_nodes: Set[int]) -> bool:
    """Say whether too few pods of a gang are left for any of them to keep its node."""
    return sum(node not in lost_nodes for node in gang.nodes) < gang.needed_count


def outcome_of(
    batch: CommitBatch,
    lost_nodes: Set[int],
    moved: Mapping[int, int],
    raised: Sequence[str] = (),
    refused: Set[int] = frozenset(),
) -> Committed:
    """Return what to tell the worker about a planned batch of which this was lost, moved and raised."""
    if not lost_nodes and not moved:
        return Committed(raised=tuple(raised))
    gangs = frozenset(gang.name for gang in batch.cluster.gangs if set(gang.nodes) <= lost_nodes)
    claims = batch.cluster.claims
    lost_names = {claim.name for claim in claims if claim.id in lost_nodes}
    moved_names = {claim.name for claim in claims if claim.id in moved and claim.id not in lost_nodes}
    bound = [decision for decision, _ in batch.decisions.made if decision.outcome is Outcome.BOUND]
    nominated = {row.key: row.pod_uid for row in batch.pods.nominated if row.node in lost_names}
    moved_pods = {row.key: row.pod_uid for row in batch.pods.moved if row.node in lost_names}
    return Committed(
        lost_pods={f"{d.namespace}/{d.name}": d.pod_uid for d in bound if d.node in lost_names}
        | nominated
        | moved_pods,
        lost_nodes=frozenset(lost_nodes),
        moved_count=sum(d.node in moved_names for d in bound),
        raised=tuple(raised),
        refused=frozenset(refused),
        lost_gangs=gangs if lost_nodes else frozenset(),
    )


def doubt(
    batch: CommitBatch,
    lost_nodes: Set[int],
    keys: Set[str] = frozenset(),
    gangs: Set[str] = frozenset(),
) -> CommitBatch:
    """Return a batch that was planned while claims on some nodes were not granted, and keys did not go up.

    The versions that it saw of these count pods that lost: they say nothing, even where they fit. What it
    places of ``gangs`` that lost is lost, too: it was planned as if they ran.
    """
    cluster = batch.cluster
    if gangs:
        hopeless = [
            each._replace(needed_count=len(each.nodes) + 1) if each.name in gangs else each
            for each in cluster.gangs
        ]
        cluster = _replace(cluster, gangs=hopeless)
    if keys:
        unsure = [_replace(each, version_seen=-1) if each.key in keys else each for each in cluster.guards]
        cluster = _replace(cluster, guards=unsure)
    if not lost_nodes:
        return _replace(batch, cluster=cluster)
    claims = [_replace(c, is_doubtful=True) if c.id in lost_nodes else c for c in cluster.claims]
    row = batch.journal.row and _replace(batch.journal.row, digest=None)
    return _replace(batch, cluster=_replace(cluster, claims=claims), journal=_replace(batch.journal, row=row))
