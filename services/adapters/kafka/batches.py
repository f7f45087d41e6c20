"""Opens the batches of a fetch: no more is unpacked than fits, and nothing is believed that is not so."""

from __future__ import annotations

import gzip
import io
import mmap
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

import cramjam
from aiokafka.errors import CorruptRecordException

from domain.model.limits import unpacked_batch_bytes_max
from services.ports.log import Fault

SMALL_BYTES_MAX = 4 << 20
SMALL_RECORDS_MAX = 1 << 14
"""A batch within both is made records at once. Of a larger one each length is checked first, at a microsecond
per record, and its records are made when they are asked for: 2 bytes of it can be an object of 100."""
_HEADERS_BYTES_MAX = 1 << 20
"""What the headers of one record may take in a large batch."""

_FRAME = struct.Struct(">qi")  # with which a batch of any format begins: offset, bytes that follow
_HEADER = struct.Struct(">qiibIhiqqqhii")
SCRATCH_BYTES = _HEADER.size + SMALL_BYTES_MAX
_MAGIC_AT = 16
_FORMAT = 2
_PACKED = 0x07
_PACKED_AT = 22
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16


class Refused(Exception):
    """A batch cannot be taken; ``fault`` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(code, message)


class Header(NamedTuple):
    """The head of a batch, field by field as Kafka writes it."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    first_ms: int
    max_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + max(0, self.last_offset_delta)

    @property
    def appended_ms(self) -> int | None:
        """When the broker took the batch; None if its records carry the times of their producer."""
        return self.max_ms if self.attributes & _LOG_APPEND_TIME else None

    @property
    def control(self) -> bool:
        """Whether it is a broker's mark and holds no records."""
        return bool(self.attributes & _CONTROL)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)


