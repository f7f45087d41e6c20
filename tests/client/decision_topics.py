"""A topic of decisions in memory, and what ledger, relays and broker do to it, as docs/events.md says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from berth.client.kafka import Checkpoint, Decided, Item, ShardCheckpoint, Voided
from berth.client.kafka.shard import Shard

SHARD = 3


class Record(NamedTuple):
    """A record as aiokafka reads it."""

    offset: int
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def name_of(record: Record) -> bytes | None:
    """Return the name of the ledger that a record is of."""
    return dict(record.headers).get("berth-ledger")


def decision(seq: int, content: str) -> bytes:
    """Return a record's value."""
    told: dict[str, Any] = {
        "id": f"{SHARD}-{seq}", "shard": SHARD, "epoch": 1, "seq": seq,
        "pod": {"namespace": "shop", "name": content, "uid": content, "resource_version": "7"},
        "outcome": "bound", "node": "n1", "decided_at": "2026-01-01T00:00:00Z", "event_at": None,
        "sent_by": "direct", "profile": "default-scheduler", "profile_revision": 1, "reason": "",
        "reasons": {}, "score": 1.0,
        "template": {"signature": "00ff", "requests": {"cpu": 1500, "memory": 2**30}},
        "labels": {"app": content}, "node_version": None, "recorded_at": "2026-01-01T00:00:01Z",
    }  # fmt: skip
    return json.dumps(told).encode()


class Topic:
    """One partition, and the ledger whose decisions a relay writes into it."""

    def __init__(self) -> None:
        self.first = 0
        self.records: list[Record] = []
        self.ledger: list[str] = []  # the content of each decision, from seq 1
        self._generation = 0
        self._published = 0
        self._made = 0

    @property
    def end(self) -> int:
        """The offset behind the last record."""
        return self.first + len(self.records)

    @property
    def name(self) -> bytes:
        """The ledger's present name."""
        return b"ledger.pg.1.%d" % self._generation

    def decide(self, count: int) -> None:
        """Let the ledger decide so often."""
        for _ in range(count):
            self._made += 1
            self.ledger.append(f"p{self._made}")

    def publish(self, count: int) -> None:
        """Let the relay write the next decisions."""
        for _ in range(min(count, len(self.ledger) - self._published)):
            self._published += 1
            self.write(self._published, self.name)

    def write(self, seq: int, name: bytes | None, content: str | None = None) -> None:
        """Write a decision under a name; without a content the ledger's own."""
        said = content or self.ledger[seq - 1]
        headers = () if name is None else (("berth-ledger", name),)
        self.records.append(Record(self.end, decision(seq, said), headers))

    def die(self, count: int) -> None:
        """Let another relay take over, which does not know what of the last decisions is written."""
        self._published = max(0, self._published - count)

    def set_back(self, count: int) -> None:
        """Restore the ledger from a backup: it has another name, under which it repeats its last decision."""
        del self.ledger[max(0, len(self.ledger) - count) :]
        self._generation += 1
        self._published = max(0, min(self._published, len(self.ledger)) - 1)

    def be_late(self, seq: int) -> None:
        """Let a relay write that knows nothing of the present name, or a client that has no name."""
        names = list(dict.fromkeys(filter(None, map(name_of, self.records))))
        earlier = [*names[:-1], None]
        self.write(seq, earlier[seq % len(earlier)], f"late-{seq}")

    def lose_end(self, count: int, blind: int) -> None:
        """Lose the last records; the relay writes some more before it sees that, and then what is lost.

        Of a loss that takes the present name with it, it learns at once.
        """
        kept = self.records[: max(0, len(self.records) - count)]
        lost, self.records = self.records[len(kept) :], kept
        if self.name in map(name_of, kept):
            self.publish(blind)
        seqs = [json.loads(each.value or b"")["seq"] for each in lost if name_of(each)]
        self._published = min([self._published, *(seq - 1 for seq in seqs)])

    def make_anew(self) -> None:
        """Delete the topic and make it again: the relay writes all that the ledger keeps."""
        self.records, self.first, self._published = [], 0, 0

    def cut(self, count: int) -> None:
        """Let retention take the first records."""
        count = min(count, len(self.records))
        self.records, self.first = self.records[count:], self.first + count


class Reader:
    """Keeps what it was told, and its checkpoint, in one transaction; begins anew when it is killed."""

    checkpoint_first = False
    """Stores its checkpoint before the effect, as no reader may."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._stored = Checkpoint().to_json()
        self.effects: list[tuple[int, str]] = []
        self.voided = 0
        self.restart()

    def restart(self) -> None:
        """Die, and begin again from what is stored."""
        stored = Checkpoint.from_json(self._stored).shards.get(SHARD, ShardCheckpoint())
        self.shard = Shard(SHARD, stored)
        self.look()

    def look(self) -> None:
        """Look whether the topic is the one that was read, as a reader does now and then in a quiet one."""
        self._at = self.shard.begin(self._topic.first, self._topic.end)

    def read(self, count: int, *, stores: bool = True) -> None:
        """Read so many records; without ``stores`` it is killed before the transaction ends."""
        effects = list(self.effects)
        for record in self._next(count):
            brought = self.shard.fold(record)
            if brought is None:
                self.look()
                continue
            self._at = record.offset + 1
            for item in brought:
                self._take(effects, item)
        if stores or self.checkpoint_first:
            self._stored = Checkpoint({SHARD: self.shard.checkpoint()}).to_json()
        if stores:
            self.effects = effects
        else:
            self.restart()

    def _next(self, count: int) -> Iterator[Record]:
        for _ in range(count):
            if not self._topic.first <= self._at <= self._topic.end:
                self.look()
            if self._at < self._topic.end:
                yield self._topic.records[self._at - self._topic.first]

    def _take(self, effects: list[tuple[int, str]], item: Item) -> None:
        match item:
            case Decided():
                effects.append((item.decision.seq, item.decision.pod.name))
            case Voided():
                effects[:] = [each for each in effects if not item.first <= each[0] <= item.last]
                self.voided += 1
