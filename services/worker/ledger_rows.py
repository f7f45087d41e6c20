"""Turns results of the domain into rows of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import msgspec

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import CycleResult, Failure, Preemption
from domain.manifests.profile import profile_to_spec
from domain.model.config import CONTENTS, ConfigObject
from domain.model.decisions import Attempt, Decision
from domain.model.limits import dead_letter_key_bytes_max
from domain.model.pods import PodSpec
from domain.model.profiles import ProfileRevision
from domain.state.cluster import ClusterState
from services.codec.envelope import Rejected
from services.codec.kept import kept_of_refused
from services.phrases import gang_in_words
from services.ports.ledger import (
    ConfigRow,
    DeadLetter,
    GangPlaced,
    NodeClaim,
    NodeFact,
    PendingGroup,
    PendingPod,
    PlacementOpened,
    ProfileRow,
    UsageRow,
)
from services.ports.log import Record
from services.worker.ledger_view import LedgerView


def dead_letter(
    record: Record, rejected: Rejected, *, shard: int, seq: int, at_ms: int, sent_by: str
) -> DeadLetter:
    """Return the dead letter of a record, with what may be kept of it."""
    raw, note = kept_of_refused(record.value or b"")
    return DeadLetter(
        shard=shard,
        seq=seq,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key and record.key[:dead_letter_key_bytes_max],
        raw=raw,
        code=rejected.code,
        path=rejected.path,
        message=rejected.message + note,
        at_ms=at_ms,
        sent_by=sent_by,
    )


def node_facts(state: ClusterState, senders: Mapping[str, str]) -> list[NodeFact]:
    """Return what events changed of nodes. ``senders`` says of each node with another spec who sent that."""
    return [
        NodeFact(
            id=each.entry.ordinal,
            name=each.name,
            version_seen=each.version,
            changes=each.changes,
            delta=each.delta,
            spec=each.entry.spec if each.is_spec else None,
            deleted=each.entry.deleted,
            spec_count=each.entry.spec_count,
            sent_by=senders[each.name] if each.is_spec else None,
            was_gone=each.was_gone and not each.entry.deleted,
        )
        for each in state.own_changes.facts()
    ]


def node_claims(state: ClusterState, strict: Set[str]) -> list[NodeClaim]:
    """Return what cycles placed on nodes; on those in ``strict`` a pod asks for more than spec and room."""
    return [
        NodeClaim(
            id=each.entry.ordinal,
            name=each.name,
            version_seen=each.version,
            spec_count_seen=each.entry.spec_count,
            changes=each.changes,
            delta=each.delta,
            resource_only=each.name not in strict,
        )
        for each in state.own_changes.claims()
    ]


def gangs_placed(
    gangs: Mapping[str, int], members: Mapping[str, Sequence[str]], state: ClusterState
) -> list[GangPlaced]:
    """Return the gangs of which pods claim nodes, each given with how many of these must keep theirs."""
    nodes = state.nodes
    return [
        GangPlaced(name, gangs.get(name, 0), tuple(nodes[node].ordinal for node in on))
        for name, on in members.items()
    ]


def count_placements(opened: dict[str, PlacementOpened], state: ClusterState) -> list[str]:
    """Mark the opened placements that no node counts yet; return older ones that nodes count from now on."""
    for uid, placed in opened.items():
        if placed.adopted and state.nodes[placed.node].spec is None:
            opened[uid] = msgspec.structs.replace(placed, counted=False)
    return [uid for uid in state.own_changes.counted if uid not in opened]


def gang_of(pod: PodSpec) -> str | None:
    """Return the name of a pod's PodGroup."""
    return pod.template.gang.partition("/")[2] if pod.template.gang else None


def placement_opened(pod: PodSpec, decision: Decision, *, adopted: bool) -> PlacementOpened:
    """Return the placement that a decision opens."""
    assert decision.node is not None
    return PlacementOpened(
        pod_uid=pod.uid,
        namespace=decision.namespace,
        name=decision.name,
        resource_version=pod.resource_version,
        signature=pod.signature,
        labels=pod.labels,
        life=pod.life,
        gang=gang_of(pod),
        node=decision.node,
        adopted=adopted,
        shard=decision.shard,
        seq=decision.seq,
        at_ms=decision.decided_at_ms,
    )


def usage_rows(measured: Mapping[str, str], state: ClusterState) -> list[UsageRow]:
    """Return the usage rows of the measured nodes. A node that is gone gets a row without series.

    ``measured`` says of each node who sent its latest measurement.
    """
    return [UsageRow(state.usage.record(node), measured[node]) for node in sorted(measured)]


def profile_row(revision: ProfileRevision, at_ms: int, sent_by: str) -> ProfileRow:
    """Return the row of a profile's revision."""
    return ProfileRow(
        name=revision.name,
        revision=revision.revision,
        spec=None if revision.profile is None else profile_to_spec(revision.profile),
        resource_version=revision.resource_version,
        at_ms=at_ms,
        sent_by=sent_by,
    )


