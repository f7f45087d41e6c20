"""The store in memory: the API's questions, answered from a ``MemoryDatabase``."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Self

import msgspec

from domain.model.config import NAMESPACE, SEEN_BY_ALL
from domain.model.decisions import Attempt, Decision
from domain.model.pods import PodTemplate
from domain.model.usage import UsageRecord
from services.adapters.memory.access import MemoryCallers, moment
from services.adapters.memory.bills import MemoryBills
from services.adapters.memory.chronicle import MemoryChronicle
from services.adapters.memory.database import MemoryDatabase, PlacementRow
from services.adapters.memory.exports import MemoryExports
from services.adapters.memory.field import MemoryFields
from services.adapters.memory.gangs import gangs_of
from services.adapters.memory.pages import (
    beginning,
    follows,
    inside,
    letter_bytes,
    matches,
    moment_of,
    object_bytes,
    page,
    payload_bytes,
    spec_bytes,
)
from services.adapters.memory.past import MemoryPast, as_of
from services.adapters.memory.processes import MemoryProcesses
from services.adapters.memory.rollups import MemoryOverTime
from services.adapters.memory.tail import MemoryTail
from services.ports.chronicle import Chronicle
from services.ports.exports import Exports
from services.ports.field import Fields
from services.ports.ledger import (
    ConfigRow,
    DeadLetter,
    GroupAttempts,
    NodeRow,
    PendingPod,
    PodRow,
    ProfileRow,
)
from services.ports.log import PODS_TOPIC, Span
from services.ports.past import Moment, Past
from services.ports.rollups import OverTime
from services.ports.store import (
    EXAMPLES_MAX,
    Bills,
    Callers,
    ConfigFilter,
    DecisionFilter,
    DecisionRow,
    GangState,
    NodeState,
    NominatedPod,
    PlacementSpan,
    PodFilter,
    PodState,
    Processes,
    QueuePlace,
    RefusedRecord,
    Rows,
    WaitingGroup,
)
from services.ports.tail import Tail


def _name_size(row: NominatedPod) -> int:
    return len(row.name)


class MemoryStore:
    """The ``Store`` port over a ``MemoryDatabase``."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self.processes: Processes = MemoryProcesses(database)
        self.callers: Callers = MemoryCallers(database)
        self.bills: Bills = MemoryBills(database)
        self.past: Past = MemoryPast(database)
        self.moment: Moment | None = None
        self.fields: Fields = MemoryFields(database)
        self.exports: Exports = MemoryExports(database)
        self.over_time: OverTime = MemoryOverTime(database)
        self.tail: Tail = MemoryTail(database)
        self.chronicle: Chronicle = MemoryChronicle(database)
        self.seen: Collection[str] | None = None

    def seen_by(self, namespaces: Collection[str] | None) -> Self:
        """See ``Store.seen_by``."""
        narrowed = copy.copy(self)
        narrowed.seen = namespaces
        return narrowed

    def as_of(self, moment: Moment) -> Self:
        """See ``Store.as_of``."""
        narrowed = copy.copy(self)
        narrowed._database, narrowed.moment = as_of(self._database, moment), moment
        return narrowed

    def _sees(self, namespace: str) -> bool:
        return self.seen is None or namespace in self.seen

    async def aclose(self) -> None:
        """See ``Store.aclose``: there is nothing to release."""

    # ------------------------------------------------------------------------------------ nodes and pods

    def _node(self, row: NodeRow) -> NodeState:
        return NodeState(row, *self._database.spec_changes[row.id])

    async def nodes(self, limit: int, after: str | None, name: str | None) -> Rows[NodeState]:
        """See ``Store.nodes``."""
        live = [row for row in self._database.nodes.values() if not row.deleted]
        found = [row for row in live if row.name > (after or "") and (name or "") in row.name]
        rows = [self._node(row) for row in sorted(found, key=lambda row: row.name)]
        return page(rows, limit, lambda row: len(msgspec.json.encode(row.node.spec)))

    async def node(self, name: str) -> NodeState | None:
        """See ``Store.node``."""
        found = (row for row in self._database.nodes.values() if row.name == name)
        return next(map(self._node, found), None)

    async def usage(self, node: str) -> UsageRecord | None:
        """See ``Store.usage``."""
        row = self._database.measured.usage.get(node)
        return None if row is None else row.record

    def _bound(self, row: PlacementRow) -> PodState:
        pod = row.opened
        orphaned = any(node.name == pod.node and node.deleted for node in self._database.nodes.values())
        return self._state(
            pod, since_ms=pod.at_ms, node=pod.node, adopted=pod.adopted, seq=pod.seq, orphaned=orphaned
        )

    def _state(
        self,
        pod: PodRow,
        *,
        since_ms: int,
        node: str | None = None,
        adopted: bool = False,
        seq: int | None = None,
        orphaned: bool = False,
    ) -> PodState:
        return PodState(
            pod_uid=pod.pod_uid,
            namespace=pod.namespace,
            name=pod.name,
            resource_version=pod.resource_version,
            signature=pod.signature,
            labels=pod.labels,
            node=node,
            adopted=adopted,
            shard=pod.shard,
            seq=seq,
            since_ms=since_ms,
            devices=pod.life.devices if pod.life is not None else (),
            template=self._database.templates.get(pod.signature),
            orphaned=orphaned,
        )

    def _live(self) -> list[PodState]:
        pods = [self._bound(row) for row in self._database.open_placements.values()]
        pods += [self._state(pod, since_ms=pod.since_ms) for pod in self._database.pending.values()]
        return [pod for pod in pods if self._sees(pod.namespace)]

    async def pods(self, which: PodFilter, limit: int, after: str | None) -> Rows[PodState]:
        """See ``Store.pods``."""
        found = [
            pod
            for pod in self._live()
            if pod.pod_uid > (after or "")
            and which.phase in (None, "pending" if pod.node is None else "bound", pod.orphaned and "orphaned")
            and which.node in (None, pod.node)
            and which.namespace in (None, pod.namespace)
            and which.qos_class in (None, pod.template.qos_class if pod.template else "")
            and which.gang in (None, pod.template.gang.partition("/")[2] if pod.template else None)
        ]
        found.sort(key=lambda pod: pod.pod_uid)
        return page(found, limit, lambda pod: len(msgspec.json.encode(pod.labels)))

    async def pod(self, namespace: str, name: str) -> PodState | None:
        """See ``Store.pod``."""
        found = [pod for pod in self._live() if (pod.namespace, pod.name) == (namespace, name)]
        return max(found, key=lambda pod: pod.since_ms, default=None)

    async def pod_placements(self, namespace: str, name: str, limit: int) -> Sequence[PlacementSpan]:
        """See ``Store.pod_placements``."""
        spans = [
            PlacementSpan(p.shard, p.seq, p.pod_uid, p.node, p.adopted, p.at_ms, row.released_at_ms)
            for row in self._database.placements
            if ((p := row.opened).namespace, p.name) == (namespace, name) and self._sees(namespace)
        ]
        return sorted(spans, key=lambda span: (span.bound_at_ms, span.seq), reverse=True)[:limit]

    async def template(self, signature: bytes) -> PodTemplate | None:
        """See ``Store.template``."""
        return self._database.templates.get(signature)

    # ---------------------------------------------------------------------------------------- decisions

    async def decisions(
        self, which: DecisionFilter, limit: int, after: tuple[int, int] | None, newest_first: bool
    ) -> Rows[DecisionRow]:
        """See ``Store.decisions``."""
        found = [row for row in self._decisions() if matches(row[0], which)]
        found.sort(key=lambda row: (row[0].seq, row[0].shard), reverse=newest_first)
        if after is not None:
            found = [
                row for row in found if follows((row[0].seq, row[0].shard), after, newest_first=newest_first)
            ]
        return page([self._row(*row) for row in found], limit, payload_bytes)

    def _decisions(self) -> Iterable[tuple[Decision, bytes, int]]:
        for shard, rows in self._database.decisions.items():
            for (decision, payload), at_ms in zip(rows, self._database.recorded_ms[shard], strict=True):
                if self._sees(decision.namespace):
                    yield decision, payload, at_ms

    def _row(self, decision: Decision, payload: bytes, recorded_ms: int) -> DecisionRow:
        return DecisionRow(
            shard=decision.shard,
            seq=decision.seq,
            signature=decision.signature,
            cycle_seq=decision.cycle_seq,
            recorded_at=moment(recorded_ms),
            payload=payload,
        )

    async def pod_decisions(self, namespace: str, name: str, limit: int) -> Rows[DecisionRow]:
        """See ``Store.pod_decisions``."""
        found = [row for row in self._decisions() if (row[0].namespace, row[0].name) == (namespace, name)]
        found.sort(key=moment_of, reverse=True)
        return page([self._row(*row) for row in found], limit, payload_bytes)

    async def latest_decisions(self, pods: Sequence[str]) -> Rows[DecisionRow]:
        """See ``Store.latest_decisions``."""
        last = {f"{row[0].namespace}/{row[0].name}": row for row in sorted(self._decisions(), key=moment_of)}
        rows = [self._row(*last[pod]) for pod in sorted(pods) if pod in last]
        return page(rows, len(rows), payload_bytes)

    async def known_versions(self, pods: Sequence[str]) -> dict[str, int]:
        """See ``Store.known_versions``."""
        versions = {f"{pod.namespace}/{pod.name}": pod.resource_version for pod in self._live()}
        return {pod: version for pod in pods if (version := versions.get(pod)) is not None}

    async def decision(self, shard: int, seq: int) -> DecisionRow | None:
        """See ``Store.decision``."""
        found = (row for row in self._decisions() if (row[0].shard, row[0].seq) == (shard, seq))
        return next((self._row(*row) for row in found), None)

    async def attempt(self, shard: int, seq: int) -> Attempt | None:
        """See ``Store.attempt``."""
        return self._database.attempts.get((shard, seq))

    async def pending(
        self,
        shard: int | None,
        signature: bytes | None = None,
        limit: int = 1000,
        after: tuple[int, int, bytes] | None = None,
        *,
        oldest_first: bool = False,
    ) -> Rows[WaitingGroup]:
        """See ``Store.pending``."""
        groups: dict[tuple[int, bytes], list[PendingPod]] = {}
        for pod in sorted(self._database.pending.values(), key=lambda pod: pod.arrival):
            if (
                shard in (None, pod.shard)
                and signature in (None, pod.signature)
                and self._sees(pod.namespace)
            ):
                groups.setdefault((pod.shard, pod.signature), []).append(pod)
        ordered = sorted(
            (min(pod.since_ms for pod in pods) if oldest_first else -len(pods), *key)
            for key, pods in groups.items()
        )
        if after is not None:
            last = after if oldest_first else (-after[0], *after[1:])
            ordered = [place for place in ordered if place > last]
        found = [self._group(*place[1:], groups[place[1:]]) for place in ordered]
        return page(found, limit, lambda group: len(msgspec.json.encode(group.reasons)))

    async def queue_places(self, groups: Sequence[WaitingGroup]) -> dict[tuple[int, bytes], QueuePlace]:
        """See ``Store.queue_places``."""
        pods: dict[tuple[int, bytes], list[PendingPod]] = {}
        for pod in self._database.pending.values():
            pods.setdefault((pod.shard, pod.signature), []).append(pod)
        turns = {key: _turn(self._database, key[1], of_group) for key, of_group in pods.items()}
        found = {}
        for each in groups:
            key = each.shard, each.signature
            if key not in pods:  # they found nodes meanwhile
                continue
            before = [other for other in pods if other[0] == key[0] and turns[other] < turns[key]]
            attempts = self._database.group_attempts.get(key, ())
            found[key] = QueuePlace(
                attempts_count=sum(a.times for a in attempts if a.last_at_ms >= each.since_ms),
                groups_before=len(before),
                pods_before=sum(len(pods[other]) for other in before),
            )
        return found

    async def nominations(self, limit: int, after: tuple[str, int] | None) -> Rows[NominatedPod]:
        """See ``Store.nominations``."""
        rows = self._database.nominations.shown(self._sees, self._database.templates)
        return page([r for r in rows if (r.pod_uid, r.shard) > (after or ("", -1))], limit, _name_size)

    async def gangs(
        self, namespace: str | None, name: str | None, limit: int, after: tuple[str, str] | None
    ) -> Rows[GangState]:
        """See ``Store.gangs``."""
        found = [
            each
            for each in gangs_of(self._database, self._sees)
            if namespace in (None, each.namespace) and name in (None, each.name) and each[:2] > (after or ())
        ]
        return page(found, limit, lambda gang: len(msgspec.json.encode(gang.reasons)))

    def _group(self, shard: int, signature: bytes, pods: Sequence[PendingPod]) -> WaitingGroup:
        why = self._database.pending_groups.get((shard, signature))
        return WaitingGroup(
            shard=shard,
            signature=signature,
            pods_count=len(pods),
            since_ms=min(pod.since_ms for pod in pods),
            examples=[f"{pod.namespace}/{pod.name}" for pod in pods[:EXAMPLES_MAX]],
            reasons=None if why is None else why.reasons,
            unresolvable=None if why is None else why.unresolvable,
            cycle_seq=None if why is None else why.cycle_seq,
            at_ms=None if why is None else why.at_ms,
            template=self._database.templates.get(signature),
        )

    async def group_attempts(self, shard: int, signature: bytes) -> Sequence[GroupAttempts]:
        """See ``Store.group_attempts``."""
        return list(self._database.group_attempts.get((shard, signature), ()))

    async def deadletters(self, limit: int, after: tuple[int, int] | None) -> Rows[RefusedRecord]:
        """See ``Store.deadletters``."""
        letters = [each for each in self._letters() if after is None or (each.seq, each.shard) < after]
        letters.sort(key=lambda letter: (letter.seq, letter.shard), reverse=True)
        return page([beginning(each) for each in letters if self._sees_letter(each)], limit, letter_bytes)

    def _letters(self) -> Iterable[DeadLetter]:
        return (letter for _, of_shard in sorted(self._database.dead_letters.items()) for letter in of_shard)

    def _sees_letter(self, letter: DeadLetter) -> bool:
        namespace = (letter.key or b"").partition(b"/")[0]
        ours = letter.topic == PODS_TOPIC and namespace in {each.encode() for each in self.seen or ()}
        return self.seen is None or ours

    async def deadletter(self, shard: int, seq: int) -> RefusedRecord | None:
        """See ``Store.deadletter``."""
        found = (each for each in self._letters() if (each.shard, each.seq) == (shard, seq))
        return next((RefusedRecord(each, len(each.raw)) for each in found if self._sees_letter(each)), None)

    async def new_deadletters(self, since: Mapping[int, int], spans: Sequence[Span]) -> Rows[RefusedRecord]:
        """See ``Store.new_deadletters``."""
        found = [
            beginning(each)
            for each in self._letters()
            if each.shard in since and each.seq >= since[each.shard] and any(inside(each, at) for at in spans)
        ]
        return page(found, len(found), letter_bytes)

    # ------------------------------------------------------------------------------------------ profiles

    async def profiles(self, limit: int, after: str | None) -> Rows[ProfileRow]:
        """See ``Store.profiles``."""
        last = {name: row for (name, _), row in sorted(self._database.profiles.items())}
        live = [row for row in last.values() if row.spec is not None and row.name > (after or "")]
        return page(live, limit, spec_bytes)

    async def profile_revisions(self, name: str, limit: int, revision: int | None) -> Rows[ProfileRow]:
        """See ``Store.profile_revisions``."""
        rows = [row for row in self._database.profiles.values() if row.name == name]
        found = [row for row in rows if revision in (None, row.revision)]
        found.sort(key=lambda row: row.revision, reverse=True)
        return page(found, limit, spec_bytes)

    async def config(
        self, which: ConfigFilter, limit: int, after: tuple[str, str, str] | None
    ) -> Rows[ConfigRow]:
        """See ``Store.config``."""
        found = [
            row
            for key, row in sorted(self._database.config_objects.items())
            if row.object is not None
            and (after is None or key > after)
            and all(asked in (None, own) for asked, own in zip(which, key, strict=True))
            and (self._sees(row.namespace) or row.kind in SEEN_BY_ALL or self._sees_itself(row))
        ]
        return page(found, limit, object_bytes)

    def _sees_itself(self, row: ConfigRow) -> bool:
        return row.kind == NAMESPACE and self._sees(row.name)


def _turn(database: MemoryDatabase, signature: bytes, pods: Sequence[PendingPod]) -> tuple[int, int, bytes]:
    """Return what orders a group among those of its shard: a smaller one comes first."""
    template = database.templates.get(signature)
    return -(template.priority if template else 0), min(pod.arrival for pod in pods), signature
