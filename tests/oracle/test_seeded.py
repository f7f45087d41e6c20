"""Are all filters and scores placed by the kernel as the plain evaluation and the oracle place them?"""

from __future__ import annotations

from collections import Counter

import pytest

from domain.plugins.registry import FILTERS, SCORES
from tests.depth import some
from tests.oracle.seeded import Case, run_seeded, scenario_of
from tests.ways import choose_way

LENDING = {"ColocationFit", "ColocationScore"}
"""They have a plain reading of their own (``test_colocation.py``)."""


@pytest.mark.parametrize("seed", some(range(1, 41)))
def test_seeded_case(seed: int) -> None:
    run_seeded(seed)


@pytest.mark.parametrize("way", [0, 1], ids=["scanned", "searched"])
@pytest.mark.parametrize("seed", some(range(41, 61)))
def test_seeded_case_in_each_way_to_the_best_node(seed: int, way: int) -> None:
    choose_way(way)
    run_seeded(seed)


@pytest.mark.wide
def test_the_cases_meet_every_plugin_and_many_pods_find_a_node() -> None:
    compared: Counter[str] = Counter()
    met: set[str] = set()
    for seed in range(100, 145):
        case = Case(scenario_of(seed))
        compared += case.run()
        met |= {use.name for p in case.world.profiles.values() for use in (*p.filters, *p.scores)}
    missing = {*FILTERS, *SCORES} - LENDING ^ met
    assert not missing, f"the oracle has to know of {missing}: docs/plugins.md, Write your own score, step 4"
    assert compared["placed"] > 150
    assert compared["explained"] > 100
    assert compared["looked"] == compared["placed"]
