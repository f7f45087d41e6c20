"""Nominations: nodes that are set aside for pods until their victims have left, and these victims."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np

from domain.model.pods import PodTemplate
from domain.model.timestamps import NEVER_MS
from domain.state.devices import kept_free
from domain.state.members import discard
from domain.state.sums import Sums
from domain.state.table import NodeTable


class Victim(NamedTuple):
    """A placed pod that is to leave; ``shard`` is its own."""

    key: str
    uid: str
    shard: int


class Nomination(msgspec.Struct, frozen=True, kw_only=True):
    """A node is set aside for a waiting pod, from ``at_ms`` to ``expires_ms`` (log time).

    ``victims`` are all that were asked to leave for it; some may be gone.
    """

    key: str
    uid: str
    shard: int
    node: str
    signature: bytes
    template: PodTemplate
    at_ms: int
    expires_ms: int
    victims: tuple[Victim, ...] = ()

    @property
    def priority(self) -> int:
        """The priority of the pod."""
        return self.template.priority


_uid = attrgetter("uid")
_uid_and_shard = attrgetter("uid", "shard")  # the order of the ledger, in which a restart knows them


class Nominations:
    """All nominations that are open, of this worker and of others.

    What they ask for is in ``table.nominated``, which exists from the first of them on.

    Attributes
    ----------
    entries : dict
        Key of a waiting pod -> its nomination.
    evicted : dict
        Key of a placed pod that was asked to leave -> key of the pod for which it is. It counts on its node
        until it has left.
    version : int
        Grows whenever a nomination begins or ends.
    """

    def __init__(self, table: NodeTable, sums: Sums) -> None:
        self._table, self._sums = table, sums
        self._revision = table.resources.revision
        self._on: dict[str, dict[str, Nomination]] = {}
        self.entries: dict[str, Nomination] = {}
        self._keys: dict[str, dict[str, None]] = {}  # by the uid of waiting pods
        self._gangs: dict[str, dict[str, Nomination]] = {}
        self.evicted: dict[str, str] = {}
        self.expires_next_ms = 0  # no nomination expires before it
        self.version = 0

    def of_uid(self, uid: str) -> list[Nomination]:
        """Return the nominations of pods with a uid."""
        return [self.entries[key] for key in self._keys.get(uid, ())]

    def on(self, node: str) -> list[Nomination]:
        """Return the nominations of a node."""
        return list(self._on.get(node, {}).values())

    def of_gang(self, gang: str) -> list[Nomination]:
        """Return the nominations of pods of a gang, by uid; "" is no gang."""
        return sorted(self._gangs.get(gang, {}).values(), key=_uid_and_shard)

    def add(self, nomination: Nomination, evicted: Iterable[Victim]) -> None:
        """Set a node aside; of the victims ``evicted`` are still there."""
        key, node = nomination.key, nomination.node
        self.version += 1
        assert key not in self.entries, "a pod has one nomination"
        earliest = min(nomination.expires_ms, self.expires_next_ms) if self.entries else nomination.expires_ms
        self.expires_next_ms = earliest
        self.entries[key] = self._on.setdefault(node, {})[key] = nomination
        self._keys.setdefault(nomination.uid, {})[key] = None
        if gang := nomination.template.gang:
            self._gangs.setdefault(gang, {})[key] = nomination
        self.evicted.update((victim.key, key) for victim in evicted)
        self._count(nomination, 1)

    def end(self, key: str) -> tuple[Nomination, list[Victim]]:
        """End a nomination; return it with those of its victims that have not left, by uid: they stay."""
        nomination = self.entries.pop(key)
        self.version += 1
        discard(self._keys, nomination.uid, key)
        discard(self._on, nomination.node, key)
        if gang := nomination.template.gang:
            discard(self._gangs, gang, key)
        self._count(nomination, -1)
        left = [victim for victim in nomination.victims if self.evicted.get(victim.key) == key]
        left.sort(key=_uid)  # in the order of the ledger, in which a restart knows them
        for victim in left:
            del self.evicted[victim.key]
        return nomination, left

    def waits_for_any(self, node: str) -> bool:
        """Say whether any victim is yet to leave a node."""
        return any(
            self.evicted.get(victim.key) == each.key
            for each in self._on.get(node, {}).values()
            for victim in each.victims
        )

    def due_ms(self, now_ms: int, kept_ms: int) -> int:
        """Return the log time after ``now_ms`` at which the next nomination ends.

        One that is kept beyond its time ends ``kept_ms`` after it was made.
        """
        if not self.entries:
            return NEVER_MS
        if self.expires_next_ms > now_ms:
            return self.expires_next_ms
        ends = (e.expires_ms if e.expires_ms > now_ms else e.at_ms + kept_ms for e in self.entries.values())
        return min((end for end in ends if end > now_ms), default=NEVER_MS)

    def expired(self, now_ms: int) -> list[str]:
        """Return the keys of nominations whose time is over, by key.

        Cost: O(1) where there are none.
        """
        if not self.entries or now_ms < self.expires_next_ms:
            return []
        self.expires_next_ms = min(each.expires_ms for each in self.entries.values())
        return sorted(key for key, each in self.entries.items() if each.expires_ms <= now_ms)

    # ------------------------------------------------------------------------------------------- columns

    def count_anew(self, node: str = "") -> None:
        """Count anew what is set aside of a node that has a new row; and of all nodes where columns moved."""
        if self._revision != self._table.resources.revision:
            self._revision = self._table.resources.revision
            nodes = list(self._on)
            if self._table.nominated is not None:
                self._table.nominated[:] = 0
        else:
            nodes = [node] if node in self._on else []
        for each in nodes:
            if (row := self._table.rows.get(each)) is not None:
                self._table.nominated_columns()[:, row] = 0
            for nomination in self.on(each):
                self._count(nomination, 1)

    def _count(self, nomination: Nomination, sign: int) -> None:
        row = self._table.rows.get(nomination.node)
        if row is None:
            return  # of another worker, which has not heard yet that the node is gone
        columns, values = self.amounts(nomination)
        self._table.nominated_columns()[columns, row] += sign * values
        self._table.touch(row)

    def amounts(self, nomination: Nomination) -> tuple[np.ndarray, np.ndarray]:
        """Return what is kept free for a pod: columns int32[K] and values int64[K]."""
        return self.amounts_of(nomination.signature, nomination.template)

    def amounts_of(self, signature: bytes, template: PodTemplate) -> tuple[np.ndarray, np.ndarray]:
        """Return what is kept free for a pod of a template, as ``amounts``."""
        vector = self._sums.vector_of(signature, template)
        count = vector.lasting_count
        columns, values = vector.columns[:count], vector.values[:count]
        if vector.ask.number:
            kept, amounts = kept_free(vector.ask, self._table.resources)
            columns = np.append(columns, np.array(kept, dtype=np.int32))
            values = np.append(values, np.array(amounts, dtype=np.int64))
        return columns, values
