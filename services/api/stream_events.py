"""What a batch did as events of the stream: which there are, in which order, and their bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec

from domain.model.decisions import Outcome
from domain.model.nodes import NodeSpec
from services.api.answers import Taint
from services.api.answers_live import NodeChange, ShardChange
from services.api.explanation import decision_of
from services.api.formats import instant, quantities
from services.api.stream_ids import WHOLE, Place, id_of
from services.ports.journal import NodeFed
from services.ports.tail import ShardTaken, TailBatch, TailDecision

Kind = Literal["decisions", "releases", "pending", "nodes", "shards"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_WAITS = frozenset(
    (
        *(Outcome.UNSCHEDULABLE, Outcome.UNRESOLVABLE, Outcome.NOMINATED, Outcome.CLEARED),
        *(Outcome.GANG_WAITING, Outcome.CONFLICT, Outcome.BIND_FAILED),
    )
)
KIND_OF: Mapping[Outcome, Kind] = {
    each: "releases" if each is Outcome.RELEASED else "pending" if each in _WAITS else "decisions"
    for each in Outcome
}
"""The kind of event of each outcome: each decision is of one."""

_KIND_OF_TEXT: Mapping[str, Kind] = {each.value: kind for each, kind in KIND_OF.items()}
NOBODY: frozenset[str] = frozenset()
"""What a caller with namespaces of his own sees, as far as the bytes of an event depend on it."""


class Wanted(NamedTuple):
    """Which events somebody wants, and may have; None: any. ``seen``: the namespaces that he sees."""

    kinds: frozenset[str] = frozenset(KINDS)
    namespace: str | None = None
    name: str | None = None
    node: str | None = None
    since_ms: int | None = None
    seen: frozenset[str] | None = None


class Told:
    """An event of a batch. Its bytes are made when they are first wanted, once for all streams."""

    __slots__ = ("_at", "_encode", "_frames", "at_ms", "kind", "name", "namespace", "node")

    def __init__(
        self,
        kind: Kind,
        at: Place,
        at_ms: int,
        encode: Callable[[bool], bytes],
        *,
        namespace: str | None = None,
        name: str | None = None,
        node: str | None = None,
    ) -> None:
        self.kind, self._at, self.at_ms, self._encode = kind, at, at_ms, encode
        self.namespace, self.name, self.node = namespace, name, node
        self._frames: list[bytes | None] = [None, None]

    def is_wanted(self, by: Wanted) -> bool:
        """Return whether somebody wants the event, and may have it."""
        if self.kind not in by.kinds or (by.since_ms is not None and self.at_ms < by.since_ms):
            return False
        if self.namespace is not None and by.seen is not None and self.namespace not in by.seen:
            return False
        return (
            by.namespace in (None, self.namespace)
            and by.name in (None, self.name)
            and by.node in (None, self.node)
        )

    def frame(self, *, sees_all: bool) -> bytes:
        """Return the event as the stream has it."""
        found = self._frames[sees_all]
        if found is None:
            head = f"id: {id_of(self._at)}\nevent: {self.kind}\ndata: ".encode()
            found = self._frames[sees_all] = head + self._encode(sees_all) + b"\n\n"
        return found


class Events(NamedTuple):
    """The events of a batch, the place behind them, and about how many bytes they take."""

    end: Place
    events: Sequence[Told]
    size_bytes: int


_EVENT_BYTES = 700
"""What an event takes beside its bytes."""


def events_of(batch: TailBatch, ledger: bytes) -> Events:
    """Return the events of a batch: shards, then nodes, then pods. An id says how many went before."""
    end = Place(ledger, batch.position, batch.check)
    count = len(batch.taken) + len(batch.nodes) + len(batch.decisions)
    places = [end._replace(event=WHOLE if at == count - 1 else at) for at in range(count)]
    told = [
        *(_shard(batch, each) for each in batch.taken),
        *(_node(batch, each) for each in batch.nodes),
        *map(_decision, batch.decisions),
    ]
    events = [make(place) for make, place in zip(told, places, strict=True)]
    size_bytes = sum(2 * len(each.row.payload) for each in batch.decisions)
    size_bytes += _EVENT_BYTES * count + sum(2 * _size(each) for each in batch.nodes)
    return Events(end, events, size_bytes)


def _size(node: NodeFed) -> int:
    return sum(len(key) + len(value) for key, value in node.spec.labels.items()) + 500


def _shard(batch: TailBatch, taken: ShardTaken) -> Callable[[Place], Told]:
    def encode(_: bool) -> bytes:
        at = instant(batch.log_time_ms)
        change = ShardChange(shard=taken.shard, owner=taken.owner, epoch=taken.epoch, first_batch_at=at)
        return msgspec.json.encode(change)

    return lambda place: Told("shards", place, batch.log_time_ms, encode)


def node_change(spec: NodeSpec, *, deleted: bool, at_ms: int, sent_by: str | None) -> NodeChange:
    """Return a spec that a node got, as the API shows it."""
    return NodeChange(
        name=spec.name,
        deleted=deleted,
        ready=spec.ready,
        unschedulable=spec.unschedulable,
        labels=spec.labels,
        taints=[Taint(key=each.key, value=each.value, effect=each.effect) for each in spec.taints],
        allocatable=quantities(spec.allocatable),
        spec_changed_at=instant(at_ms),
        spec_sent_by=sent_by,
    )


def _node(batch: TailBatch, fed: NodeFed) -> Callable[[Place], Told]:
    spec = fed.spec

    def encode(sees_all: bool) -> bytes:
        sent_by = fed.sent_by if sees_all else None
        change = node_change(spec, deleted=fed.deleted, at_ms=batch.log_time_ms, sent_by=sent_by)
        return msgspec.json.encode(change)

    return lambda place: Told("nodes", place, batch.log_time_ms, encode, node=spec.name)


def _decision(made: TailDecision) -> Callable[[Place], Told]:
    def encode(sees_all: bool) -> bytes:
        return msgspec.json.encode(decision_of(made.row, None if sees_all else NOBODY))

    kind = _KIND_OF_TEXT[made.outcome]
    about = {"namespace": made.namespace, "name": made.name, "node": made.node}
    return lambda place: Told(kind, place, made.decided_at_ms, encode, **about)
