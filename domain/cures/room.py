"""What is missing on the node that lacks least: the smallest amount that makes room for one pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from domain.cures.changes import Change, Cure, MoreRoom
from domain.cures.taints import bearing, repair_of, taints_of
from domain.cures.trials import Look, Trials, template_after
from domain.model.devices import GPU, GPU_MILLI
from domain.model.pods import PodTemplate

ZONE = "topology.kubernetes.io/zone"
_THOUSAND = 1_000


def more_room(trials: Trials, before: Sequence[Change] = ()) -> Iterator[Cure]:
    """Yield cures by room on one node: for each resource that one lacks alone, and for all together.

    Each is the least that is missing on any node: the amount does, and one unit less of it does not.
    """
    template = template_after(trials.pod.template, before)
    for change in _nearest(trials, template, template):
        found = trials.cure(*before, change)
        if found and _is_least(trials, before, change):
            yield found


def repaired_room(trials: Trials) -> Iterator[Cure]:
    """Yield cures by a node that becomes well, and has more room, too."""
    template, specs = trials.pod.template, trials.state.table.specs
    well = bearing(template, taints_of(specs[: trials.state.table.count]), of_nodes=True)
    for change in _nearest(trials, well, template):
        repair = repair_of(specs[trials.state.table.rows[change.node]], template)
        found = trials.cure(repair, change) if repair is not None else None
        if found and repair is not None and _is_least(trials, (repair,), change):
            yield found


def _nearest(trials: Trials, template: PodTemplate, pod: PodTemplate) -> Iterator[MoreRoom]:
    """Yield what is missing on the nearest nodes among those that nothing but room keeps a template off."""
    without = trials.look(msgspec.structs.replace(template, requests={}), is_roomy=True)
    rows = np.flatnonzero(without.codes == 0)
    if not len(rows):
        return
    seen = trials.look(template)
    firm = len(seen.demands) - seen.firm_count
    rows = rows[(seen.short[firm:, rows] <= 0).all(axis=0)]
    short = np.maximum(seen.short[:firm, rows], 0)
    asked = np.array([max(1, each.value) for each in seen.demands[:firm]], dtype=np.int64)[:, None]
    parts = (short * _THOUSAND // asked + (short > 0)).sum(axis=0)
    kinds: dict[bytes, int] = {}
    for at in np.lexsort((trials.state.table.ordinal[rows], parts)).tolist():
        lacks = short[:, at] > 0
        if lacks.any():
            kinds.setdefault(lacks.tobytes(), at)
    alone = [at for at in kinds.values() if np.count_nonzero(short[:, at]) == 1]
    for at in dict.fromkeys([*[*kinds.values()][:1], *alone]):
        yield _room_on(trials, int(rows[at]), seen, short[:, at].tolist(), int(parts[at]))


def _room_on(trials: Trials, row: int, seen: Look, short: Sequence[int], part: int) -> MoreRoom:
    amounts: dict[str, int] = {}
    for demand, amount in zip(seen.demands, short, strict=False):
        if amount > 0:
            name, value = (GPU, 1) if demand.name == GPU_MILLI else (demand.name, amount)
            amounts[name] = max(value, amounts.get(name, 0))
    spec = trials.state.table.specs[row]
    return MoreRoom(node=spec.name, zone=spec.labels.get(ZONE, ""), amounts=amounts, part=part)


def _is_least(trials: Trials, before: Sequence[Change], change: MoreRoom) -> bool:
    """Say whether one unit less, of any of the resources, does not do."""
    return not any(
        trials.placed([*before, less_of(change, {name: amount - 1})], 1)
        for name, amount in change.amounts.items()
    )


def less_of(change: MoreRoom, amounts: Mapping[str, int]) -> MoreRoom:
    """Return the change with other amounts of some resources."""
    left = {name: amount for name, amount in {**change.amounts, **amounts}.items() if amount}
    return msgspec.structs.replace(change, amounts=left)
