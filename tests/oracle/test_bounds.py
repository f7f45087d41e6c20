"""Do bounds pass over a row that is the best, where numbers are such that rounding hides it?"""

from __future__ import annotations

import msgspec
import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.evaluate import evaluate
from domain.engine.verdicts import Placement
from domain.kernels.arrays import SPAN
from domain.manifests.profile import profile_from_manifest
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.nodes import NodeImage, NodeSpec
from domain.plugins.registry import ProfilePlan
from tests.values import node, pod, template

RESOURCES = ("cpu", "memory", "ephemeral-storage", *(f"a.io/{i}" for i in range(7)))
ASKED = 4_100


def test_many_parts_of_a_heavy_score_are_not_rounded_away() -> None:
    """Next to a score of 8e7 each of 30 parts is rounded up, from 4.1 to 8: by 117 of the 126 together."""
    strategy = {"type": "LeastAllocated", "resources": [{"name": name} for name in RESOURCES]}
    fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
    scores = [{"name": "ImageLocality", "weight": 1_000_000}, fit, fit, fit]
    profile = profile_from_manifest({"filters": ["NodeResourcesFit"], "scores": scores})
    scheduler = Scheduler({"default-scheduler": profile}, seed=1)
    wide = offering("wide", ASKED * 1_000)  # has its block looked at first
    worse = [offering(f"worse-{i}", 8_600 + i, has_image=True) for i in range(SPAN - 1)]
    best = offering("best", ASKED * 100 // 41, has_image=True)
    small = [offering(f"small-{i}", 6_833, has_image=True) for i in range(SPAN - 1)]
    for spec in (wide, *worse, best, *small):
        scheduler.fold(NodeUpserted(spec))
    first = pod("first", template(ASKED, ASKED, requests=dict.fromkeys(RESOURCES, ASKED), images=("web",)))
    others = [pod(f"other-{i}", template(1, 1)) for i in range(40)]  # or a tree is kept for the first pod
    for each in (first, *others):
        scheduler.fold(PodUpserted(each))
    expected = evaluate(scheduler.state, ProfilePlan(profile), first)
    placement = scheduler.cycle().verdicts[0]
    assert isinstance(placement, Placement)
    assert placement.node == expected.node == "best"
    assert placement.score == pytest.approx(expected.scores["best"], abs=1e-5)


def offering(name: str, amount: int, *, has_image: bool = False) -> NodeSpec:
    """Return a node with as much of every resource."""
    spec = node(name, cpu=amount, memory=amount, extended=dict.fromkeys(RESOURCES[2:], amount))
    images = (NodeImage(("web:latest",), 850 << 20),) if has_image else ()
    return msgspec.structs.replace(spec, images=images)
