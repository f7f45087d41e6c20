"""The executor: ends pods that were evicted, by writing their deletion into the log, as a kubelet would.

It is for tests, demonstrations and measurements. What it has read is kept in a file, so that it goes on where
it was; a deletion that is written twice changes nothing, since it names the uid.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from domain.model.decisions import Outcome
from domain.model.errors import LogTruncated, Unavailable
from domain.model.limits import poll_records_max
from services.backoff import Backoff
from services.codec.encode import encode_event
from services.ports.log import DECISIONS_TOPIC, PODS_TOPIC, Entry, Log, Record, TopicPartition, TopicState
from services.topics import CHECK_SECONDS

_LOGGER = logging.getLogger(__name__)
_POLL_SECONDS = 0.5


class _Pod(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    uid: str


class _Leaving(msgspec.Struct):
    shard: int | None = None


class _Decided(msgspec.Struct):
    pod: _Pod
    outcome: str
    preemption: _Leaving | None = None
    migration: _Leaving | None = None


_decode = msgspec.json.Decoder(_Decided).decode


class Positions:
    """Where each partition of ``berth.decisions`` goes on, in a file; without one nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        found = json.loads(path.read_text()) if path is not None and path.exists() else {}
        self._topic = str(found.pop("topic", ""))
        self._partitions = int(found.pop("partitions", 0))
        self._moved = {int(partition): int(end) for partition, end in found.pop("moved", {}).items()}
        self.offsets = {int(partition): int(offset) for partition, offset in found.items()}

    def of(self, topic: str) -> Mapping[int, int]:
        """Return the offsets in the topic of this id; those in one before it say nothing."""
        if self._topic != topic and self._topic:
            self.offsets.clear()
            self._moved, self._partitions = {}, 0
        self._topic = topic
        return self.offsets

    def grow(self, ends: Mapping[int, int]) -> None:
        """Take the ends of all partitions. Where there are more than before, shards were added below them."""
        if 0 < self._partitions < len(ends):
            self._moved = dict(ends)
        self._partitions = len(ends)

    def is_moved(self, record: Record) -> bool:
        """Say whether a decision may be of before shards were added, when pods went to their keys' shards."""
        return record.offset < self._moved.get(record.partition, 0)

    def keep(self, records: Sequence[Record]) -> None:
        """Go on behind these records from now on."""
        self.offsets |= {record.partition: record.offset + 1 for record in records}
        if self._path is not None:
            fresh = self._path.with_suffix(".new")
            of_topic = {"topic": self._topic, "partitions": self._partitions, "moved": self._moved}
            fresh.write_text(json.dumps({**of_topic, **self.offsets}))
            os.replace(fresh, self._path)


def deletions(
    records: Sequence[Record], is_moved: Callable[[Record], bool] = lambda record: False
) -> dict[int | None, list[Entry]]:
    """Return the deletions of pods that were evicted, but for those that were spared behind.

    They are given by partition: that of the pod's other events, None where its key says it. That is so of
    decisions of before shards were added, too.
    """
    evicted: dict[_Pod, int | None] = {}
    for record in records:
        if record.value is None:
            continue
        decided = _decode(record.value)
        if decided.outcome == Outcome.EVICTED:
            said = None if is_moved(record) else decided.preemption or decided.migration
            evicted[decided.pod] = None if said is None else said.shard
        elif decided.outcome == Outcome.SPARED:
            evicted.pop(decided.pod, None)
    found: dict[int | None, list[Entry]] = {}
    for pod, partition in evicted.items():
        key, value = f"{pod.namespace}/{pod.name}".encode(), encode_event("DELETED", _manifest(pod))
        found.setdefault(partition, []).append(Entry(key, value))
    return found


def _manifest(pod: _Pod) -> dict[str, object]:
    metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


class Executor:
    """Reads all decisions, from where ``positions`` say, and deletes the pods that were evicted.

    ``report`` gets a line for each of them.
    """

    def __init__(
        self, log: Log, positions: Positions, report: Callable[[str], None] = lambda line: None
    ) -> None:
        self._log, self._positions, self._report = log, positions, report
        self.deleted_count = 0

    async def run(self) -> None:
        """Go on until cancelled; start over where the log does not answer."""
        backoff = Backoff()
        while True:
            try:
                await self._serve(backoff)
            except (Unavailable, LogTruncated) as error:
                _LOGGER.warning("the decisions cannot be read on: %s", error)
            await backoff.wait()

    async def _topic(self) -> TopicState:
        found = await self._log.topics([DECISIONS_TOPIC])
        return found.get(DECISIONS_TOPIC, TopicState("", 0))

    async def _serve(self, backoff: Backoff) -> None:
        reader, writer = await self._log.reader(), await self._log.writer()
        try:
            topic = await self._topic()
            at = [TopicPartition(DECISIONS_TOPIC, partition) for partition in range(topic.partitions)]
            first, backlogs = await reader.first_offsets(at), await self._log.backlogs(dict.fromkeys(at, 0))
            known = self._positions.of(topic.id)
            self._positions.grow({each.partition: backlogs[each].end for each in at})
            # What the log has lost at its end is published again, and read again.
            goes_on = {each: min(known.get(each.partition, 0), backlogs[each].end) for each in at}
            await reader.assign({each: max(first[each], goes_on[each]) for each in at})
            clock = asyncio.get_running_loop().time
            look_at = clock() + CHECK_SECONDS
            while clock() < look_at or await self._topic() == topic:
                look_at = look_at if clock() < look_at else clock() + CHECK_SECONDS
                records = await reader.poll(poll_records_max, _POLL_SECONDS)
                for partition, entries in deletions(records, self._positions.is_moved).items():
                    await writer.append(PODS_TOPIC, entries, partition)
                    self.deleted_count += len(entries)
                    for entry in entries:
                        self._report(f"pod {(entry.key or b'').decode()} deleted: it was evicted")
                if records:
                    self._positions.keep(records)
                backoff.reset()
        finally:
            await reader.aclose()
            await writer.aclose()
