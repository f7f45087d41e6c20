"""Says which shard decides for a pod: that of its gang, if it has one, else the one that reads its events.

A pod that comes with the label of a gang is handed over to the home of the gang, and so is everything that
is said of its key from then on, with the label or without. A pod that is known stays where it is. So one
shard at a time has anything to say of a key, and hears it in the order of the log. What comes late of an
earlier pod of the name goes where that pod went: the shard that decided for it knows that it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from domain.model.events import BindFailed, Event, PodDeleted, PodUpserted, ProfileEvent
from domain.model.pods import PodSpec
from domain.state.cluster import ClusterState
from services.codec.effects import Source
from services.codec.partition import partition_for
from services.ports.inbox import (
    Forwarded,
    Handed,
    InboxRecord,
    Lanes,
    Sent,
    Waiting,
    handed_topic,
    home_of,
    lanes_of,
    source_of,
)
from services.ports.ledger import LedgerPart
from services.ports.log import Record

WAIT = -1
"""The home of a record that waits: the shard of the last pod of its name does not know that it is gone."""


def is_member(event: Event | ProfileEvent | None) -> bool:
    """Say whether an event is of a pod that names a gang. Every pod of many shards comes by here."""
    if type(event) is BindFailed:
        event = event.pod
    return type(event) is PodUpserted and event.pod.template.gang != ""


def gang_home(pod: PodSpec, shards_count: int) -> int | None:
    """Return the home shard of a pod's gang: the partition that the key of its PodGroup would have."""
    gang = pod.template.gang
    return partition_for(gang.encode(), None, shards_count) if gang else None


