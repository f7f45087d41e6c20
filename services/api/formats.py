"""Values of the ledger as the API writes them, and back: quantities, times, ids, cursors."""

from __future__ import annotations

import base64
import codecs
import datetime
import operator
import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from domain.model.errors import FieldError
from domain.model.limits import INT64_MAX
from domain.model.quantities import format_resource
from domain.model.validation import shown

_LAST_MS = 253_402_300_799_999  # the end of the year 9999

_SHARD_MAX = 2**31 - 1

_UNITS_OF = {
    "~cpu": "cpu",
    "~memory": "memory",
    "~cpu-beyond": "cpu",
    "~memory-beyond": "memory",
    "~fixed": "cpu",
    "~requested": "cpu",
}


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return amounts per resource as quantities, by name."""
    return {name: format_resource(name, amounts[name]) for name in sorted(amounts)}


def sum_in_units(name: str, amount: int) -> str:
    """Return a sum over a node as a quantity: of a resource, or of what is summed besides (``~`` names)."""
    return format_resource(_UNITS_OF.get(name, name), amount)


def instant(at_ms: int) -> str:
    """Return log time as RFC 3339 in UTC with milliseconds."""
    at = datetime.datetime.fromtimestamp(min(max(at_ms, 0), _LAST_MS) // 1000, datetime.UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def stamp(at: datetime.datetime | None) -> str | None:
    """Return database time as RFC 3339 in UTC with microseconds."""
    return None if at is None else at.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")


def row_id(shard: int, seq: int) -> str:
    """Return the id of what a shard has numbered: a decision, a cycle, a dead letter."""
    return f"{shard}-{seq}"


def text_of(raw: bytes, *, cut: bool = False) -> str | None:
    """Return bytes as text where they are UTF-8; with ``cut``, less a character that is not whole."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(raw, final=not cut)
    except UnicodeDecodeError:
        return None


def parse_row_id(text: str) -> tuple[int, int]:
    """Return shard and seq of an id ``<shard>-<seq>``."""
    found = _whole(text.split("-"), _SHARD_MAX, INT64_MAX)
    if found is None:
        raise FieldError("id", f"{shown(text)} is not an id; <shard>-<seq> is allowed, such as 0-17")
    return found[0], found[1]


def _whole(parts: Sequence[str], *most: int) -> list[int] | None:
    """Return whole numbers that the columns of the ledger can hold, or None."""
    if len(parts) != len(most) or not all(re.fullmatch("[0-9]{1,19}", part) for part in parts):
        return None
    numbers = list(map(int, parts))
    return numbers if all(map(operator.le, numbers, most)) else None


def profile_target(name: str, revision: int) -> str:
    """Return where the API shows a revision of a profile."""
    return f"/v1/profiles/{quote(name, safe='')}?revision={revision}"


def parse_signature(text: str) -> bytes:
    """Return the bytes of a signature written in hex."""
    if not re.fullmatch("[0-9a-fA-F]{32}", text):
        raise FieldError("signature", f"{shown(text)} is not a signature; 32 hex digits are allowed")
    return bytes.fromhex(text)


def cursor(*parts: object) -> str:
    """Return an opaque cursor that holds these parts."""
    return base64.urlsafe_b64encode("\n".join(map(str, parts)).encode()).decode().rstrip("=")


def _parts(text: str) -> list[str]:
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode()
    except ValueError:  # a text that is not UTF-8 is one, too
        raise _bad_cursor(text) from None
    return found.split("\n")


def parse_name(text: str) -> str:
    """Return the name or uid of a cursor."""
    parts = _parts(text)
    if len(parts) != 1 or "\0" in parts[0]:  # no text of Postgres holds a NUL
        raise _bad_cursor(text)
    return parts[0]


def parse_number(text: str) -> int:
    """Return the number of a cursor."""
    found = _whole(_parts(text), INT64_MAX)
    if found is None:
        raise _bad_cursor(text)
    return found[0]


def parse_uid(text: str) -> tuple[str, int]:
    """Return the (uid, shard) of a cursor."""
    uid, *shard = _parts(text)
    found = _whole(shard, _SHARD_MAX)
    if found is None or "\0" in uid:
        raise _bad_cursor(text)
    return uid, found[0]


def parse_gang(text: str) -> tuple[str, str]:
    """Return the (namespace, name) of a cursor."""
    parts = _parts(text)
    if len(parts) != 2 or any("\0" in part for part in parts):
        raise _bad_cursor(text)
    return parts[0], parts[1]


def parse_object(text: str) -> tuple[str, str, str]:
    """Return the (kind, namespace, name) of a cursor."""
    parts = _parts(text)
    if len(parts) != 3 or any("\0" in part for part in parts):
        raise _bad_cursor(text)
    return parts[0], parts[1], parts[2]


def parse_point(text: str) -> tuple[int, int, int, int, str]:
    """Return the (since, until, span, time, name) of a cursor of usage."""
    parts = _parts(text)
    found = _whole(parts[:4], *(INT64_MAX >> 1,) * 4)  # so that no sum of two is too large
    if len(parts) != 5 or found is None or found[2] == 0 or "\0" in parts[4]:
        raise _bad_cursor(text)
    return found[0], found[1], found[2], found[3], parts[4]


def parse_position(text: str) -> tuple[int, int]:
    """Return the (seq, shard) of a cursor."""
    found = _whole(_parts(text), INT64_MAX, _SHARD_MAX)
    if found is None:
        raise _bad_cursor(text)
    return found[0], found[1]


def parse_past(text: str) -> tuple[int, int, int, int, int, int]:
    """Return the place of a cursor of a history."""
    found = _whole(_parts(text), _LAST_MS, _LAST_MS * 1000, 99, 1, INT64_MAX, _SHARD_MAX)
    if found is None:
        raise _bad_cursor(text)
    at_ms, recorded_us, rank, is_last, number, shard = found
    return at_ms, recorded_us, rank, is_last, number, shard


def parse_group(text: str) -> tuple[int, int, bytes]:
    """Return the (pods, shard, signature) of a cursor."""
    *numbers, signature = _parts(text)
    found = _whole(numbers, INT64_MAX, _SHARD_MAX)
    if found is None or not re.fullmatch("[0-9a-f]{0,128}", signature) or len(signature) % 2:
        raise _bad_cursor(text)
    return found[0], found[1], bytes.fromhex(signature)


def parse_access(text: str) -> tuple[int, bytes]:
    """Return the (minute, digest) of a cursor of the access log."""
    minute, _, digest = "\n".join(_parts(text)).partition("\n")
    found = _whole([minute], INT64_MAX)
    if found is None or not re.fullmatch("[0-9a-f]{32}", digest):
        raise _bad_cursor(text)
    return found[0], bytes.fromhex(digest)


def _bad_cursor(text: str) -> FieldError:
    return FieldError("cursor", f"{shown(text)} is not a cursor; take `next` of the answer before, unchanged")
