"""The answer about an audit of the ledger, of the API and of ``berth audit -o json``."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct

from services.api.answers_decisions import INSTANT, about

if TYPE_CHECKING:
    from services.ports.audit import Audit  # no answer of the API, as all structs here are


class BrokenInvariant(Struct, kw_only=True):
    """An invariant that does not hold."""

    name: Annotated[str, about("Its name")]
    says: Annotated[str, about("What should hold")]
    warning: Annotated[bool, about("Whether it may have a cause outside of berth")]
    rows: Annotated[Sequence[Mapping[str, Any]], about("The first 100 offenders")]


class AuditedShard(Struct, kw_only=True):
    """What an audit looked at of a shard's history."""

    shard: Annotated[int, about("Number of the shard")]
    decisions_from: Annotated[int, about("First decision that was looked at")]
    decisions_next: Annotated[int, about("Next after the last one")]
    batches_from: Annotated[int | None, about("First batch of its journal; null: it has none")]
    batches_last: Annotated[int | None, about("Last batch of its journal")]


class PassedOverRecords(Struct, kw_only=True):
    """Records of a partition of berth.decisions that the ledger does not have, which were acknowledged."""

    shard: Annotated[int, about("Number of the shard, and of the partition")]
    records: Annotated[int, about("How many")]
    first_offset: Annotated[int, about("Offset of the first one")]
    last_offset: Annotated[int, about("Offset of the last one")]
    acknowledged_at: Annotated[str | None, about(f"When ({INSTANT}); null: not known")]


class AuditAnswer(Struct, kw_only=True):
    """Which of the ledger's invariants hold: of its present state, and of what came since the last audit."""

    ok: Annotated[bool, about("Whether all hold but what is a warning")]
    at: Annotated[str, about(f"When its snapshot was taken ({INSTANT}, the database's clock)")]
    seconds: Annotated[float, about("How long it took")]
    invariants: Annotated[int, about("How many invariants were asked")]
    decisions: Annotated[int, about("How many decisions were looked at")]
    records: Annotated[int | None, about("Records of berth.decisions that were compared; null: not asked")]
    passed_over: Annotated[list[PassedOverRecords], about("Which of them were acknowledged (`--topic`)")]
    remembered: Annotated[bool, about("Whether the next audit goes on where this one ended")]
    shards: Annotated[list[AuditedShard], about("What was looked at")]
    broken: Annotated[list[BrokenInvariant], about("The invariants that do not hold")]


def _instant(at: datetime.datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def audit_answer(found: Audit) -> AuditAnswer:
    """Return an audit as the API tells it."""
    shards = []
    for shard, (lo, hi) in sorted(found.seqs.items()):
        batches = found.batches.get(shard)
        shards.append(
            AuditedShard(
                shard=shard,
                decisions_from=lo,
                decisions_next=hi,
                batches_from=None if batches is None else batches.lo,
                batches_last=None if batches is None else batches.hi,
            )
        )
    return AuditAnswer(
        ok=found.ok,
        at=_instant(found.at),
        seconds=found.seconds,
        invariants=found.invariants_count,
        decisions=found.decisions_count,
        records=found.records_count,
        passed_over=[
            PassedOverRecords(
                shard=each.shard,
                records=each.records_count,
                first_offset=each.first_offset,
                last_offset=each.last_offset,
                acknowledged_at=None if each.acknowledged_at is None else _instant(each.acknowledged_at),
            )
            for each in found.passed_over
        ],
        remembered=found.remembered,
        shards=shards,
        broken=[
            BrokenInvariant(name=each.name, says=each.says, warning=each.warning, rows=each.rows)
            for each in found.broken
        ],
    )
