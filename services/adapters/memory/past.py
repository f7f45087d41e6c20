"""A ledger in memory as it was at a moment, and what differs between two of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from domain.model.decisions import Outcome
from domain.model.devices import amounts
from domain.model.nodes import NodeSpec
from services.adapters.memory.database import MemoryDatabase, PlacementRow
from services.ports.journal import batches_of
from services.ports.ledger import NodeRow, PendingGroup
from services.ports.past import (
    CHANGES_MAX,
    BatchId,
    Changes,
    Moment,
    NodeChange,
    OutOfReach,
    PodChange,
    Totals,
)

Pod = tuple[str, str, str]
"""Uid, namespace and name."""


class MemoryPast:
    """The ``Past`` port over a ``MemoryDatabase``."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def moment(self, at: int | BatchId) -> Moment:
        """See ``Past.moment``."""
        return moment_of(self._database, at)

    async def totals(self, moment: Moment | None, seen: Sequence[str] | None) -> Totals:
        """See ``Past.totals``."""
        return _totals(self._database if moment is None else as_of(self._database, moment), seen)

    async def changes(self, before: Moment, after: Moment, seen: Sequence[str] | None) -> Changes:
        """See ``Past.changes``."""
        return changes_between(self._database, before, after, seen)


def moment_of(database: MemoryDatabase, at: int | BatchId) -> Moment:
    """See ``Past.moment``."""
    rows = sorted(database.journal.values(), key=lambda row: row.position)
    if isinstance(at, int):
        later = (row.position - 1 for row in rows if row.log_time_ms > at)
        position = min(later, default=rows[-1].position if rows else 0)
    elif (found := database.journal.get(at)) is not None:
        position = found.position
    else:
        raise OutOfReach(f"the journal of shard {at.shard} has no batch {at.batch}")
    firsts = {row.shard: row for row in reversed(rows)}
    pruned = [row.position - 1 for row in firsts.values() if row.batch > 1]
    if position < max(pruned, default=0):
        raise OutOfReach("the past is not known as far back")
    counted = [row for row in rows if row.position <= position]
    behind = [row for row in rows if row.position > position]
    last = {row.shard: row.batch for row in counted}
    first = {row.shard: row.batch - 1 for row in reversed(behind)}
    now = batches_of({at: row.next_offset for at, row in database.offsets.items()})
    seqs = {shard: row.seq_next for shard, row in database.shards.items()}
    for row in reversed(behind):
        seqs |= {shard: low for shard, (low, _) in row.seqs.items()}
    return Moment(
        position,
        max((row.log_time_ms for row in counted), default=0),
        [first.get(shard, last.get(shard, now.get(shard, 0))) for shard in sorted(seqs)],
        [seqs[shard] for shard in sorted(seqs)],
    )


def changes_between(
    database: MemoryDatabase, before: Moment, after: Moment, seen: Sequence[str] | None
) -> Changes:
    """See ``Past.changes``: both states are compared whole."""
    one, two = as_of(database, before), as_of(database, after)
    placed, waited = (_placed(one), _placed(two)), (_waiting(one), _waiting(two))
    evicted = {
        decision.pod_uid
        for shard, rows in two.decisions.items()
        for decision, _ in rows
        if decision.outcome is Outcome.EVICTED and decision.seq >= before.seqs[shard]
    }
    pods = []
    for pod in sorted(set().union(*placed, *waited)):
        node, node_after = (part.get(pod) for part in placed)
        waits, waits_after = (pod in part for part in waited)
        if (node != node_after or waits != waits_after) and (seen is None or pod[1] in seen):
            found = PodChange(*pod, node, node_after, waits, waits_after, pod[0] in evicted)
            pods.append(found)
    offered = _offered(one), _offered(two)
    nodes_changed = [
        NodeChange(name, offered[0].get(name), offered[1].get(name))
        for name in sorted(offered[0].keys() | offered[1].keys())
        if offered[0].get(name) != offered[1].get(name)
    ]
    more = max(len(pods), len(nodes_changed)) > CHANGES_MAX
    return Changes(pods[:CHANGES_MAX], nodes_changed[:CHANGES_MAX], more)


def _placed(database: MemoryDatabase) -> dict[Pod, str]:
    rows = (row.opened for row in database.open_placements.values())
    return {(each.pod_uid, each.namespace, each.name): each.node for each in rows}


def _waiting(database: MemoryDatabase) -> set[Pod]:
    return {(each.pod_uid, each.namespace, each.name) for each in database.pending.values()}


def _offered(database: MemoryDatabase) -> dict[str, NodeSpec]:
    return {row.name: row.spec for row in database.nodes.values() if not row.deleted and row.spec is not None}


