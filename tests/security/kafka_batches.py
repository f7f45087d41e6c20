"""Batches of Kafka as an attacker may write them: every number in them is ours to choose."""

from __future__ import annotations

import gzip
import itertools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import cramjam
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.codec import snappy_encode
from aiokafka.errors import for_code
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.util import calc_crc32c

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def varint(number: int) -> bytes:
    """Return a number as Kafka packs it into records."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def record_bytes(delta: int, key: bytes, value: bytes, *, headers: bytes = b"\0", more: int = 0) -> bytes:
    """Return a record; ``more`` is how much longer it says to be, and its value with it."""
    told = len(value) + more
    inner = b"\0\0" + varint(delta) + varint(len(key)) + key + varint(told) + value
    return varint(len(inner) + len(headers) + more) + inner + headers


def records_bytes(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return records, one after another."""
    return b"".join(record_bytes(delta, *entry) for delta, entry in enumerate(entries))


def batch(
    body: bytes,
    count: int,
    *,
    base: int = 0,
    codec: int = 0,
    last_delta: int | None = None,
    crc: int | None = None,
    at_ms: int = 1_000,
    told: int | None = None,
) -> bytes:
    """Return a batch of format 2 with such a body, as it comes from the broker."""
    last_delta = count - 1 if last_delta is None else last_delta
    told = count if told is None else told
    signed = struct.pack(">hiqqqhii", codec, last_delta, at_ms, at_ms, -1, -1, -1, told) + body
    crc = calc_crc32c(signed) if crc is None else crc
    return struct.pack(">qiibI", base, len(signed) + 9, 0, 2, crc) + signed


def plain(*values: bytes, base: int = 0) -> bytes:
    """Return a batch of small records that nobody packed."""
    return batch(records_bytes([(b"k", value) for value in values]), len(values), base=base)


def pack(codec: int, body: bytes) -> bytes:
    """Pack a body as the clients do."""
    packers: dict[int, Callable[[bytes], Any]] = {
        GZIP: gzip.compress,
        SNAPPY: snappy_encode,
        LZ4: cramjam.lz4.compress,
        ZSTD: cramjam.zstd.compress,
    }
    return bytes(packers[codec](body))


def zstd_zeros(before: bytes, zeros: int, after: bytes) -> bytes:
    """Return a zstd frame of bytes, many zeros, and bytes: four bytes for every 128 KiB of zeros."""
    run = 128 << 10
    blocks = [(0, before, len(before))]
    blocks += [(1, b"\0", run)] * (zeros // run)
    blocks += [(1, b"\0", zeros % run), (0, after, len(after))]
    last = len(blocks) - 1
    heads = ((int(i == last) | kind << 1 | size << 3, body) for i, (kind, body, size) in enumerate(blocks))
    # A window of 8 MiB, no size of the content, no checksum.
    return b"\x28\xb5\x2f\xfd\0\x68" + b"".join(head.to_bytes(3, "little") + body for head, body in heads)


def bomb(zeros: int, *, base: int = 0) -> bytes:
    """Return a batch of one good record whose value is so many zeros, packed by zstd."""
    shell = record_bytes(0, b"k", b"", more=zeros)
    return batch(zstd_zeros(shell[:-1], zeros, shell[-1:]), 1, base=base, codec=ZSTD)


def rebased(batches: Sequence[bytes]) -> bytes:
    """Return batches as one fetch brings them, each at the offset behind the one before."""
    lasts = (struct.unpack_from(">i", each, 23)[0] + 1 for each in batches)
    bases = itertools.accumulate(lasts, initial=0)
    return b"".join(struct.pack(">q", base) + each[8:] for base, each in zip(bases, batches, strict=False))


async def produce(bootstrap: str, topic: str, partition: int, *batches: bytes) -> None:
    """Hand batches to the broker as they are; raises what the broker answers."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        client.add_topic(topic)
        await client.force_metadata_update()
        leader = client.cluster.leader_for_partition(TopicPartition(topic, partition))
        for raw in batches:
            parts = [(topic, [(partition, raw)])]
            request = ProduceRequest(required_acks=-1, timeout=30_000, topics=parts, transactional_id=None)
            ((_, ((_, code, *_),)),) = (await client.send(leader, request)).topics
            if code:
                raise for_code(code)(f"{topic}/{partition}")
    finally:
        await client.close()
