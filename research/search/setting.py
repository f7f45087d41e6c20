"""The generated setting of the study of imbalance: 31 nodes of three kinds, 1,800 pods of three types.

The paper on TBESK (2023) shows its tables of nodes and pods as pictures, so this setting is berth's own. It
has the paper's numbers of nodes, kinds, pods, types and resources. Nothing in it depends on a placement.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

RESOURCES = ("cpu", "memory", "berth.io/bandwidth", "berth.io/disk")
"""Cpu in thousandths, memory in bytes, bandwidth in Mbit/s, disk in MB."""

LOAD = 0.82
PODS_COUNT = 1_800

_GENERAL = (32_000, 128 << 30, 10_000, 2_000_000)
KINDS = {
    "general": (11, (1.0, 1.0, 1.0, 1.0)),
    "compute": (10, (1.5, 0.75, 1.5, 0.75)),
    "storage": (10, (0.75, 1.5, 0.75, 1.5)),
}
"""Kind -> how many nodes, and how much of each resource they offer, by that of a general node."""

TYPES = {
    "compressible": ((1, 0, 1, 0),),
    "incompressible": ((0, 1, 0, 1),),
    "balanced": ((0, 1, 1, 0), (1, 0, 0, 1)),
}
"""Type of pod -> which resources it asks much of, or several such; one of them is drawn."""

_SIZE = (0.5, 1.5)
_MUCH = (1.2, 2.0)
_LITTLE = (0.4, 0.8)
_GRAIN = (1, 1 << 20, 1, 1)


class Setting(msgspec.Struct, frozen=True):
    """Nodes and pods.

    Attributes
    ----------
    kinds : list of str
        The kind of each node.
    allocatable : int64[R, N]
    types : list of str
        The type of each pod on a general node, in their order of arrival.
    asked : int64[P, R]
    """

    kinds: list[str]
    allocatable: np.ndarray
    types: list[str]
    asked: np.ndarray


def generate(seed: int, *, pods_count: int = PODS_COUNT, load: float = LOAD) -> Setting:
    """Return a setting drawn with a seed.

    A third of the pods is of each type. A pod has a size, 0.5 to 1.5; of a resource it asks its size times
    1.2 to 2.0 where its type asks much of it, and times 0.4 to 0.8 otherwise. All requests for a resource are
    then scaled so that they sum up to ``load`` of what all nodes offer. Pods arrive in random order.
    """
    rng = np.random.default_rng(seed)
    kinds = [kind for kind, (count, _) in KINDS.items() for _ in range(count)]
    allocatable = np.array([_offered(kind) for kind in kinds], dtype=np.int64).T
    types = [list(TYPES)[i % len(TYPES)] for i in range(pods_count)]
    rng.shuffle(types)
    size = rng.uniform(*_SIZE, (pods_count, 1))
    much, little = (rng.uniform(*span, (pods_count, len(RESOURCES))) for span in (_MUCH, _LITTLE))
    asked = size * np.where(_shapes(types, rng), much, little)
    asked *= load * allocatable.sum(axis=1) / asked.sum(axis=0)
    grain = np.array(_GRAIN)
    return Setting(kinds, allocatable, types, (np.rint(asked / grain) * grain).astype(np.int64))


def _offered(kind: str) -> list[int]:
    _, shares = KINDS[kind]
    return [int(amount * share) for amount, share in zip(_GENERAL, shares, strict=True)]


def _shapes(types: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """Return bool[P, R]: of which resources each pod asks much."""
    drawn = rng.integers(2, size=len(types))
    shapes = [
        TYPES[each][which % len(TYPES[each])] for each, which in zip(types, drawn.tolist(), strict=True)
    ]
    return np.array(shapes, dtype=bool)
