"""Says where a batch that was planned again differs from the one that was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from services.codec.effects import SPECS
from services.codec.feed import unpack_feed
from services.ports.journal import JournalRow


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing of a batch that is not as it was recorded; ``what`` names it."""

    shard: int = 0
    batch: int
    what: str
    recorded: str
    replayed: str


RETRIED = "pending groups"
"""Rows of groups that were tried again in vain: what a worker knew before a checkpoint may save it that."""


def difference(
    row: JournalRow,
    again: JournalRow,
    recorded: Sequence[bytes],
    replayed: Sequence[bytes],
    *,
    is_restart: bool,
    is_digest_told: bool,
) -> Difference | None:
    """Compare a batch with its record; None: they are the same.

    Parameters
    ----------
    row, again : JournalRow
        As recorded, and as planned again.
    recorded, replayed : sequence of bytes
        The decision records, by shard and seq: those of the ledger, and as planned again.
    is_restart : bool
        Whether the replay began where the worker did; else ``RETRIED`` is not compared.
    is_digest_told : bool
        False where the worker left the digest out, because it had counted pods that were lost.
    """
    if recorded != replayed:
        return _of_decisions(row, again, recorded, replayed)
    if row.decisions_hash != again.decisions_hash:
        return _said(
            row,
            "the journal's hash of the decisions, although the decisions themselves are the same: "
            "the journal's row was changed",
            row.decisions_hash.hex(),
            again.decisions_hash.hex(),
        )
    # A build of before facts wrote hashes with sums that a batch no longer knows.
    skipped = {"nodes", SPECS} if "nodes" in row.effects else set()
    for kind in (kind for kind in dict.fromkeys((*row.effects, *again.effects)) if kind not in skipped):
        before, now = row.effects.get(kind, "none"), again.effects.get(kind, "none")
        if before != now and (is_restart or kind != RETRIED):
            return _said(row, f"the rows of {kind}", before, now)
    fed, fed_again = unpack_feed(row.feed), unpack_feed(again.feed if row.feed else b"")
    if fed.gone is None:  # an earlier build did not name the pods that are gone
        fed_again = msgspec.structs.replace(fed_again, gone=None)
    plain: tuple[tuple[str, object, object], ...] = (
        ("the number of the batch", row.batch, again.batch),
        ("the seqs of its decisions", row.seqs, again.seqs),
        ("the ranges of records", sorted(row.lanes), sorted(again.lanes)),
        ("log time", row.log_time_ms, again.log_time_ms),
        ("the digest of the state", row.digest, again.digest if is_digest_told else None),
        ("what other workers follow", fed, fed_again),
    )
    for what, one, other in plain:
        if one != other:
            return _said(row, what, one, other)
    return None


def _said(row: JournalRow, what: str, recorded: object, replayed: object) -> Difference:
    return Difference(
        shard=row.shard, batch=row.batch, what=what, recorded=str(recorded), replayed=str(replayed)
    )


def _of_decisions(
    row: JournalRow, again: JournalRow, recorded: Sequence[bytes], replayed: Sequence[bytes]
) -> Difference:
    before, now = next(
        (before, now) for before, now in zip_longest(recorded, replayed, fillvalue=b"") if before != now
    )
    one, other = decoded(before), decoded(now)
    if one and other and one.get("id") != other["id"]:  # the shorter side lacks one
        if len(recorded) < len(replayed):
            one, before = {}, b""
        else:
            other, now = {}, b""
    if other:
        what = f"the decision {other['id']} for pod {other['pod']['namespace']}/{other['pod']['name']}"
    else:
        what = f"the decision {one.get('id', 'that cannot be read')}"
    if row.decisions_hash == again.decisions_hash:
        what = f"{what}, which the journal has as it was planned again: it was changed in the ledger"
    field = next((key for key in {**one, **other} if one.get(key) != other.get(key)), None)
    if not one or not other or field is None:
        return _said(row, what, _text(before), _text(now))
    return _said(row, f"{what}: {field}", one.get(field, "nothing"), other.get(field, "nothing"))


def _text(payload: bytes) -> str:
    return payload.decode(errors="replace") or "no decision"


def decoded(payload: bytes) -> Mapping[str, Any]:
    """Return a decision record; empty: there is none, or it cannot be read."""
    try:
        found: dict[str, Any] = msgspec.json.decode(payload, type=dict)
    except msgspec.DecodeError:
        return {}
    return found
