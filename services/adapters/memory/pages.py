"""Pages of what the memory holds, as long as the ledger's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from domain.model.decisions import Decision, Outcome
from domain.model.limits import page_bytes_max, raw_bytes_shown_max
from services.ports.ledger import ConfigRow, DeadLetter, ProfileRow
from services.ports.log import Span
from services.ports.store import DecisionFilter, DecisionRow, RefusedRecord, Row, Rows


def page(rows: Sequence[Row], limit: int, size: Callable[[Row], int]) -> Rows[Row]:
    """Return the first rows, until they are ``limit`` or hold ``page_bytes_max``."""
    found: Rows[Row] = Rows()
    held_bytes = 0
    for row in rows:
        if len(found) == limit or held_bytes >= page_bytes_max:
            found.more = True
            break
        found.append(row)
        held_bytes += size(row)
    return found


def payload_bytes(row: DecisionRow) -> int:
    """Return the bytes of a decision."""
    return len(row.payload)


def spec_bytes(row: ProfileRow) -> int:
    """Return the bytes of a profile."""
    return len(msgspec.json.encode(row.spec))


def object_bytes(row: ConfigRow) -> int:
    """Return the bytes of a configuration object."""
    return len(msgspec.json.encode(row.object))


def letter_bytes(record: RefusedRecord) -> int:
    """Return the bytes of a dead letter."""
    return len(record.letter.raw) + len(record.letter.message)


def beginning(letter: DeadLetter) -> RefusedRecord:
    """Return a dead letter with the first bytes of its record."""
    cut = msgspec.structs.replace(letter, raw=letter.raw[:raw_bytes_shown_max])
    return RefusedRecord(cut, len(letter.raw))


def inside(letter: DeadLetter, at: Span) -> bool:
    """Return whether the record of a dead letter is in this span."""
    return (letter.topic, letter.partition) == at[:2] and at.first <= letter.offset < at.end


def follows(at: tuple[int, int], after: tuple[int, int], *, newest_first: bool) -> bool:
    """Say whether a position comes after another one in a list."""
    return at < after if newest_first else at > after


def moment_of(made: tuple[Decision, bytes, int]) -> tuple[int, int, bool, int, int]:
    """Return what orders the decisions about a pod; ``made`` ends with when it was recorded."""
    decision, _, recorded_ms = made
    is_last = decision.outcome is Outcome.EVICTED
    return decision.decided_at_ms, recorded_ms, is_last, decision.seq, decision.shard


def matches(decision: Decision, which: DecisionFilter) -> bool:
    """Say whether a decision is one of those that are asked for."""
    equal = (
        (which.namespace, decision.namespace),
        (which.name, decision.name),
        (which.node, decision.node),
        (which.outcome, decision.outcome),
        (which.shard, decision.shard),
        (which.signature, decision.signature),
        (which.profile, decision.profile),
        (which.profile_revision, decision.profile_revision),
    )
    if any(asked not in (None, found) for asked, found in equal):
        return False
    since_ms, until_ms = which.since_ms, which.until_ms
    late_enough = since_ms is None or decision.decided_at_ms >= since_ms
    return late_enough and (until_ms is None or decision.decided_at_ms < until_ms)
