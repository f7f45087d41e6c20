"""The producers of one day: plain, transactional, and one whose keys all fall into one partition."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from services.codec.partition import partition_for
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Entry
from tests.simulation.scenario import Scenario

_CHUNK_RECORDS_MAX = 25
_SKEWED_RECORDS = 60
_ANSWER_MS_MAX = 60_000

Item = tuple[str, Entry]


class _Aborted(Exception):
    """A transaction that its producer gives up, to send the same records again."""


class Producing:
    """Sends what a scenario draws.

    Attributes
    ----------
    acknowledged : dict
        (topic, partition, offset) -> the value that the broker said it has there for good.
    """

    def __init__(self, rng: random.Random, scenario: Scenario, bootstrap: str, shards: int) -> None:
        self.acknowledged: dict[tuple[str, int, int], bytes] = {}
        self.counts: Counter[str] = Counter()
        self._rng = rng
        self._scenario = scenario
        self._bootstrap = bootstrap
        self._shards = shards
        self._unsent: list[Item] = []  # of a batch that failed: as a producer does, they come again, in order

    @contextlib.asynccontextmanager
    async def _producer(self, transactional_id: str | None = None) -> AsyncIterator[AIOKafkaProducer]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            request_timeout_ms=_ANSWER_MS_MAX,
            retry_backoff_ms=100,
            transactional_id=transactional_id,
        )
        try:
            await producer.start()
            yield producer
        finally:
            await producer.stop()

    async def produce(self, seconds: float, per_second: float) -> None:
        """Send for so long, whatever befalls the broker."""
        time = asyncio.get_running_loop().time
        until = time() + seconds
        await self.send(self._scenario.opening())
        while time() < until:
            try:
                async with self._producer() as plain, self._producer("chaos") as transactional:
                    while time() < until:
                        count = await self._some(plain, transactional)
                        await asyncio.sleep(self._rng.expovariate(per_second / count))
            except KafkaError:  # what was in flight is in the log or not
                self.counts["producers begun anew"] += 1
                await asyncio.sleep(0.5)
        await self.send(self._unsent)

    async def _some(self, plain: AIOKafkaProducer, transactional: AIOKafkaProducer) -> int:
        items, draw = self._unsent, self._rng.random()
        if not items:
            items += [self._scenario.next() for _ in range(self._rng.randint(1, _CHUNK_RECORDS_MAX))]
            items += self._skewed() if draw > 0.95 else []
        with contextlib.suppress(_Aborted):
            if draw < 0.2:
                await self._in_transaction(transactional, items)
            else:
                await self._send(plain, items)
            self._unsent = []
        return len(items)

    def _skewed(self) -> list[Item]:
        """Draw many records of one shard's partitions; those of the others come first, in their order."""
        shard, drawn = (
            self._rng.randrange(self._shards),
            [self._scenario.next() for _ in range(_SKEWED_RECORDS)],
        )
        self.counts["skewed bursts"] += 1

        def is_there(item: Item) -> bool:
            topic, entry = item
            return topic in (NODES_TOPIC, PODS_TOPIC) and partition_for(*entry[:2], self._shards) == shard

        return [item for item in drawn if not is_there(item)] + [item for item in drawn if is_there(item)]

    async def _in_transaction(self, producer: AIOKafkaProducer, items: Sequence[Item]) -> None:
        aborts = self._rng.random() < 0.3
        async with producer.transaction():
            futures = [await producer.send(topic, entry.value, key=entry.key) for topic, entry in items]
            answers = await asyncio.gather(*futures)
            if aborts:
                self.counts["transactions aborted"] += 1
                raise _Aborted
        self.counts["transactions"] += 1
        self._acknowledge(items, answers)

    async def send(self, items: Sequence[Item]) -> None:
        """Send records with a producer of their own, until the broker has them."""
        while True:
            try:
                async with self._producer() as producer:
                    return await self._send(producer, items)
            except KafkaError:
                await asyncio.sleep(0.5)

    async def _send(self, producer: AIOKafkaProducer, items: Sequence[Item]) -> None:
        futures = [await producer.send(topic, entry.value, key=entry.key) for topic, entry in items]
        self._acknowledge(items, await asyncio.gather(*futures))

    def _acknowledge(self, items: Sequence[Item], answers: Sequence[object]) -> None:
        for (topic, entry), answer in zip(items, answers, strict=True):
            at = topic, answer.partition, answer.offset  # type: ignore[attr-defined]
            self.acknowledged[at] = entry.value or b""