def config_row(thing: ConfigObject, at_ms: int, sent_by: str) -> ConfigRow:
    """Return the row of a configuration object."""
    return ConfigRow(
        kind=thing.kind,
        namespace=thing.namespace,
        name=thing.name,
        object=None if thing.content is None else msgspec.to_builtins(thing.content),
        resource_version=thing.resource_version,
        at_ms=at_ms,
        sent_by=sent_by,
    )


def config_object(row: ConfigRow) -> ConfigObject:
    """Return the configuration object of a row."""
    return ConfigObject(
        kind=row.kind,
        namespace=row.namespace,
        name=row.name,
        content=None if row.object is None else msgspec.convert(row.object, CONTENTS[row.kind]),
        resource_version=row.resource_version,
    )


def pending_pods(
    waiting: Iterable[tuple[PodSpec, int]], scheduler: Scheduler, ledger_view: LedgerView
) -> list[PendingPod]:
    """Return the rows of pods that wait, each given with its arrival, and note which had no attempt yet."""
    rows = []
    for pod, arrival in waiting:
        is_fresh = scheduler.queue.is_fresh(pod.key)
        if is_fresh:
            ledger_view.untried.add(pod.key)
        since_ms, sent_by = ledger_view.waits[pod.key]
        rows.append(
            PendingPod(
                pod_uid=pod.uid,
                namespace=pod.namespace,
                name=pod.name,
                resource_version=pod.resource_version,
                signature=pod.signature,
                labels=pod.labels,
                life=pod.life,
                gang=gang_of(pod),
                shard=scheduler.state.pods[pod.key].shard,
                arrival=arrival,
                since_ms=since_ms,
                sent_by=sent_by,
                tried=not is_fresh,
            )
        )
    return rows


def pending_groups(
    result: CycleResult,
    seqs: Sequence[Mapping[int, int]],
    ledger_view: LedgerView,
    scheduler: Scheduler,
    now_ms: int,
) -> Iterator[PendingGroup]:
    """Yield why groups wait, for each shard where a pod began to wait or the reasons are new."""
    pods, waiting = scheduler.state.pods, scheduler.waiting
    failed_on: dict[int, set[int]] = {}
    for verdict in result.verdicts:
        if isinstance(verdict, Failure | Preemption):
            failed_on.setdefault(verdict.attempt, set()).add(pods[verdict.pod.key].shard)
    for index, attempt in enumerate(result.attempts):
        if attempt.signature not in waiting or not attempt.reasons_at_failure:
            continue
        known = ledger_view.reasons_known.setdefault(attempt.signature, {})
        failed = failed_on.get(index, set())
        for shard in sorted(failed | known.keys()):
            # The shard's last pod may have left since, and the ledger's row of the group with it.
            if shard not in failed and known[shard] == attempt.reasons_at_failure:
                continue
            known[shard] = attempt.reasons_at_failure
            yield PendingGroup(
                shard=shard,
                signature=attempt.signature,
                reasons=attempt.reasons_at_failure,
                unresolvable=attempt.unresolvable,
                cycle_seq=seqs[index].get(shard, 0),
                at_ms=now_ms,
                profile=attempt.profile,
                profile_revision=attempt.profile_revision,
                nodes_count=attempt.nodes_count,
            )
    for signature in ledger_view.reasons_known.keys() - waiting:
        del ledger_view.reasons_known[signature]


def describe_node(node: str, reasons: Sequence[str]) -> str:
    """Return one line on what is amiss with the node of a placed pod, or ""."""
    return "; ".join(f"{node} {_amiss(reason)}" for reason in reasons)


def _amiss(reason: str) -> str:
    match reason:
        case "node-unknown":
            return "is not known; the pod counts there as soon as an event names it"
        case "node-deleted":
            return "was deleted; the pod counts there again when a node of that name returns"
        case _:
            resources = [code.removeprefix("overcommitted:") for code in reason.split(",")]
            return f"holds more than it offers: {', '.join(resources)}"


def describe_attempt(attempt: Attempt) -> str:
    """Return one line on why no node would do, the most frequent reason first; of a gang, what it lacks."""
    if attempt.gang is msgspec.UNSET:
        return describe_nodes(attempt)
    codes = ", ".join(attempt.reasons_at_failure)
    return gang_in_words(attempt.gang, describe_nodes(attempt) if attempt.gang.missing else codes)


def describe_nodes(attempt: Attempt, most: int | None = None) -> str:
    """Return one line on why no node would do, with the ``most`` frequent reasons alone if that is given."""
    if not attempt.nodes_count:
        codes = [code for code in attempt.reasons_at_failure if code != "no-nodes"]
        return f"held by {', '.join(codes)}" if codes else "there are no nodes"
    ranked = sorted(attempt.reasons_at_failure.items(), key=lambda item: (-item[1], item[0]))
    named = "; ".join(f"{count} {code}" for code, count in ranked[:most])
    return f"0/{attempt.nodes_count} nodes: {named}{'; ...' if len(ranked) > len(ranked[:most]) else ''}"
