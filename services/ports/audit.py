"""An audit of the ledger: which invariants were asked, of which rows, and which of them do not hold."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec


class Span(NamedTuple):
    """Decisions of a shard from ``lo`` to before ``hi``, or batches of a journal from ``lo`` up to ``hi``."""

    lo: int
    hi: int


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """An invariant that does not hold. ``warning``: it may have a cause outside of berth.

    ``rows`` are the first offenders.
    """

    name: str
    says: str
    warning: bool = False
    rows: Sequence[Mapping[str, Any]] = ()


class PassedOver(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a shard's topic that are not the ledger's, which an operator acknowledged.

    ``acknowledged_at`` is when; None: not known.
    """

    shard: int
    records_count: int
    first_offset: int
    last_offset: int
    acknowledged_at: datetime.datetime | None


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What one audit found.

    Attributes
    ----------
    at : datetime
        When it began, by the database's clock.
    invariants_count : int
        How many were asked.
    kept_from : mapping of int to int
        Shard -> the first decision from which all are kept.
    seqs, batches : mapping of int to Span
        Shard -> the decisions, and the batches of its journal, that it looked at. The present state (nodes,
        open placements, what waits, offsets) is always looked at whole.
    broken : sequence of Broken
        Warnings included.
    records_count : int or None
        How many records of ``berth.decisions`` it compared; None: it was not asked to.
    passed_over : sequence of PassedOver
        Which of these records were not compared, a shard each.
    remembered : bool
        Whether the next audit goes on where this one ended.
    """

    at: datetime.datetime
    seconds: float
    invariants_count: int
    kept_from: Mapping[int, int]
    seqs: Mapping[int, Span]
    batches: Mapping[int, Span]
    broken: Sequence[Broken]
    records_count: int | None = None
    passed_over: Sequence[PassedOver] = ()
    remembered: bool = False

    @property
    def ok(self) -> bool:
        """Whether everything holds but what is a warning."""
        return all(each.warning for each in self.broken)

    @property
    def decisions_count(self) -> int:
        """How many decisions it looked at."""
        return sum(hi - lo for lo, hi in self.seqs.values())