class Batches:
    """The batches that one fetch brought, still packed; a last one that is cut off does not count."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._size = len(data)
        self._at = 0
        self._end = self._end_of(0)

    def size_in_bytes(self) -> int:
        """Return the size of all."""
        return self._size

    def has_next(self) -> bool:
        """Whether there is one more."""
        return self._end <= self._size

    def next_batch(self) -> memoryview:
        """Return the next one."""
        start, end = self._at, self._end
        if end - start <= _MAGIC_AT:
            raise CorruptRecordException("a batch is shorter than its head")
        self._at, self._end = end, self._end_of(end)
        return self._data[start:end]

    def _end_of(self, start: int) -> int:
        head_end = start + _FRAME.size
        if head_end > self._size:
            return head_end
        return head_end + int(_FRAME.unpack_from(self._data, start)[1])


def header_of(raw: memoryview) -> Header:
    """Return the head of a batch. Of an older format it has the offset and the format alone."""
    if raw[_MAGIC_AT] != _FORMAT:
        offset, length = _FRAME.unpack_from(raw)
        return Header(offset, length, 0, raw[_MAGIC_AT], 0, _LOG_APPEND_TIME, 0, 0, 0, 0, 0, 0, 0)
    if len(raw) < _HEADER.size:
        raise CorruptRecordException("a batch is shorter than its head")
    return Header(*_HEADER.unpack_from(raw))


def check_format(header: Header) -> None:
    """Refuse a batch of a format before Kafka 0.11: brokers of today rewrite those, or refuse them."""
    if header.magic != _FORMAT:
        raise Refused("batch-format", f"has message format {header.magic}; berth reads format {_FORMAT}")


def open_batch(raw: memoryview, header: Header, scratch: memoryview) -> tuple[memoryview, bool]:
    """Return a batch as if it had never been packed, and whether it is small.

    A small batch may lie in ``scratch``: make its records before the next one is opened. A large one lies in
    memory of its own, and has been checked.

    Raises
    ------
    Refused
        It holds more than ``unpacked_batch_bytes_max``, or something else than it says.
    """
    batch = _unpacked(raw, header, scratch) if header.attributes & _PACKED else raw
    if len(batch) <= SCRATCH_BYTES and header.records <= SMALL_RECORDS_MAX:
        return batch, True
    check(batch, header)
    return (memoryview(bytes(batch)) if batch.obj is scratch.obj else batch), False


def _unpacked(raw: memoryview, header: Header, scratch: memoryview) -> memoryview:
    unpack = _UNPACK.get(header.attributes & _PACKED)
    if unpack is None:
        raise Refused("batch-corrupt", "is packed by a method that Kafka does not have")
    try:
        return _unpacked_into(scratch, raw, unpack)
    except _FAILURES:
        pass  # nearly always for want of room
    room = memoryview(mmap.mmap(-1, _HEADER.size + unpacked_batch_bytes_max))  # real as it is written
    try:
        return _unpacked_into(room, raw, unpack)
    except _FAILURES as error:
        if isinstance(error, _Full) or "whole buffer" in str(error):
            bound = f"{unpacked_batch_bytes_max} bytes (unpacked_batch_bytes_max)"
            raise Refused("batch-too-large", f"unpacks to more than {bound}") from None
        raise Refused("batch-corrupt", f"does not unpack: {error}") from None


def _unpacked_into(
    room: memoryview, raw: memoryview, unpack: Callable[[memoryview, memoryview], int]
) -> memoryview:
    size = unpack(raw[_HEADER.size :], room[_HEADER.size :])
    room[: _HEADER.size] = raw[: _HEADER.size]
    room[_PACKED_AT] &= ~_PACKED
    return room[: _HEADER.size + size]


class _Full(Exception):
    """What is unpacked does not fit."""


_FAILURES = (cramjam.DecompressionError, OSError, EOFError, zlib.error, struct.error, ValueError, _Full)


def _gzip(packed: memoryview, room: memoryview) -> int:
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
        found = file.read(len(room) + 1)
    if len(found) > len(room):
        raise _Full
    room[: len(found)] = found
    return len(found)


def _snappy(packed: memoryview, room: memoryview) -> int:
    if packed[: len(_XERIAL)] != _XERIAL:
        return _snappy_block(packed, room)
    at, end = _XERIAL_HEADER_BYTES, 0
    while at < len(packed):
        (size,) = struct.unpack_from(">i", packed, at)
        at += 4
        if not 0 < size <= len(packed) - at:
            raise ValueError(f"a block of {size} bytes")
        end += _snappy_block(packed[at : at + size], room[end:])
        at += size
    return end


def _snappy_block(packed: memoryview, room: memoryview) -> int:
    if cramjam.snappy.decompress_raw_len(packed) > len(room):
        raise _Full
    return cramjam.snappy.decompress_raw_into(packed, room)


_UNPACK = {
    1: _gzip,
    2: _snappy,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}


def check(batch: memoryview, header: Header) -> None:
    """Check every length and offset of the records of an unpacked batch against what its head says.

    Raises
    ------
    Refused
        Something is not so.
    """
    body, at, last = batch[_HEADER.size :], 0, -1
    try:
        for index in range(header.records):
            size, at = _varint(body, at)
            end = at + size
            if size < 0 or end > len(body):
                raise ValueError(f"record {index} says that it has {size} bytes")
            _, at = _varint(body, at + 1)  # a byte of attributes, then the time
            delta, at = _varint(body, at)
            if not last < delta <= header.last_offset_delta:
                raise ValueError(f"record {index} has an offset that is not its batch's")
            last = delta
            for part in ("key", "value"):
                part_size, at = _varint(body, at)
                at += max(0, part_size)
                if at > end:
                    raise ValueError(f"record {index} says that its {part} has {part_size} bytes")
            if end - at > _HEADERS_BYTES_MAX:
                raise ValueError(f"record {index} has {end - at} bytes of headers")
            at = end
        if at != len(body):
            raise ValueError(f"{len(body) - at} bytes follow its {header.records} records")
    except IndexError:
        raise Refused("batch-corrupt", f"ends before its {header.records} records do") from None
    except ValueError as error:
        raise Refused("batch-corrupt", f"is not what it says: {error}") from None


def _varint(body: memoryview, at: int) -> tuple[int, int]:
    """Return the number at a position, as Kafka packs it, and the position behind it."""
    byte = body[at]
    found, shift = byte & 0x7F, 0
    while byte & 0x80:
        at += 1
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 10 bytes")
        byte = body[at]
        found |= (byte & 0x7F) << shift
    return (found >> 1) ^ -(found & 1), at + 1
