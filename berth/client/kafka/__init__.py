"""Writes events into berth's topics and reads decisions from them, for who has a Kafka broker at hand.

It needs aiokafka: ``pip install 'berth-client[kafka]'``. Both sides await; `berth.client.Client` is the way
that needs no Kafka.

Events go in:

>>> async with EventProducer("kafka:9092") as producer:
...     applied = await producer.apply([node, pod])
>>> async with AsyncClient() as berth:
...     berth.read_after(applied)
...     found = await berth.pods.get("shop", "web-0")  # of a ledger that has what was written

Decisions come out, each once and in the order of its shard, however often reader, relay, broker or ledger go
away: where the reader stores the checkpoint of a batch in one transaction with what it does about the batch.

>>> row = await connection.fetchval("SELECT checkpoint FROM reader")
>>> async with DecisionConsumer("kafka:9092", checkpoint=Checkpoint.from_json(row)) as consumer:
...     async for batch in consumer:
...         async with connection.transaction():
...             for item in batch.items:
...                 match item:
...                     case Decided(decision=decision):
...                         await carry_out(decision)
...                     case Voided(shard=shard, first=first, last=last):
...                         await take_back(shard, first, last)  # the ledger was set back
...             await connection.execute("UPDATE reader SET checkpoint = $1", batch.checkpoint.to_json())
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("aiokafka") is None:
    raise ImportError("berth.client.kafka needs aiokafka: pip install 'berth-client[kafka]'", name="aiokafka")

from berth.client.kafka.access import Brokers, find_brokers
from berth.client.kafka.checkpoint import Checkpoint, ShardCheckpoint
from berth.client.kafka.consumer import Batch, DecisionConsumer
from berth.client.kafka.producer import EventProducer
from berth.client.kafka.shard import Decided, Item, Voided

__all__ = [
    "Batch",
    "Brokers",
    "Checkpoint",
    "Decided",
    "DecisionConsumer",
    "EventProducer",
    "Item",
    "ShardCheckpoint",
    "Voided",
    "find_brokers",
]
