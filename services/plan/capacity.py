"""How many more pods of one kind fit into a cluster, and what stops the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from domain.model.decisions import Attempt
from domain.model.pods import PodSpec
from services.plan.objects import Given
from services.plan.plan import Plan, Planned

COUNT_MAX = 200_000
_FIRST_BATCH = 1_000


class Capacity(NamedTuple):
    """The copies of a pod that fit; ``stopped_by`` is the attempt of the next one, None: COUNT_MAX fit."""

    pod: PodSpec
    placed: list[Planned]
    stopped_by: Attempt | None


def how_many(plan: Plan, pod: PodSpec) -> Capacity:
    """Place copies of a pod until one finds no node, or COUNT_MAX are placed; nothing else is placed."""
    plan.fold_bound()
    placed: list[Planned] = []
    batch = _FIRST_BATCH
    while len(placed) < COUNT_MAX:
        first = len(placed)
        names = (f"{pod.key}-{i}" for i in range(first, min(first + batch, COUNT_MAX)))
        copies = [msgspec.structs.replace(pod, key=key, uid=key) for key in names]
        for each in plan.place_further(copies):
            if each.node is None:
                return Capacity(pod, placed, each.attempt)
            placed.append(each)
        batch *= 2
    return Capacity(pod, placed, None)


def copies_of(objects: Sequence[Given], count: int) -> list[Given]:
    """Return the objects with so many copies of each waiting pod in its place."""
    found: list[Given] = []
    for each in objects:
        manifest = each.manifest
        spec = manifest.get("spec") if isinstance(manifest, dict) else None
        waits = isinstance(spec, dict) and manifest.get("kind") == "Pod" and not spec.get("nodeName")
        metadata = manifest.get("metadata") if waits else None
        if each.type == "DELETED" or not isinstance(metadata, dict):
            found.append(each)
            continue
        rest = {key: value for key, value in metadata.items() if key != "uid"}
        found += [
            each._replace(manifest={**manifest, "metadata": {**rest, "name": f"{metadata.get('name')}-{i}"}})
            for i in range(count)
        ]
    return found
