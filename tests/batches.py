"""Batches by the names of their fields alone, whichever part they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from services.ports.ledger import (
    BatchCluster,
    BatchDecisions,
    BatchJournal,
    BatchOffsets,
    BatchPods,
    CommitBatch,
)

_PARTS: Mapping[str, Any] = {
    "offsets": BatchOffsets,
    "cluster": BatchCluster,
    "pods": BatchPods,
    "decisions": BatchDecisions,
    "journal": BatchJournal,
}
_PART_OF = {name: part for part, kind in _PARTS.items() for name in kind.__struct_fields__}


def _by_part(fields: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    parts: dict[str, dict[str, Any]] = {}
    for name, value in fields.items():
        parts.setdefault(_PART_OF[name], {})[name] = value
    return parts


def batch_of(**fields: Any) -> CommitBatch:
    """Return a batch with these fields of its parts; ``advances`` are always given."""
    return CommitBatch(**{part: _PARTS[part](**told) for part, told in _by_part(fields).items()})


def changed(batch: CommitBatch, **fields: Any) -> CommitBatch:
    """Return the batch with other values in some fields of its parts."""
    told = _by_part(fields)
    return replace(batch, **{part: replace(getattr(batch, part), **these) for part, these in told.items()})
