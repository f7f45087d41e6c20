"""Do the scores by devices choose the nodes and devices that their plain definitions choose?"""

from __future__ import annotations

import numpy as np
import pytest

from domain.kernels.device_arrays import (
    BEST_FIT,
    CLUSTERING,
    DOT_PRODUCT,
    LEAST_FRAGMENTATION,
    LEAST_STRANDING,
    PACKING,
)
from domain.search.mix import ANY_MODEL, Shape, typical
from research.devices.placing import DeviceNode, Profile, Weighted, fragmentation, nodes_of, place_on_devices
from tests.depth import examples
from tests.oracle import device_scores

CASES = examples(12)
ALONE = (LEAST_FRAGMENTATION, LEAST_STRANDING, BEST_FIT, DOT_PRODUCT, PACKING, CLUSTERING)
PROFILES = [
    [],
    *([Weighted(score, 1.0, whole)] for score in ALONE for whole in (True, False)),
    [
        Weighted(LEAST_FRAGMENTATION, 100.0, whole=False),
        Weighted(LEAST_STRANDING, 100.0, whole=False),
        Weighted(BEST_FIT, 1.0, whole=False),
    ],
    [Weighted(LEAST_FRAGMENTATION, 2.0), Weighted(PACKING, 1.0), Weighted(CLUSTERING, 0.5)],
]


def cluster(seed: int) -> tuple[list[DeviceNode], list[Shape]]:
    """Return a few nodes of three models and more pods than they have room for."""
    random = np.random.default_rng(seed)
    nodes = [
        DeviceNode(
            int(random.integers(4, 33)) * 1000,
            int(random.integers(8, 129)) * 1024,
            int(random.choice([0, 1, 2, 4, 8])),
            int(random.integers(3)),
        )
        for _ in range(9)
    ]
    pods = []
    for _ in range(150):
        count = int(random.choice([0, 1, 1, 1, 1, 2, 4]))
        milli = 1000 if count > 1 else int(random.choice([100, 230, 470, 500, 810, 1000]))
        models = ANY_MODEL if random.random() < 0.7 else int(random.integers(1, 8))
        cpu, memory = int(random.integers(0, 9)) * 500, int(random.integers(0, 9)) * 1024
        pods.append(Shape(cpu, memory, count, milli if count else 0, models if count else ANY_MODEL))
    return nodes, pods


@pytest.mark.parametrize(
    "scores", PROFILES, ids=lambda s: "+".join(f"{w.score}{'wr'[not w.whole]}" for w in s)
)
def test_each_pod_goes_where_the_plain_definition_says(scores: list[Weighted]) -> None:
    used = 0
    for seed in range(CASES):
        nodes, pods = cluster(seed)
        profile = Profile(scores=scores, mix=typical(pods, 0.8), cpu_max=32_000, cpu_each=3_000)
        placed = place_on_devices(nodes_of(nodes), pods, profile)
        assert list(zip(placed.node.tolist(), placed.device.tolist(), strict=True)) == device_scores.place(
            nodes, pods, profile
        )
        used += int((placed.node >= 0).sum())
    assert CASES * 30 < used < CASES * 150  # some fit, some do not


def test_fragmentation_is_what_the_mean_pod_cannot_use() -> None:
    for seed in range(CASES):
        nodes, pods = cluster(seed)
        mix = typical(pods, 0.9)
        placed = place_on_devices(nodes_of(nodes), pods[:60], Profile())
        expected = []
        for n, node in enumerate(nodes):
            free = placed.nodes.free[n, : node.devices].tolist()
            seen = device_scores.Seen(int(placed.nodes.cpu[n]), int(placed.nodes.memory[n]), free, node.model)
            expected.append(device_scores.unusable(seen, mix) / sum(mix.values()))
        assert fragmentation(placed.nodes, mix).tolist() == expected
        assert sum(expected) > 0


def test_fragmentation_of_one_node_by_hand() -> None:
    """1000, 600 and 0 are free: a share of 700 leaves the 600, two devices leave all, and so does cpu."""
    empty = nodes_of([DeviceNode(8000, 100, 3, 0)])
    nodes = empty._replace(free=np.array([[1000, 600, 0]]))
    assert fragmentation(nodes, {Shape(1000, 0, 1, 700): 1}).tolist() == [600]
    assert fragmentation(nodes, {Shape(1000, 0, 2, 1000): 1}).tolist() == [1600]
    assert fragmentation(nodes, {Shape(9000, 0, 1, 100): 1}).tolist() == [1600]
    assert fragmentation(nodes, {Shape(1000, 0, 0, 0): 1}).tolist() == [1600]
    assert fragmentation(nodes, {Shape(1000, 0, 1, 100, 0b10): 1}).tolist() == [1600]
    assert fragmentation(nodes, {Shape(1000, 0, 1, 100): 1}).tolist() == [0]
    mix = {Shape(1000, 0, 1, 700): 3, Shape(1000, 0, 2, 1000): 1}
    assert fragmentation(nodes, mix).tolist() == [(3 * 600 + 1600) / 4]