class Forwarding:
    """The keys that own shards forward, and how far each shard's inboxes are written and read.

    Parameters
    ----------
    lanes : mapping
        How far the inboxes of all shards are written and read, as the ledger says it with the rest of what
        is known here.

    Attributes
    ----------
    routes : dict of str to Forwarded
        Of the last pod of each key, of own shards. It stays the same object.
    """

    def __init__(self, shards_count: int, lanes: Lanes, state: ClusterState) -> None:
        self.routes: dict[str, Forwarded] = {}
        self._former: dict[tuple[str, str], Forwarded] = {}  # by key and uid: earlier pods of these keys
        self._shards_count = shards_count
        self._state = state
        self._ends: dict[tuple[int, int], int] = {}  # (source, home) -> the next number to be written
        self._taken: dict[tuple[int, int], int] = {}  # the next one to be folded
        self._read: dict[tuple[int, int], int] = {}  # the next one to be read here, of own homes
        self._rows: list[Handed] = []
        self._changed: dict[tuple[str, str], Forwarded] = {}
        self.note(lanes)

    def note(self, lanes: Lanes) -> None:
        """Take note how far inboxes are written and read now, by a batch that is followed, or own shards."""
        for (shard, topic), number in lanes.items():
            if (home := home_of(topic)) is not None:
                self._ends[shard, home] = number
            elif (source := source_of(topic)) is not None:
                self._taken[source, shard] = number

    def take_shards(self, part: LedgerPart) -> None:
        """Forward keys of the shards of a part, which are own now, and read what was handed over to them."""
        self.note(lanes_of(part.offsets))
        self.routes |= {row.key: row for row in part.forwarded if row.is_last}
        self._former |= {(row.key, row.uid): row for row in part.forwarded if not row.is_last}
        for lane in self._ends:
            if lane[1] in part.seq_next:
                self._read[lane] = self._taken.get(lane, 0)

    def give_shards(self, shards: Collection[int]) -> None:
        """Leave the keys of these shards, and what was handed over to them, to others."""
        self._drop(lambda row: row.shard in shards)
        self._read = {lane: number for lane, number in self._read.items() if lane[1] not in shards}

    def forget(self, before_ms: int) -> None:
        """Forget pods that were gone before this log time: no late duplicate comes any more."""
        self._drop(lambda row: (row.gone_at_ms or before_ms) < before_ms)

    def _drop(self, which: Callable[[Forwarded], bool]) -> None:
        for key in [key for key, row in self.routes.items() if which(row)]:
            del self.routes[key]
        self._former = {pod: row for pod, row in self._former.items() if not which(row)}

    # -------------------------------------------------------------------------------------------- records

    def send(
        self,
        event: Event | ProfileEvent | None,
        record: Record,
        now_ms: int,
        ends: dict[Source, int],
        here: list[InboxRecord],
    ) -> int:
        """Hand a record of pods over to its home, and return this; else the shard that read it, or ``WAIT``.

        ``ends`` takes how far the inbox is written, ``here`` what is to be folded here next.
        """
        shard = record.partition
        if isinstance(event, BindFailed):
            event = event.pod
        if not isinstance(event, PodUpserted | PodDeleted):
            return shard
        key = event.pod.key if isinstance(event, PodUpserted) else f"{event.namespace}/{event.name}"
        uid = event.pod.uid if isinstance(event, PodUpserted) else event.uid
        row, former = self.routes.get(key), self._former.get((key, uid))
        if row is None and former is None and not is_member(event):
            return shard
        if isinstance(event, PodUpserted) and self._is_late(event.pod):
            return shard  # it is folded here, and changes nothing
        home = self._home(event, shard) if former is None else former.home
        if home == WAIT or (home == shard and row is None):
            return home
        lane, number = (shard, home), self._ends.get((shard, home), 0)
        if former is None:
            self._remember(key, event, shard, home, number, max(now_ms, record.timestamp_ms))
        if home == shard:
            return home
        self._ends[lane] = ends[shard, handed_topic(home), shard] = number + 1
        said = record.offset, record.key, record.value, record.timestamp_ms, record.seal
        handed = Handed(home, shard, number, *said)
        self._rows.append(handed)
        if home in self._own and self._read.get(lane, 0) == number:
            self._read[lane] = number + 1
            here.append(handed.record())
        return home

    @property
    def _own(self) -> Collection[int]:
        return self._state.own

    def _home(self, event: PodUpserted | PodDeleted, shard: int) -> int:
        if isinstance(event, PodDeleted):
            row = self.routes.get(f"{event.namespace}/{event.name}")
            return shard if row is None else row.home
        pod = event.pod
        row = self.routes.get(pod.key)
        gang = gang_home(pod, self._shards_count)
        if row is None:
            if gang is None or gang == shard:
                return shard
            known = self._state.pods.get(pod.key)
            return shard if known is not None and known.shard == shard else gang
        if row.gone_number is None or pod.uid == row.uid or gang in (None, row.home):
            return row.home
        # Another pod, of another gang: wherever it goes, the end of the last one must be known there.
        is_heard = row.home == shard or self._taken.get((shard, row.home), 0) > row.gone_number
        return gang if is_heard and gang is not None else WAIT

    def _is_late(self, pod: PodSpec) -> bool:
        """Say whether a pod is known to be gone here: it was of this shard before its name was forwarded."""
        return bool(self._state.tombstones.why_late(pod.key, pod.uid, pod.resource_version))

    def _remember(
        self, key: str, event: PodUpserted | PodDeleted, shard: int, home: int, number: int, now_ms: int
    ) -> None:
        """Keep in mind where the events of a pod go, and the last one of a pod that is gone."""
        row = self.routes.get(key)
        if isinstance(event, PodDeleted):
            assert row is not None
            if event.uid not in ("", row.uid):
                self._change(Forwarded(shard, key, home, event.uid, None, now_ms))
            elif row.gone_number is None:
                self._change(row._replace(gone_number=number, gone_at_ms=now_ms))
            else:
                self._change(row._replace(gone_number=number))
            return
        uid = event.pod.uid
        if row is None or row.uid != uid:
            if row is not None:
                self._change(row._replace(gone_number=None, gone_at_ms=row.gone_at_ms or now_ms))
            self._change(Forwarded(shard, key, home, uid))
        elif row.gone_number is not None:  # a late duplicate, unless nothing tells it from a new pod
            self._change(row._replace(gone_number=number) if uid != key else Forwarded(shard, key, home, uid))

    def _change(self, row: Forwarded) -> None:
        self._changed[row.key, row.uid] = row
        if row.is_last:
            self.routes[row.key] = row
        else:
            self._former[row.key, row.uid] = row

    def fold(self, record: InboxRecord) -> Record:
        """Note that a record of an own inbox is folded; return the one of the log."""
        self._taken[record.read.partition, record.partition] = record.offset + 1
        return record.read

    # ----------------------------------------------------------------------------------------------- rows

    def written(self) -> Sent:
        """Return what was handed over since the last call, and the pods whose way changed."""
        found = Sent(self._rows, list(self._changed.values()))
        self._rows, self._changed = [], {}
        return found

    def waiting(self) -> list[Waiting]:
        """Return what waits in the ledger for own shards, and was not read here yet."""
        return [
            Waiting(home, source, lo, end)
            for (source, home), end in self._ends.items()
            if home in self._own and (lo := self._read.get((source, home), 0)) < end
        ]

    def got(self, rows: Iterable[Handed]) -> None:
        """Note that these rows were read."""
        for row in rows:
            self._read[row.source, row.home] = row.number + 1

    def waiting_counts(self) -> dict[int, int]:
        """Return for each own shard how many events its inbox holds that are not folded yet."""
        counts = dict.fromkeys(self._own, 0)
        for (source, home), end in self._ends.items():
            if home in counts:
                counts[home] += end - self._taken.get((source, home), 0)
        return counts
