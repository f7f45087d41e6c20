"""The log: ordered records in topics and partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from domain.model.errors import Unavailable

NODES_TOPIC = "berth.nodes"
PODS_TOPIC = "berth.pods"
USAGE_TOPIC = "berth.usage"
CONFIG_TOPIC = "berth.config"
TICKS_TOPIC = "berth.ticks"
DECISIONS_TOPIC = "berth.decisions"
DEAD_LETTER_TOPIC = "berth.deadletter"
SCALES_TOPIC = "berth.scales"


class TopicSpec(NamedTuple):
    """A topic to create: compacted ones keep the latest record per key, the others everything."""

    name: str
    partitions: int
    compacted: bool


def topic_specs(shards: int) -> tuple[TopicSpec, ...]:
    """Return the topics of a deployment with ``shards`` shards."""
    return (
        TopicSpec(NODES_TOPIC, shards, True),
        TopicSpec(PODS_TOPIC, shards, True),
        TopicSpec(USAGE_TOPIC, 1, False),
        TopicSpec(CONFIG_TOPIC, 1, True),
        TopicSpec(TICKS_TOPIC, 1, True),
        TopicSpec(DECISIONS_TOPIC, shards, False),
        TopicSpec(DEAD_LETTER_TOPIC, 1, False),
        TopicSpec(SCALES_TOPIC, 1, False),
    )


class TopicState(NamedTuple):
    """A topic as the log has it. One that is made anew under the same name has another ``id``.

    The id is empty where the log has none.
    """

    id: str
    partitions: int


class TopicPartition(NamedTuple):
    """One ordered sequence of records."""

    topic: str
    partition: int


TOPICS_BY_SHARD = (NODES_TOPIC, PODS_TOPIC, DECISIONS_TOPIC)
"""Each has a partition for each shard."""


def partitions_of(shard: int) -> list[TopicPartition]:
    """Return the partitions that a shard reads. Shard 0 also reads those that concern all shards."""
    own = [TopicPartition(NODES_TOPIC, shard), TopicPartition(PODS_TOPIC, shard)]
    of_all = (USAGE_TOPIC, CONFIG_TOPIC, TICKS_TOPIC)
    return own if shard else [*own, *(TopicPartition(topic, 0) for topic in of_all)]


class Fault(NamedTuple):
    """Why something in the log cannot be read: a stable code, and a sentence for people."""

    code: str
    message: str


class Record(NamedTuple):
    """A record as read: ``value`` None is a tombstone; ``timestamp_ms`` is when the log took it.

    With a ``fault`` it stands for a record, or a whole batch, that cannot be read, and for all offsets up to
    its own that no other record has. It has no key and no value then, and is no tombstone.

    ``seal`` is what ``Entry`` says; ``services/codec/seal.py`` reads it. ``claimed``: its producer gave it a
    time that had not come when it was read; ``timestamp_ms`` is when that was. ``ledger``, ``after``: as of
    ``Entry``.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    seal: bytes | None = None
    fault: Fault | None = None
    claimed: bool = False
    ledger: bytes | None = None
    after: bytes | None = None


def no_topic(name: str) -> Unavailable:
    """Return the fault that a topic does not exist, which names what makes it."""
    return Unavailable(f"topic {name} does not exist; `berth init` makes it")


class Entry(NamedTuple):
    """A record to append. Kafka's default partitioner chooses its partition by the key.

    ``seal`` says who sent it, in a way that only an API can write; None where nobody says so. ``ledger`` is
    the name of the ledger that a decision is of, and ``after`` the seq of the one that was kept before it,
    where those between were pruned; a log in the same database keeps neither.
    """

    key: bytes | None
    value: bytes | None
    seal: bytes | None = None
    ledger: bytes | None = None
    after: bytes | None = None


class Span(NamedTuple):
    """Neighbouring records of one partition: ``first <= offset < end``."""

    topic: str
    partition: int
    first: int
    end: int


class Backlog(NamedTuple):
    """What a partition holds from a position on.

    ``end`` is the offset after its last record; ``oldest_ms`` is when the first record that lies ahead was
    appended, None where there is none.
    """

    end: int
    oldest_ms: int | None


class LogReader(Protocol):
    """Reads assigned partitions in offset order. One reader, one task."""

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions from exactly these offsets on; replaces what was assigned.

        A position below the first retained offset is an error at the next ``poll`` (``LogTruncated``),
        never a silent jump.
        """

    async def poll(self, records_max: int, timeout_seconds: float) -> Sequence[Record]:
        """Return up to ``records_max`` next records, in offset order per partition.

        Returns as soon as there is any record, and an empty sequence after ``timeout_seconds``. After
        ``Unavailable``, the next call goes on behind what was returned last.
        """

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Return nothing from these partitions at ``poll`` until they are resumed."""

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Undo ``pause``."""

    async def end_offsets(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, int]:
        """Return the offset after the last record appended before the call.

        Of each of these partitions; without any named, of each that is assigned.
        """

    async def first_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the first retained offset of each partition."""

    async def position(self, at: TopicPartition) -> int:
        """Return the next offset to read of an assigned partition, past offsets without a record."""

    async def aclose(self) -> None:
        """Release what the reader holds."""


class LogWriter(Protocol):
    """Appends records durably."""

    async def append(
        self, topic: str, entries: Sequence[Entry], partition: int | None = None
    ) -> Sequence[Span]:
        """Append in order; return where the entries are when all are durable.

        With ``partition``, all go there. After an error, any prefix per partition may have been appended.
        A span may be missing where the log has taken records and no longer knows where.
        """

    async def aclose(self) -> None:
        """Flush and release what the writer holds."""


class Log(Protocol):
    """The event log: opens readers and writers, creates topics."""

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Create the topics that do not exist; raise ``TopicMismatch`` where partitions differ.

        From now on their records carry the time of the append, however the topic was created.
        """

    async def add_partitions(self, topics: Sequence[str], partitions: int) -> None:
        """Give each of these topics so many partitions, unless it has as many or more."""

    async def topics(self, names: Sequence[str]) -> Mapping[str, TopicState]:
        """Return those of the topics that exist."""

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions, 0 when the topic does not exist."""

    async def reader(self) -> LogReader:
        """Open a reader with nothing assigned."""

    async def writer(self) -> LogWriter:
        """Open a writer."""

    async def backlogs(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Backlog]:
        """Return what each partition holds from a position on. The position may be no longer retained.

        Raises
        ------
        Unavailable
            A partition does not exist, or the log does not answer.
        """

    async def last_record(self, at: TopicPartition) -> Record | None:
        """Return the last record of a partition, or None when it is empty."""

    async def aclose(self) -> None:
        """Release what the log holds."""
