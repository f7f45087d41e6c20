"""One more node, the last resort; and of a gang how many nodes more, or how many pods less."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from domain.cures.changes import HOSTNAME, OF_NODES, Cure, MoreNodes, SmallerGang
from domain.cures.taints import bearing, taints_of
from domain.cures.trials import Trials
from domain.model.config import PodGroup
from domain.model.devices import with_devices
from domain.model.nodes import NodeSpec
from domain.queue.groups import Gang

_SHAPES_MAX = 6
_NODES_MAX = 16


def more_nodes(trials: Trials) -> Iterator[Cure]:
    """Yield the smallest kind of node of which one more would do; of a gang the fewest of them.

    Kinds differ in labels (but for the name of the node), taints and what they offer.
    """
    for name in _shapes(trials):
        found = _fewest_nodes(trials, name)
        if found:
            yield found
            return


def _fewest_nodes(trials: Trials, like: str) -> Cure | None:
    found = trials.cure(MoreNodes(like=like))
    if found or trials.gang is None:
        return found
    low, high = 1, 2
    while not (found := trials.cure(MoreNodes(like=like, count=high))) and high < _NODES_MAX:
        low, high = high, high * 2
    while found and high - low > 1:
        middle = (low + high) // 2
        fewer = trials.cure(MoreNodes(like=like, count=middle))
        found, low, high = (fewer, low, middle) if fewer else (found, middle, high)
    return found


def _shapes(trials: Trials) -> list[str]:
    """Return a node of each kind that has room for the pod when it is empty, the smallest kinds first."""
    table = trials.state.table
    specs = table.specs[: table.count]
    template = bearing(trials.pod.template, taints_of(specs), of_nodes=True)
    seen = trials.look(template)
    hopeless = [seen.reasons[code].unresolvable if code else False for code in seen.codes.tolist()]
    asked = trials.pod.template.requests
    found: dict[tuple[bool, bytes], str] = {}
    order = np.lexsort((table.ordinal[: table.count], table.allocatable[1, : table.count]))
    for row in order[np.argsort(table.allocatable[0, order], kind="stable")].tolist():
        spec = specs[row]
        offered = with_devices(spec.allocatable)
        if all(offered.get(name, 0) >= amount for name, amount in asked.items()):
            found.setdefault((hopeless[row], _kind_of(spec)), spec.name)
    kinds = sorted(found, key=lambda kind: kind[0])  # those come last that refuse it whatever pods leave
    return [found[kind] for kind in kinds[:_SHAPES_MAX]]


def _kind_of(spec: NodeSpec) -> bytes:
    labels = {key: value for key, value in spec.labels.items() if key != HOSTNAME}
    taints = [each for each in spec.taints if not each.key.startswith(OF_NODES)]
    whole = (sorted(labels.items()), taints, sorted(spec.allocatable.items()), spec.declared_features)
    return msgspec.json.encode(whole)


def smaller_gang(trials: Trials) -> Iterator[Cure]:
    """Yield the largest number of members below that which is asked for with which the gang would start."""
    gang = trials.gang
    if gang is None or gang.spec is None:
        return
    spec, status = gang.spec, gang.status
    there = len(gang.placed) + status.waiting_count
    low, high, best = 0, min(spec.min_member, there + 1), None
    try:
        while high - low > 1:
            middle = (low + high) // 2
            found = _with_least(trials, gang, spec, middle)
            best, low, high = (found, middle, high) if found else (best, low, middle)
    finally:
        gang.status = status
    if best is not None:
        yield best


def _with_least(trials: Trials, gang: Gang, spec: PodGroup, least: int) -> Cure | None:
    gang.status = gang.status._replace(spec=msgspec.structs.replace(spec, min_member=least))
    return trials.cure(SmallerGang(gang=gang.key, min_member=least, before=spec.min_member))
