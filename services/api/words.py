"""Values of the ledger in the words and units that a person expects: quantities, times, ids, reasons."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from domain.manifests.codes import UNSUPPORTED
from domain.model.errors import FieldError
from domain.model.quantities import format_resource

_LAST_MS = 253_402_300_799_999  # the end of the year 9999
Json = dict[str, Any]

_PHRASES = {
    "node-name": "are not the node that it names",
    "node-unschedulable": "are cordoned",
    "untolerated-taint": "have a taint that it does not tolerate",
    "node-affinity": "do not match its node selector or affinity",
    "host-port-conflict": "have one of its ports in use",
    "too-many-pods": "hold as many pods as they may",
    "node-affinity-enforced": "do not match the node affinity that the profile adds",
    "over-threshold": "would request more than the profile allows of",
    "over-threshold-measured": "were measured above the profile's threshold for",
    "max-memory-sum": "would promise more memory than the profile allows",
    "master-share": "hold their share of its cluster's masters",
    "peak-usage": "were above the profile's threshold yesterday in",
    "unsupported": "were not tried: this version does not honour",
    "scheduling-gated": "were not tried: the pod still has the gate",
    "unknown-profile": "were not tried: there is no profile",
    "no-nodes": "nodes exist",
}
_UNITS_OF = {
    "~cpu": "cpu",
    "~memory": "memory",
    "~cpu-beyond": "cpu",
    "~memory-beyond": "memory",
    "~fixed": "cpu",
    "~requested": "cpu",
}
_SINGULAR = {"are": "is", "were": "was", "have": "has", "hold": "holds", "do": "does", "lack": "lacks"}


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return amounts per resource as quantities, by name."""
    return {name: format_resource(name, amounts[name]) for name in sorted(amounts)}


def vector(values: Sequence[int], names: Mapping[int, str]) -> dict[str, int]:
    """Return a resource vector of the ledger as amounts by name, zeros left out."""
    return {names[at]: value for at, value in enumerate(values, start=1) if value and at in names}


def sum_in_units(name: str, amount: int) -> str:
    """Return a sum over a node as a quantity: of a resource, or of what is summed besides (``~`` names)."""
    return format_resource(_UNITS_OF.get(name, name), amount)


def instant(at_ms: int | None) -> str | None:
    """Return log time as RFC 3339 in UTC with milliseconds."""
    if at_ms is None:
        return None
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


def plural(count: int, noun: str) -> str:
    """Return ``1 node`` or ``1,523 nodes``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def reason_in_words(code: str, count: int = 2) -> str:
    """Return what so many nodes with this reason code do: ``lack cpu and memory``, ``is cordoned``."""
    lacking, others = [], []
    for part in code.split(","):
        kind, _, detail = part.partition(":")
        if kind == "insufficient":
            lacking.append(detail)
        else:
            detail = UNSUPPORTED.get(detail, detail) if kind == "unsupported" else detail
            others.append(_PHRASES.get(kind, kind.replace("-", " ")) + (f" {detail}" if detail else ""))
    if lacking:
        *first, last = lacking
        others.append(f"lack {', '.join(first)} and {last}" if first else f"lack {last}")
    if count == 1:
        others = [" ".join([_SINGULAR.get(verb, verb), *rest]) for verb, *rest in map(str.split, others)]
    return " and ".join(others)


def reasons_in_words(reasons: Mapping[str, int], shown_max: int = 4) -> str:
    """Return ``310 lack cpu; 12 are cordoned`` with the most frequent first."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    text = "; ".join(f"{count:,} {reason_in_words(code, count)}" for code, count in ordered[:shown_max])
    more = len(ordered) - shown_max
    return f"{text} and {plural(more, 'more reason')}" if more > 0 else text


def page(items: list[Json], limit: int, next_cursor: str | None) -> Json:
    """Return a page of a list; ``next`` is null when this was the last."""
    return {"items": items, "next": next_cursor if len(items) == limit else None}
