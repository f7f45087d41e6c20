"""Values of the ledger as rows and back: resource vectors, JSON columns, and one tuple per struct."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from domain.colocation.pricing import BillLine
from domain.model.decisions import Decision
from domain.model.pods import PodLife
from services.adapters.batches import Mark
from services.codec.attempts import encode_attempt, pack_attempts
from services.ports.ledger import (
    ActionRow,
    AttemptRows,
    BatchCluster,
    ConfigRow,
    DeadLetter,
    MoveRow,
    NodeFact,
    NominationRow,
    PendingPod,
    PlacementOpened,
    ProfileRow,
    UsageRow,
)

_encode = msgspec.json.Encoder().encode


def json_text(value: Any) -> str:
    """Encode for a JSON column."""
    return _encode(value).decode()


def labels_text(labels: Mapping[str, str]) -> str | None:
    """Encode labels; no labels become NULL."""
    return _encode(labels).decode() if labels else None


def labels_texts(of: Iterable[Mapping[str, str]]) -> list[str | None]:
    """Encode the labels of many pods; nearly all of them share one mapping."""
    known: dict[int, str | None] = {}
    texts = []
    for labels in of:
        text = known.get(id(labels), "")
        if text == "":
            text = known[id(labels)] = labels_text(labels)
        texts.append(text)
    return texts


def life_text(life: PodLife | None) -> str | None:
    """Encode what is known of a pod's life; nothing becomes NULL."""
    return None if life is None else _encode(life).decode()


def array_text(values: list[int]) -> str:
    """Return numbers or truth values as the text of a Postgres array."""
    return f"{{{str(values)[1:-1]}}}"  # a list's own text: to join those of its values takes twice as long


def texts_array(values: Iterable[str]) -> str:
    """Return the text of a Postgres array whose values are in its syntax already."""
    return f"{{{','.join(values)}}}"


class ResourceIds:
    """Positions of the resource names in vectors, from 1.

    A transaction that does not commit must leave no names behind, so ``with_names`` returns a new index.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = dict(ids)
        self._names = {at: name for name, at in ids.items()}

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the names that have no position yet, sorted."""
        return sorted(set(names) - self._ids.keys())

    def with_names(self, names: Sequence[str]) -> ResourceIds:
        """Return an index with these names after all others."""
        following = max(self._names, default=0) + 1
        return ResourceIds({**self._ids, **{name: following + i for i, name in enumerate(names)}})

    def position(self, name: str) -> int:
        """Return the position of a name that is known."""
        return self._ids[name]

    def vector(self, values: Mapping[str, int]) -> list[int]:
        """Return the values by position, up to the last one that is given."""
        vector: list[int] = []
        ids = self._ids
        for name, value in values.items():
            at = ids[name]
            if at > len(vector):
                vector.extend([0] * (at - len(vector)))
            vector[at - 1] = value
        return vector

    def columns(self, values: Sequence[Mapping[str, int]]) -> list[list[int]]:
        """Return all values of each position in turn, up to the last one that any of them gives."""
        width = max((self._ids[name] for name in set().union(*values)), default=0)
        names = [self._names[at] for at in range(1, width + 1)]
        return [[value.get(name, 0) for value in values] for name in names]

    def text(self, values: Mapping[str, int]) -> str:
        """Return the vector as the text of a Postgres array."""
        return array_text(self.vector(values))

    def amounts(self, vector: Sequence[int]) -> dict[str, int]:
        """Return the values that are not zero, by name."""
        return {self._names[at]: value for at, value in enumerate(vector, start=1) if value}


def resource_names(cluster: BatchCluster) -> set[str]:
    """Return all names that the facts and claims of a batch use."""
    names: set[str] = set()
    for fact in cluster.facts:
        names.update(fact.delta)
        if fact.spec is not None:
            names.update(fact.spec.allocatable)
    for claim in cluster.claims:
        names.update(claim.delta)
    return names


def node_columns(fact: NodeFact, ids: ResourceIds) -> tuple[Any, ...]:
    """Return a new node's row: NODE_COLUMNS."""
    assert fact.spec is not None
    versions = (fact.changes, fact.changes, fact.spec_count)
    vectors = (ids.vector(fact.spec.allocatable), ids.vector(fact.delta))
    return (fact.id, fact.name, *versions, fact.deleted, *vectors)


def node_spec_columns(fact: NodeFact, ahead: int, at_ms: int, mark: Mark) -> tuple[Any, ...]:
    """Return an entry of a node's history: NODE_SPEC_COLUMNS; ``ahead``: of the version seen."""
    version = fact.version_seen + ahead + fact.changes
    return (fact.id, version, json_text(fact.spec), fact.deleted, at_ms, fact.sent_by, *mark)


