"""Records that were read and are not folded yet: decoded once, and searched for pods that come first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from domain.cycle.schedule import Scheduler
from domain.model.config import PRIORITY_CLASS
from domain.model.events import ConfigDeleted, ConfigUpserted, Event, PodUpserted, ProfileEvent
from domain.model.limits import read_ahead_records_max
from domain.state.cluster import ClusterState
from services.codec.decode import Decoded, Decoder
from services.ports.inbox import InboxRecord
from services.ports.log import Record, TopicPartition
from services.worker.ledger_view import LedgerView

_NOBODY = -(2**31)


class ReadAhead:
    """The next records, in the order of the log.

    Attributes
    ----------
    records : list of Record
    handed : list of InboxRecord
        What other shards handed over. They come before all records and never wait, so that no two shards
        wait for each other.
    """

    def __init__(self, scheduler: Scheduler, ledger_view: LedgerView) -> None:
        self._scheduler, self._ledger_view, self._state = scheduler, ledger_view, scheduler.state
        self._value_of = self._state.config.priorities.value_of
        self._decode = Decoder().decode
        self._decoded: list[Decoded] = []
        self._idle: set[tuple[TopicPartition, int]] = set()
        self._priorities: list[int] = []  # of the first records: that of a pod that waits
        self.records: list[Record] = []
        self.handed: list[InboxRecord] = []

    def add(self, records: Sequence[Record]) -> None:
        """Add records that were read; those that were handed over stand first."""
        if records and type(records[0]) is InboxRecord:
            self.handed += [record for record in records if isinstance(record, InboxRecord)]
            records = [record for record in records if not isinstance(record, InboxRecord)]
        self.records += records
        self._decoded += map(self._read if self._idle else self._decode, records)

    def pass_over(self, idle: Iterable[tuple[TopicPartition, int]]) -> None:
        """Take nothing from the records at these places but that they were read."""
        self._idle.update(idle)

    def _read(self, record: Record) -> Decoded:
        at = TopicPartition(record.topic, record.partition)
        return Decoded(None, None) if (at, record.offset) in self._idle else self._decode(record)

    def drop_shards(self, shards: Collection[int]) -> None:
        """Forget the records of these shards."""
        kept = [i for i, record in enumerate(self.records) if record.partition not in shards]
        self.records = [self.records[i] for i in kept]
        self._decoded = [self._decoded[i] for i in kept]
        self._priorities.clear()
        self._idle = {each for each in self._idle if each[0].partition not in shards}
        self.handed = [record for record in self.handed if record.partition not in shards]

    def forget_folded(self, count: int, handed: Sequence[InboxRecord] = ()) -> None:
        """Forget the first records: they are folded. ``handed`` are new ones."""
        count -= (handed_count := min(count, len(self.handed)))
        self.handed = [*self.handed[handed_count:], *handed]
        if count and changes_plans(self._decoded[count - 1].event):
            self._priorities.clear()  # priority classes may be others now
        del self.records[:count], self._decoded[:count], self._priorities[:count]

    def batch(self, due: int | None, *, looks_on: bool) -> Iterator[tuple[Record, Decoded]]:
        """Yield what was handed over, then the first ``due`` records, None: all.

        Then come those that are to be folded before pods are tried. ``looks_on`` is False where there are
        none.
        """
        for record in self.handed:
            yield record, self._decode(record.read)
        records, decoded = self.records, self._decoded
        yield from zip(records[:due], decoded[:due], strict=True)
        if looks_on and due is not None and due < len(records):
            end = due + self._count_first(due)
            yield from zip(records[due:end], decoded[due:end], strict=True)

    def _count_first(self, due: int) -> int:
        """Return how many records behind the first ``due`` have to be folded before any pod is tried.

        They end with the last pod of a higher priority than one that waits. With the pods that wait and were
        not tried yet they are ``read_ahead_records_max`` at most, so that these are no more in the long run.
        """
        known = self._priorities
        known += map(self._priority_of, self._decoded[len(known) :])
        found = known[due : due + max(0, read_ahead_records_max - len(self._ledger_view.untried))]
        if not found or max(found) <= self._state.index.lowest_priority:
            return 0
        lowest = self._scheduler.queue.lowest_priority
        for i in range(len(found), 0, -1):
            if found[i - 1] > lowest and self._is_new(self._decoded[due + i - 1]):
                return i
        return 0

    def _priority_of(self, decoded: Decoded) -> int:
        event = decoded.event
        if not isinstance(event, PodUpserted):
            return _NOBODY
        pod, asked = event.pod, event.priority_class
        if pod.node_name or pod.finished or pod.template.gates:
            return _NOBODY
        return pod.template.priority if asked is None else self._value_of(pod.template, asked)

    def _is_new(self, decoded: Decoded) -> bool:
        assert isinstance(decoded.event, PodUpserted)
        known = self._state.pods.get(decoded.event.pod.key)
        return known is None or known.spec.uid != decoded.event.pod.uid


def changes_plans(event: Event | ProfileEvent | None) -> bool:
    """Say whether an event changes how pods are planned that come after it: a profile, a priority class.

    It is a batch of its own. All other configuration changes what pods find, as nodes do.
    """
    if isinstance(event, ConfigUpserted | ConfigDeleted):
        return event.kind == PRIORITY_CLASS
    return isinstance(event, ProfileEvent)


def is_of_use(event: Event | ProfileEvent | None, state: ClusterState) -> bool:
    """Say whether an event that comes once more is about a known pod, or an object that was not kept.

    What it changed otherwise is in the ledger.
    """
    if isinstance(event, PodUpserted):
        known = state.pods.get(event.pod.key)
        return known is not None and known.spec.uid == event.pod.uid and not event.pod.finished
    return isinstance(event, ConfigUpserted | ConfigDeleted) and event.kind != PRIORITY_CLASS