def _totals(database: MemoryDatabase, sees: Sequence[str] | None) -> Totals:
    """Return the sums over the cluster."""
    live = [row for row in database.nodes.values() if not row.deleted]
    offered: Counter[str] = Counter()
    requested: Counter[str] = Counter()
    for row in live:
        offered.update({} if row.spec is None else row.spec.allocatable)
        requested.update(row.requested)
    placed = [
        row for row in database.open_placements.values() if sees is None or row.opened.namespace in sees
    ]
    gone = {row.name for row in database.nodes.values() if row.deleted}
    waiting = [pod for pod in database.pending.values() if sees is None or pod.namespace in sees]
    return Totals(
        nodes_count=len(live),
        allocatable={name: amount for name, amount in sorted(offered.items()) if amount},
        requested={name: amount for name, amount in requested.items() if amount},
        bound_count=len(placed),
        orphaned_count=sum(row.opened.node in gone for row in placed),
        pending_count=len(waiting),
        groups_count=len({(pod.shard, pod.signature) for pod in waiting}),
    )


def as_of(database: MemoryDatabase, moment: Moment) -> MemoryDatabase:
    """Return a ledger that holds what this one held at a moment, for the questions of ``Store.as_of``."""
    at, past = moment.position, database.past
    then = MemoryDatabase(len(database.shards), database.now_ms)
    then.templates = database.templates
    _write_placements(then, database, at)
    then.pending = {key: pod for key, pod in database.pending.items() if past.pending_added.get(key, 0) <= at}
    waited = [each for each in past.waited if each.added <= at < each.removed]
    then.pending |= {(each.pod.pod_uid, each.pod.shard): each.pod for each in waited}
    then.pending = {
        key: msgspec.structs.replace(pod, resource_version=None) for key, pod in then.pending.items()
    }
    then.config_objects = {
        key: row for key, row in database.config_objects.items() if past.config_set.get(key, 0) <= at
    }
    held = [each.row for each in past.objects if each.set <= at < each.until]
    then.config_objects |= {(row.kind, row.namespace, row.name): row for row in held}
    then.profiles = {
        key: row for key, row in database.profiles.items() if past.profiles_set.get(key, 0) <= at
    }
    then.attempts = database.attempts
    for shard, rows in database.decisions.items():
        count = sum(decision.seq < moment.seqs[shard] for decision, _ in rows)
        then.decisions[shard] = rows[:count]
        then.recorded_ms[shard] = database.recorded_ms[shard][:count]
    _write_nodes(then, database, at)
    _write_groups(then, database, at)
    return then


def _write_placements(then: MemoryDatabase, database: MemoryDatabase, at: int) -> None:
    homes = {id(row): shard for (_, shard), row in database.open_placements.items()}
    for row in database.placements:
        if row.opened_at > at:
            continue
        is_open = row.released_at_ms is None or row.closed_at > at
        labels = next((labels for until, labels in row.labels_until if until > at), row.opened.labels)
        opened = msgspec.structs.replace(row.opened, labels=labels, resource_version=None)
        kept = PlacementRow(opened, None if is_open else row.released_at_ms)
        then.placements.append(kept)
        if is_open:
            then.open_placements[opened.pod_uid, homes.get(id(row), opened.shard)] = kept


def _write_nodes(then: MemoryDatabase, database: MemoryDatabase, at: int) -> None:
    requested: dict[str, Counter[str]] = {}
    for row in then.open_placements.values():
        template = then.templates.get(row.opened.signature)
        if row.opened.counted and template is not None:
            held = requested.setdefault(row.opened.node, Counter())
            devices = () if row.opened.life is None else row.opened.life.devices
            held.update({**template.requests, "pods": 1, **amounts(template.requests, devices)})
    for number, specs in database.past.specs.items():
        told = [each for each in specs if each.position <= at]
        if told:
            last, name = told[-1], database.nodes[number].name
            held = requested.get(name, Counter())
            then.restore_node(
                NodeRow(
                    id=number,
                    name=name,
                    version=0,
                    spec=last.spec,
                    requested={of: amount for of, amount in held.items() if amount},
                    deleted=last.deleted,
                )
            )
            then.spec_changes[number] = last.at_ms, last.sent_by


def _write_groups(then: MemoryDatabase, database: MemoryDatabase, at: int) -> None:
    """Write why groups wait: the last attempt by then, unless the next ones were forgotten."""
    past = database.past
    begun = {key for key in database.pending_groups if past.groups_begun.get(key, 0) <= at}
    begun |= {
        key for key, kept in past.refused.items() if any(each.begun <= at < each.emptied for each in kept)
    }
    for key, kept in database.group_attempts.items():
        told = [each for each in kept if past.attempts_noted.get((*key, each.number), 0) <= at]
        if not told:
            continue
        then.group_attempts[key] = told
        last = told[-1]
        is_followed = len(told) == len(kept) or kept[len(told)].number == last.number + 1
        if key in begun and is_followed:
            fields = {name: getattr(last, name) for name in PendingGroup.__struct_fields__}
            then.pending_groups[key] = PendingGroup(**fields)
