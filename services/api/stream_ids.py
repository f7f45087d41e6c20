"""The ids of the stream of events: a place in the journal as a short text, checked when it comes back."""

from __future__ import annotations

import base64
import hashlib
import struct
import zlib
from typing import NamedTuple

from domain.model.errors import FieldError
from domain.model.limits import INT64_MAX
from domain.model.validation import shown

WHOLE = 0xFFFF_FFFF
"""The number of an id behind all events of its batch."""

_LAYOUT = struct.Struct(">6sQII")
_SUM = struct.Struct(">I")
ID_CHARS = 35


class Place(NamedTuple):
    """The event behind which a reader is.

    Attributes
    ----------
    ledger : bytes
        Six bytes of the hash of the ledger's name.
    position, check : int
        Of the batch; 0 and 0 before the first one.
    event : int
        The number of the event in its batch, from 0; ``WHOLE``: behind all of them.
    """

    ledger: bytes
    position: int
    check: int
    event: int = WHOLE


def ledger_mark(name: str) -> bytes:
    """Return what stands for a ledger's name in its ids."""
    return hashlib.sha256(name.encode()).digest()[:6]


def id_of(place: Place) -> str:
    """Return the id of a place."""
    packed = _LAYOUT.pack(*place)
    return base64.urlsafe_b64encode(packed + _SUM.pack(zlib.crc32(packed))).decode().rstrip("=")


def parse_id(text: str, path: str) -> Place:
    """Return the place of an id; raise ``FieldError`` where it is none, or was changed on its way."""
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except ValueError:
        found = b""
    packed, told = found[: _LAYOUT.size], found[_LAYOUT.size :]
    if len(text) != ID_CHARS or told != _SUM.pack(zlib.crc32(packed)):
        raise FieldError(path, f"{shown(text)} is not an id of an event; take `id` of the stream, unchanged")
    place = Place(*_LAYOUT.unpack(packed))
    if place.position > INT64_MAX:
        raise FieldError(path, f"{shown(text)} is not an id of an event; its position is none")
    return place
