"""Values of the ledger as the API writes them, and back: quantities, times, ids, cursors."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping
from urllib.parse import quote

from domain.model.errors import FieldError
from domain.model.quantities import format_resource

_LAST_MS = 253_402_300_799_999  # the end of the year 9999

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


def parse_instant(path: str, text: str) -> int:
    """Return milliseconds since the epoch of an RFC 3339 time."""
    try:
        at = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise FieldError(path, f"{text!r} is not an RFC 3339 time such as 2026-01-31T08:00:00Z") from None
    if at.tzinfo is None:
        raise FieldError(path, f"{text!r} has no offset; end it with Z for UTC")
    return int(at.timestamp() * 1000)


def row_id(shard: int, seq: int) -> str:
    """Return the id of what a shard has numbered: a decision, a cycle, a dead letter."""
    return f"{shard}-{seq}"


def text_of(raw: bytes) -> str | None:
    """Return bytes as text where they are UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def parse_decision_id(text: str) -> tuple[int, int]:
    """Return shard and seq of a decision id ``<shard>-<seq>``."""
    shard, _, seq = text.partition("-")
    if not (shard.isdecimal() and seq.isdecimal()) or max(len(shard) - 8, len(seq) - 18) > 0:
        raise FieldError("id", f"{text!r} is not a decision id; <shard>-<seq> is allowed, such as 0-17")
    return int(shard), int(seq)


def profile_target(name: str, revision: int) -> str:
    """Return where the API shows a revision of a profile."""
    return f"/v1/profiles/{quote(name, safe='')}?revision={revision}"


def parse_signature(text: str) -> bytes:
    """Return the bytes of a signature written in hex."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != 16:
        raise FieldError("signature", f"{text!r} is not a signature; 32 hex digits are allowed")
    return found


def cursor(*parts: object) -> str:
    """Return an opaque cursor that holds these parts."""
    return base64.urlsafe_b64encode("\n".join(map(str, parts)).encode()).decode().rstrip("=")


def parse_cursor(text: str) -> list[str]:
    """Return the parts of a cursor."""
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode()
    except (ValueError, UnicodeDecodeError):
        raise _bad_cursor(text) from None
    if "\0" in found:  # no text of Postgres holds it
        raise _bad_cursor(text)
    return found.split("\n")


def parse_position(text: str) -> tuple[int, int]:
    """Return the (seq, shard) of a cursor."""
    parts = parse_cursor(text)
    if len(parts) != 2 or not all(part.isdecimal() and len(part) < 19 for part in parts):
        raise _bad_cursor(text)
    return int(parts[0]), int(parts[1])


def _bad_cursor(text: str) -> FieldError:
    return FieldError("cursor", f"{text!r} is not a cursor; take `next` of the answer before, unchanged")
