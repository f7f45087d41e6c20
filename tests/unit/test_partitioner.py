"""Our partitioner is Kafka's: the same hash, the same partition, for any key."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.partitioner import murmur2 as reference
from hypothesis import given
from hypothesis import strategies as st

from domain.model.errors import FieldError
from services.codec.partition import RECORD_BYTES_MAX, murmur2, partition_for, split
from services.ports.log import Entry

VECTORS = {
    b"": 0x106E08D9,
    b"a": 0xA2D0B27C,
    b"ab": 0x12D8262A,
    b"abc": 0x1C94221B,
    b"abcd": 0xB11AB5F4,
    b"21": 0xC5F2F8EC,
    b"foobar": 0xD0E47BBE,
    b"default/web-0": 0x1A7B9BB8,
    bytes(range(256)): 0x8BDE9476,
}


@pytest.mark.parametrize(("key", "expected"), VECTORS.items())
def test_murmur2_gives_the_known_values(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@given(st.binary(max_size=200))
def test_murmur2_equals_that_of_a_kafka_client(key: bytes) -> None:
    assert murmur2(key) == reference(key)


@given(st.binary(max_size=64), st.integers(1, 100))
def test_a_key_goes_where_a_kafka_client_sends_it(key: bytes, partitions: int) -> None:
    everywhere = list(range(partitions))
    assert partition_for(key, None, partitions) == DefaultPartitioner()(key, everywhere, everywhere)


@given(st.none() | st.binary(max_size=64), st.integers(1, 100))
def test_a_record_without_key_always_goes_the_same_way(value: bytes | None, partitions: int) -> None:
    there = partition_for(None, value, partitions)
    assert 0 <= there < partitions
    assert there == partition_for(None, value, partitions)


def test_split_keeps_the_order_within_a_partition() -> None:
    entries = [Entry(b"%d" % (i % 17), b"%d" % i) for i in range(500)]
    groups = split(entries, 5, None)
    assert list(groups) == [0, 1, 2, 3, 4]
    for partition, group in groups.items():
        assert group == [e for e in entries if partition_for(e.key, e.value, 5) == partition]


def test_split_sends_everything_to_a_given_partition() -> None:
    entries = [Entry(b"%d" % i, b"") for i in range(10)]
    assert split(entries, 3, 2) == {2: entries}
    assert split([], 3, 2) == {}


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_does_not_exist_is_refused(partition: int) -> None:
    with pytest.raises(FieldError, match=r"0\.\.2"):
        split([Entry(b"k", b"v")], 3, partition)


def test_a_record_that_is_too_large_is_refused_and_named() -> None:
    fits = Entry(b"kk", b"x" * (RECORD_BYTES_MAX - 2))
    assert split([fits], 1, None) == {0: [fits]}
    with pytest.raises(FieldError, match=r"\[1\]"):
        split([fits, Entry(b"kkk", fits.value)], 1, None)
