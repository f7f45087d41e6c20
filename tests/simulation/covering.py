"""Which lasting faults a day has, so that few days let each meet each feature; and what a run must hit.

A day's kind follows from its seed alone (``Kind.of``), and comes again after twelve days. So each twelve
neighbouring days have the same faults by design, two of them, beside those that the day draws: as many blocks
as it takes to go through all faults are a whole design. Another design pairs the faults otherwise.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.simulation.faults import OF_A_WHILE, Fault
from tests.simulation.scenario import Kind

KINDS_COUNT = 12
_BY_DESIGN = 2
DAYS = KINDS_COUNT * -(-len(OF_A_WHILE) // _BY_DESIGN)
"""So many days, from a multiple of it on, give each lasting fault each kind of day."""

PATHS: Sequence[str] = (
    "fenced commits",
    "conflicts",
    "gangs placed",
    "gangs of Workloads placed",
    "pods lent room",
    "pods ended by agents",
    "lines of the bill",
    "alarms",
    "log faults",
    "handed over",
    "take-overs",
    "orphaned",
    "bind-failed",
)
"""What a design has to come through at least once, by the names of ``World.numbers``."""

Pair = tuple[Fault, str]


def by_design(seed: int) -> Sequence[Fault]:
    """Return the faults that a day has in any case."""
    design, day = divmod(seed, DAYS)
    faults = list(OF_A_WHILE)
    random.Random(design).shuffle(faults)
    first = _BY_DESIGN * (day // KINDS_COUNT)
    return faults[first : first + _BY_DESIGN]


def features(kind: Kind) -> list[str]:
    """Return what a day has that a fault may meet."""
    return [name for name, has in kind._asdict().items() if has] or ["plain"]


def missed(
    days: range, pairs: Mapping[Pair, int], counts: Mapping[str, int], *, preempts: bool = False
) -> Iterator[str]:
    """Say which pair of a fault and a feature, or which path, has less than its quota in a run.

    The quota is one for each whole design among the days; a run without any is not asked for one.
    """
    quota = days.stop // DAYS - -(-days.start // DAYS)
    if quota <= 0:
        return
    there = Counter(
        name for seed in range(KINDS_COUNT) for name in features(Kind.of(seed, preempts=preempts))
    )
    for fault in OF_A_WHILE:
        for name in there:
            if (found := pairs.get((fault, name), 0)) < quota:
                yield f"{fault} met {name} on {found} days of {len(days)}, and should on {quota}"
    for path in PATHS:
        if counts.get(path, 0) < quota:
            yield f"{path}: {counts.get(path, 0)} in {len(days)} days, and should be {quota}"
