"""Is the Kafka client still the one whose inner parts we use?"""

from __future__ import annotations

import inspect

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.consumer import fetcher
from aiokafka.producer.message_accumulator import MessageAccumulator
from aiokafka.producer.sender import Sender

from services.adapters.kafka import internals


def test_the_client_is_of_the_series_that_was_looked_at() -> None:
    """After a new series: read each function of the module again, then raise ``SERIES``."""
    assert aiokafka.__version__.startswith(internals.SERIES)


def test_the_parts_have_the_names_that_we_use() -> None:
    """Assigning to an attribute that nobody reads any more would be no error."""
    for owner, names in (
        (AIOKafkaConsumer, ("self._client = ", "self._fetcher = ", "self._subscription = ")),
        (fetcher.Fetcher, ("self._fetch_max_wait_ms = ", "PartitionRecords(")),
        (AIOKafkaProducer, ("self._sender = ", "self._message_accumulator = ")),
        (Sender, ("def sender_task",)),
        (MessageAccumulator, ("self._batches = ", "self._pending_batches = ")),
    ):
        source = inspect.getsource(owner)
        for name in names:
            assert name in source or name.replace(" = ", ":") in source, f"{owner.__name__}: {name}"


def test_a_fetch_is_unpacked_by_the_method_that_we_replace() -> None:
    bases = internals._Fetched.__mro__[1:]
    assert any("_consumer_record(self, tp, record)" in inspect.getsource(base) for base in bases[:1])
    internals.unpack_into_records()
    assert fetcher.PartitionRecords is internals._Fetched
