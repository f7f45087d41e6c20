"""The attempts of a batch as bytes, and one of them back: together they pack into a twentieth."""

from __future__ import annotations

from collections.abc import Sequence

import cramjam
import msgspec

from domain.model.decisions import Attempt

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Attempt).decode
_decode_packed = msgspec.msgpack.Decoder(tuple[list[int], list[msgspec.Raw]]).decode


def encode_attempt(attempt: Attempt) -> msgspec.Raw:
    """Return an attempt as one part of what ``pack_attempts`` packs; shards of a batch share it."""
    return msgspec.Raw(_encode(attempt))


def pack_attempts(seqs: Sequence[int], attempts: Sequence[msgspec.Raw]) -> bytes:
    """Return what ``encode_attempt`` made of attempts, each with the seq of its first decision in a shard."""
    return bytes(cramjam.lz4.compress_block(_encode((seqs, attempts))))


def unpack_attempt(packed: bytes, shard: int, seq: int) -> Attempt | None:
    """Return the attempt with this seq, if it is one of these; the others are not decoded."""
    seqs, attempts = _decode_packed(bytes(cramjam.lz4.decompress_block(packed)))
    if seq not in seqs:
        return None
    return msgspec.structs.replace(_decode(attempts[seqs.index(seq)]), shard=shard, seq=seq)
