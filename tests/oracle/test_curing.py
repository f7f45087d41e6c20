"""Cures are as small as the smallest that brute force knows: it tries every change with the plain oracle."""

from __future__ import annotations

from collections import Counter

from domain.cures.changes import SmallerGang
from tests.oracle.curing import compare, cures_of
from tests.oracle.curing_crowds import Site, after, drawn, placed_by

SITES = 150
EXACT = (
    "repair-node",
    "tolerate",
    "relaxed demands",
    "more-room",
    "relax-spread",
    "raise-priority",
    "more-nodes",
)
PART_MIN = 0.95


def test_the_smallest_known_cure_is_found() -> None:
    equal, total = Counter[str](), Counter[str]()
    for seed in range(SITES):
        site = drawn(seed)
        for kind, (known, shown) in ((None if site.least else compare(site)) or {}).items():
            if kind in EXACT:
                assert known == shown, (seed, kind)
            total[kind] += known not in (None, False, set())
            equal[kind] += known not in (None, False, set()) and known == shown
    assert all(total[kind] for kind in (*EXACT, "leave", "two changes")), total
    for kind in ("leave", "two changes"):
        assert equal[kind] >= PART_MIN * total[kind], kind


def starts(site: Site, least: int) -> bool:
    """Say whether a gang starts of which so many must."""
    return placed_by(after(site, SmallerGang(gang="default/g", min_member=least, before=site.least))) >= least


def test_a_gang_is_told_the_largest_number_with_which_it_starts() -> None:
    told = 0
    for seed in range(1_000):
        site = drawn(seed)
        cures = cures_of(site) if site.least > 1 else None
        if cures is None:
            continue
        shown = [each for cure in cures for each in cure.changes if isinstance(each, SmallerGang)]
        largest = next((n for n in range(site.least - 1, 0, -1) if starts(site, n)), None)
        assert (shown[0].min_member if shown else None) == largest, seed
        told += largest is not None
    assert told > 5