def placement_columns(p: PlacementOpened, labels: str | None, mark: Mark) -> tuple[Any, ...]:
    """Return PLACEMENT_COLUMNS."""
    return (
        p.shard,
        p.seq,
        p.pod_uid,
        p.namespace,
        p.name,
        p.resource_version,
        p.signature,
        labels,
        p.node,
        p.adopted,
        p.at_ms,
        life_text(p.life),
        p.counted,
        p.gang,
        *mark,
    )


def decision_columns(d: Decision, payload: bytes) -> tuple[Any, ...]:
    """Return DECISION_COLUMNS."""
    return (
        d.shard,
        d.seq,
        d.epoch,
        d.pod_uid,
        d.namespace,
        d.name,
        d.outcome,
        d.node,
        d.profile,
        d.profile_revision,
        d.signature,
        d.cycle_seq,
        d.decided_at_ms,
        payload,
    )


def cycle_rows(attempts: Iterable[AttemptRows]) -> list[tuple[Any, ...]]:
    """Return CYCLE_COLUMNS: the attempts of each shard in one row."""
    numbers: defaultdict[int, list[int]] = defaultdict(list)
    encoded: defaultdict[int, list[msgspec.Raw]] = defaultdict(list)
    revisions: set[tuple[str, int]] = set()
    for attempt, seqs in attempts:
        packed = encode_attempt(attempt)
        revisions.add((attempt.profile, attempt.profile_revision))
        for shard, seq in seqs.items():
            numbers[shard].append(seq)
            encoded[shard].append(packed)
    by = json_text(sorted(revisions))
    return [(n, min(of), max(of), by, pack_attempts(of, encoded[n])) for n, of in numbers.items()]


def pending_columns(p: PendingPod, mark: Mark) -> tuple[Any, ...]:
    """Return PENDING_COLUMNS."""
    return (
        p.shard,
        p.arrival,
        p.pod_uid,
        p.namespace,
        p.name,
        p.resource_version,
        p.signature,
        labels_text(p.labels),
        p.since_ms,
        p.sent_by,
        p.tried,
        life_text(p.life),
        p.gang,
        *mark,
    )


def nomination_columns(n: NominationRow) -> tuple[Any, ...]:
    """Return NOMINATION_COLUMNS."""
    return (n.pod_uid, n.shard, n.namespace, n.name, n.signature, n.node, n.at_ms, n.expires_ms)


def eviction_columns(n: NominationRow) -> list[tuple[Any, ...]]:
    """Return EVICTION_COLUMNS of each victim."""
    return [(each.uid, each.shard, *each.key.split("/", 1), n.pod_uid, n.shard) for each in n.victims]


def move_columns(m: MoveRow) -> tuple[Any, ...]:
    """Return MOVE_COLUMNS."""
    whose = m.node, m.pod_uid, m.shard, m.namespace, m.name, m.target, m.decided_by
    return (*whose, m.at_ms, m.expires_ms, m.rests_until_ms, m.is_open)


def dead_letter_columns(x: DeadLetter) -> tuple[Any, ...]:
    """Return DEAD_LETTER_COLUMNS. The message may quote a NUL, which Postgres cannot hold in a text."""
    path, message = (text.replace("\0", "\ufffd") for text in (x.path, x.message))
    at = (x.shard, x.seq, x.topic, x.partition, x.offset)
    return (*at, x.key, x.raw, x.code, path, message, x.at_ms, x.sent_by)


def profile_columns(p: ProfileRow) -> tuple[Any, ...]:
    """Return the columns of UPSERT_PROFILES."""
    spec = None if p.spec is None else json_text(p.spec)
    return (p.name, p.revision, spec, p.resource_version, p.at_ms, p.sent_by)


def config_columns(c: ConfigRow) -> tuple[Any, ...]:
    """Return the columns of UPSERT_CONFIG."""
    thing = None if c.object is None else json_text(c.object)
    return (c.kind, c.namespace, c.name, thing, c.resource_version, c.at_ms, c.sent_by)


def action_columns(row: ActionRow) -> tuple[Any, ...]:
    """Return ACTION_COLUMNS."""
    a = row.action
    namespace, _, name = a.pod.partition("/")
    what = (a.node, a.at_ms, row.logged_ms, a.kind.value, a.quality, a.amount, a.times, a.reason, a.policy)
    return (*what, namespace, name, a.uid, row.sent_by)


def usage_columns(u: UsageRow) -> tuple[Any, ...]:
    """Return the columns of UPSERT_USAGE."""
    quality = None if u.record.quality is None else json_text(u.record.quality)
    return (u.record.node, u.record.at_ms, json_text(u.record.series), quality, u.sent_by)


def bill_columns(line: BillLine) -> tuple[Any, ...]:
    """Return the columns of ADD_TO_BILL."""
    return (*line[:5], *map(str, line[5:]))
