"""The tables of preemption in memory: what the two of the ledger on Postgres hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from domain.model.errors import LedgerMismatch
from domain.model.pods import PodTemplate
from domain.state.nominations import Victim
from services.ports.ledger import BatchPods, NominationRow
from services.ports.store import NominatedPod

Key = tuple[str, int]
"""Uid and shard of a pod."""


@dataclasses.dataclass
class NominationTables:
    """Nominations of pods (``rows``), and for which of them others have to leave (``evictions``)."""

    rows: dict[Key, NominationRow] = dataclasses.field(default_factory=dict)
    evictions: dict[Key, Key] = dataclasses.field(default_factory=dict)

    def restore(self, rows: Iterable[NominationRow]) -> None:
        """Take nominations from another ledger, each with those of its victims that have not left."""
        for row in rows:
            self._add(row)

    def loaded(self) -> list[NominationRow]:
        """Return the nominations, each with those of its victims that have not left."""
        return [
            msgspec.structs.replace(row, victims=self._left(key, row))
            for key, row in sorted(self.rows.items())
        ]

    def _left(self, key: Key, row: NominationRow) -> tuple[Victim, ...]:
        left = (each for each in row.victims if self.evictions.get((each.uid, each.shard)) == key)
        return tuple(sorted(left, key=lambda victim: victim.uid))

    def shown(
        self, sees: Callable[[str], bool], templates: Mapping[bytes, PodTemplate]
    ) -> Iterator[NominatedPod]:
        """Yield the nominations of the namespaces that are seen, as ``Store.nominations`` has them."""
        for row in self.loaded():
            if sees(row.namespace):
                victims = [each.key for each in row.victims if sees(each.key.partition("/")[0])]
                when = row.at_ms, row.expires_ms
                of = row.pod_uid, row.namespace, row.name, row.shard, row.node
                yield NominatedPod(*of, *when, victims, templates.get(row.signature))

    def check(self, pods: BatchPods, shards: Sequence[int]) -> None:
        """Refuse what a primary key would refuse."""
        if not pods.nominated:
            return
        ended, closed = self._ended(pods, shards), self._closed(pods, shards)
        nominated = [(row.pod_uid, row.shard) for row in pods.nominated]
        if len(set(nominated)) != len(nominated) or not (self.rows.keys() - ended).isdisjoint(nominated):
            raise LedgerMismatch("nominations_pkey: a pod would have two nominations")
        evicted = {key for key, by in self.evictions.items() if by not in ended} - closed
        victims = [(each.uid, each.shard) for row in pods.nominated for each in row.victims]
        if len(set(victims)) != len(victims) or not evicted.isdisjoint(victims):
            raise LedgerMismatch("evictions_pkey: a pod would be evicted for two")

    def write(self, pods: BatchPods, shards: Sequence[int]) -> None:
        """Take what left, what ended and what is nominated anew, in this order."""
        if self.evictions:
            for key in self._closed(pods, shards):
                self.evictions.pop(key, None)
        for ended in self._ended(pods, shards):
            del self.rows[ended]
            for victim in [victim for victim, by in self.evictions.items() if by == ended]:
                del self.evictions[victim]
        for row in pods.nominated:
            self._add(row)

    def _add(self, row: NominationRow) -> None:
        self.rows[row.pod_uid, row.shard] = row
        self.evictions |= {(each.uid, each.shard): (row.pod_uid, row.shard) for each in row.victims}

    def _closed(self, pods: BatchPods, shards: Sequence[int]) -> set[Key]:
        return {(closed.pod_uid, shard) for closed in pods.closed for shard in shards}

    def _ended(self, pods: BatchPods, shards: Sequence[int]) -> set[Key]:
        return {(uid, shard) for uid in pods.unnominated for shard in shards} & self.rows.keys()
