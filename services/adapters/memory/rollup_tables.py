"""The tables of the roll-up, in memory."""

from __future__ import annotations

import dataclasses
from collections import Counter

from services.ports.rollups import By, Figure


@dataclasses.dataclass
class RollupTables:
    """Up to where each shard's decisions are counted, the counts, which steps have samples, and these."""

    cursors: dict[int, int] = dataclasses.field(default_factory=dict)
    counts: Counter[tuple[int, By, str, str]] = dataclasses.field(default_factory=Counter)
    samples: dict[int, int] = dataclasses.field(default_factory=dict)
    gauges: dict[tuple[int, By, str, Figure], int] = dataclasses.field(default_factory=dict)
