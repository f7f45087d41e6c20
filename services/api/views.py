"""Rows of the ledger as the API's answers: nodes, pods, decisions, what waits, shards and dead letters."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Collection, Mapping

from msgspec import convert
from msgspec.structs import asdict

from domain.manifests.actions import amount_text
from domain.model.colocation import QUALITY_OF, CoLocationPolicy
from domain.model.colocation import Heat as HeatKept
from domain.model.config import CO_LOCATION_POLICY, ConfigObject
from domain.model.devices import DEVICE_NAMES, GPU, devices_of, is_shown, with_devices
from domain.model.limits import policies_max
from domain.model.usage import UsageRecord
from domain.state.policies import Policies
from domain.state.usage import window_of
from services.api.answers import (
    ActionPage,
    DeadLetter,
    DeadLetterPage,
    DecisionPage,
    Heat,
    Measured,
    Node,
    NodeAction,
    NodeDetail,
    NodeMove,
    NodePage,
    Offset,
    Placement,
    Pod,
    PodDetail,
    PodPage,
    Shard,
    ShardPage,
    Taint,
    Usage,
)
from services.api.answers_decisions import Decision
from services.api.explanation import decision_of
from services.api.formats import (
    cursor,
    instant,
    parse_name,
    parse_number,
    parse_position,
    quantities,
    row_id,
    stamp,
    text_of,
)
from services.api.pending import show_group
from services.lag import Lag
from services.ports.pods import MoveRow
from services.ports.store import (
    ActionState,
    ConfigFilter,
    DecisionFilter,
    NodeState,
    PodFilter,
    PodState,
    RefusedRecord,
    Rows,
    Store,
)

HISTORY_MAX = 100
PODS_SHOWN_MAX = 1000
ACTIONS_SHOWN_MAX = 10


# ------------------------------------------------------------------------------------------ nodes and pods


def _node(state: NodeState, seen: Collection[str] | None) -> Node:
    """Return a node. Who sees few namespaces (``seen``, None: all) is not told which key sent it."""
    node, spec = state.node, state.node.spec
    assert spec is not None
    every, offered, held = with_devices(spec.allocatable), spec.allocatable, node.requested
    taken = [held.get(name, 0) for name in DEVICE_NAMES[: devices_of(offered)]]
    free = {name: max(0, amount - held.get(name, 0)) for name, amount in offered.items()}
    if taken:
        free[GPU] = taken.count(0)
    return Node(
        name=node.name,
        version=node.version or None,
        deleted=node.deleted,
        ready=spec.ready,
        unschedulable=spec.unschedulable,
        labels=spec.labels,
        taints=[Taint(key=each.key, value=each.value, effect=each.effect) for each in spec.taints],
        allocatable=quantities(offered),
        requested=quantities({name: amount for name, amount in held.items() if is_shown(name)}),
        devices=taken,
        overcommitted=sorted(name for name, amount in held.items() if amount > every.get(name, 0)),
        free=quantities(free),
        spec_changed_at=instant(state.spec_changed_ms),
        spec_sent_by=state.spec_sent_by if seen is None else None,
    )


async def list_nodes(store: Store, *, limit: int, at: str | None, name: str | None) -> NodePage:
    """Return a page of nodes."""
    after = parse_name(at) if at else None
    rows = await store.nodes(limit, after, name)
    items = [_node(row, store.seen) for row in rows]
    return NodePage(items=items, next=cursor(rows[-1].node.name) if rows.more else None)


async def show_node(store: Store, name: str, *, sees_all: bool) -> NodeDetail | None:
    """Return one node with the pods on it; of pods that the store does not see, their number and sum.

    The node's own sums less those of the pods that are seen are those of the others: nothing of them is read.
    """
    state = await store.node(name)
    if state is None:
        return None
    on_node = PodFilter(node=name, phase="bound")
    pods = await store.pods(on_node, PODS_SHOWN_MAX, None)
    rows, rest = pods, Counter(state.node.requested)
    while rows and not sees_all:
        for pod in rows:
            rest.subtract({"pods": 1} | (pod.template.requests if pod.template else {}))
        rows = await store.pods(on_node, PODS_SHOWN_MAX, rows[-1].pod_uid) if rows.more else Rows()
    others = {resource: amount for resource, amount in rest.items() if amount > 0 and is_shown(resource)}
    shown = _node(state, store.seen)
    detail = NodeDetail(
        **asdict(shown),
        actions=[],
        usage=None,
        policy=await _policy_of(store, shown.labels),
        heat=None,
        moves=[],
        pods=list(map(_pod, pods)),
        pods_next=cursor(pods[-1].pod_uid) if pods.more else None,
        others=None if sees_all else quantities(others),
    )
    return detail if store.moment is not None else await _with_present(store, detail)


async def _with_present(store: Store, node: NodeDetail) -> NodeDetail:
    """Add what is known of a node now alone: what was measured and done there, and what has to leave it."""
    usage = await store.usage(node.name)
    node.usage = None if usage is None else _usage(usage)
    node.heat = None if usage is None or usage.quality is None else _heat(usage.quality.heat)
    node.actions = (await list_actions(store, node.name, limit=ACTIONS_SHOWN_MAX, at=None)).items
    node.moves = list(map(_move, await store.processes.moves(node.name, store.seen)))
    return node


async def list_actions(store: Store, node: str | None, *, limit: int, at: str | None) -> ActionPage:
    """Return a page of what agents did, the latest first."""
    rows = await store.processes.actions(node, store.seen, limit, parse_number(at) if at else None)
    following = cursor(rows[-1].number) if rows.more else None
    return ActionPage(items=[action_of(row, store.seen) for row in rows], next=following)


def action_of(state: ActionState, seen: Collection[str] | None) -> NodeAction:
    """Return an action. Who sees few namespaces (``seen``, None: all) is not told which key sent it.

    Nor is he told with which other pod one that was ended was compared, which stands behind the semicolon.
    """
    action = state.row.action
    reason = action.reason if seen is None or not action.pod else action.reason.partition(";")[0]
    return NodeAction(
        id=state.number,
        node=action.node,
        at=instant(action.at_ms),
        action=action.kind.value,
        quality=action.quality,
        amount=amount_text(action),
        times=action.times,
        reason=reason,
        policy=action.policy or None,
        pod=action.pod or None,
        uid=action.uid or None,
        sent_by=state.row.sent_by if seen is None else None,
    )


async def _policy_of(store: Store, labels: Mapping[str, str]) -> str | None:
    """Return name and version of the policy that holds on a node with these labels; None: the defaults do.

    Only policies that select the node are put, as each further one has all of them sorted anew.
    """
    policies = Policies()
    for row in await store.config(ConfigFilter(CO_LOCATION_POLICY), policies_max, None):
        policy = convert(row.object, CoLocationPolicy)
        if policy.node_selector.items() <= labels.items():
            policies.put(
                ConfigObject(
                    kind=row.kind,
                    namespace=row.namespace,
                    name=row.name,
                    content=policy,
                    resource_version=row.resource_version,
                )
            )
    return policies.of(labels).reference or None


def _heat(heat: HeatKept) -> Heat:
    return Heat(hot=heat.is_hot, why=list(heat.signs))


def _move(row: MoveRow) -> NodeMove:
    return NodeMove(
        namespace=row.namespace,
        name=row.name,
        uid=row.pod_uid,
        to=row.target,
        since=instant(row.at_ms),
        expires=instant(row.expires_ms),
    )


def _usage(record: UsageRecord) -> Usage:
    window = window_of(record)
    return Usage(
        at=instant(window.at_ms),
        resources={
            resource: Measured(
                avg=figures.avg,
                std=figures.std,
                latest=figures.latest,
                peak_yesterday=figures.peak,
                samples=len(window.series[resource].at_ms),
            )
            for resource, figures in sorted(window.measured().items())
        },
    )


def _pod(pod: PodState) -> Pod:
    return Pod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.pod_uid,
        resource_version=pod.resource_version,
        phase="pending" if pod.node is None else "orphaned" if pod.orphaned else "bound",
        node=pod.node,
        adopted=pod.adopted,
        since=instant(pod.since_ms),
        requests=quantities(pod.template.requests if pod.template else {}),
        devices=list(pod.devices),
        qos_class=pod.template.qos_class if pod.template else None,
        quality=QUALITY_OF[pod.template.qos_class] if pod.template else None,
        priority=pod.template.priority if pod.template else None,
        silent_containers=pod.template.cpu_claim.silent_count if pod.template else None,
        labels=pod.labels,
        signature=pod.signature.hex(),
        shard=pod.shard,
        decision=None if pod.seq is None else row_id(pod.shard, pod.seq),
    )


async def list_pods(store: Store, which: PodFilter, *, limit: int, at: str | None) -> PodPage:
    """Return a page of live pods."""
    after = parse_name(at) if at else None
    rows = await store.pods(which, limit, after)
    last = rows[-1].pod_uid if rows.more else rows.reached
    return PodPage(items=list(map(_pod, rows)), next=cursor(last) if last else None)


async def show_pod(store: Store, namespace: str, name: str) -> PodDetail | None:
    """Return one pod, live or gone, with its decisions and placements, latest first."""
    live = await store.pod(namespace, name)
    decisions = [
        decision_of(row, store.seen) for row in await store.pod_decisions(namespace, name, HISTORY_MAX)
    ]
    if live is None and not decisions:
        return None
    placements = await store.pod_placements(namespace, name, HISTORY_MAX)
    waiting = live is not None and live.node is None
    group = None
    if live and waiting:
        group = await show_group(store, live.shard, live.signature, is_placed=False)
    return PodDetail(
        **asdict(_pod(live) if live is not None else _gone(decisions[0])),
        group=group,
        gang=(live.template.gang or None) if live and live.template else None,
        decisions=decisions,
        placements=[
            Placement(
                node=span.node,
                uid=span.pod_uid,
                adopted=span.adopted,
                started=instant(span.bound_at_ms),
                ended=None if span.released_at_ms is None else instant(span.released_at_ms),
                decision=row_id(span.shard, span.seq),
            )
            for span in placements
        ],
    )


def _gone(last: Decision) -> Pod:
    """Return the record of a pod that is gone."""
    return Pod(
        namespace=last.pod.namespace,
        name=last.pod.name,
        uid=last.pod.uid,
        resource_version=last.pod.resource_version,
        phase="released",
        node=None,
        adopted=False,
        since=last.decided_at,
        requests=last.requests,
        devices=[],
        qos_class=None,
        quality=None,
        priority=None,
        silent_containers=None,
        labels={},
        signature=last.signature,
        shard=last.shard,
        decision=last.id,
    )


# ------------------------------------------------------- decisions, pending, shards, dead letters


async def list_decisions(
    store: Store, which: DecisionFilter, *, limit: int, at: str | None, newest_first: bool
) -> DecisionPage:
    """Return a page of decisions in commit order per shard, or the reverse."""
    after = parse_position(at) if at else None
    rows = await store.decisions(which, limit, after, newest_first)
    following = cursor(rows[-1].seq, rows[-1].shard) if rows.more else None
    return DecisionPage(items=[decision_of(row, store.seen) for row in rows], next=following)


async def list_shards(store: Store, lags: Mapping[int, Lag]) -> ShardPage:
    """Return the shards with their owners and how far they and the relay have come."""
    offsets: dict[int, list[Offset]] = {}
    for row in await store.processes.offsets():
        if not row.topic.startswith("~"):  # that is the worker's own counter, no topic of the log
            at = Offset(topic=row.topic, partition=row.partition, next_offset=row.next_offset)
            offsets.setdefault(row.shard, []).append(at)
    items = [
        Shard(
            shard=shard.shard,
            owner=shard.owner,
            epoch=shard.epoch,
            owned_since=stamp(shard.owned_since),
            lease_until=stamp(shard.lease_until),
            decisions=shard.seq_next - 1,
            published=shard.decisions_seq,
            deadletters=shard.dead_seq_next - 1,
            relay=shard.relay_owner,
            alarm=shard.alarm,
            ledger=shard.ledger,
            log_time=instant(shard.log_time_ms) if shard.log_time_ms else None,
            lag_records=lag.records if (lag := lags.get(shard.shard)) else None,
            lag_seconds=lag.seconds if lag else None,
            journal_lag_seconds=figures.journal_seconds if (figures := shard.figures) else None,
            decisions_per_second=figures.decisions_per_second if figures else None,
            moved=figures.moved if figures else None,
            conflicts=figures.conflicts if figures else None,
            offsets=offsets.get(shard.shard, []),
        )
        for shard in await store.processes.shards()
    ]
    return ShardPage(items=items)


def dead_letter_of(row: RefusedRecord) -> DeadLetter:
    """Return a dead letter as the API shows it."""
    letter = row.letter
    return DeadLetter(
        id=row_id(letter.shard, letter.seq),
        topic=letter.topic,
        partition=letter.partition,
        offset=letter.offset,
        key=None if letter.key is None else text_of(letter.key),
        code=letter.code,
        path=letter.path,
        message=letter.message,
        at=instant(letter.at_ms),
        sent_by=letter.sent_by,
        raw_bytes=row.raw_bytes,
        raw_base64=base64.b64encode(letter.raw).decode(),
        raw_text=text_of(letter.raw, cut=len(letter.raw) < row.raw_bytes),
    )


async def list_deadletters(store: Store, *, limit: int, at: str | None) -> DeadLetterPage:
    """Return a page of records that could not be accepted, latest first."""
    rows = await store.deadletters(limit, parse_position(at) if at else None)
    last = rows[-1].letter if rows.more else None
    following = None if last is None else cursor(last.seq, last.shard)
    return DeadLetterPage(items=list(map(dead_letter_of, rows)), next=following)
