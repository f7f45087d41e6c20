"""Taints that keep a pod off nodes: those that it could tolerate, and those of nodes that are not well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from domain.cures.changes import OF_NODES, RepairNode, Tolerate
from domain.cures.trials import Trials
from domain.model.nodes import NodeSpec, Taint
from domain.model.pods import PodTemplate, Toleration
from domain.plugins.tolerations import REPELLING, tolerated

CANDIDATES_MAX = 3
_CORDON = Taint(key=f"{OF_NODES}unschedulable")


def taints_of(nodes: Iterable[NodeSpec]) -> set[Taint]:
    """Return the taints of nodes that keep pods off."""
    return {taint for node in nodes for taint in node.taints if taint.effect in REPELLING}


def bearing(template: PodTemplate, taints: Iterable[Taint], *, of_nodes: bool) -> PodTemplate:
    """Return a template that tolerates all of these taints that say how a node is, or all of the others."""
    keys = {each.key for each in taints if each.key.startswith(OF_NODES) is of_nodes}
    if of_nodes:
        keys.add(_CORDON.key)
    added = (Toleration(key, "Exists") for key in sorted(keys))
    return msgspec.structs.replace(template, tolerations=(*template.tolerations, *added))


def tolerations(trials: Trials, template: PodTemplate, *, is_first: bool = False) -> Iterator[Tolerate]:
    """Yield the smallest sets of taints with which some node would be left; none is checked yet.

    ``is_first``: a second change is to follow, so what the pod requests keeps it off no node, nor that the
    node is not well. Of sets of one size that with more nodes comes first.
    """
    table = trials.state.table
    known = taints_of(table.specs[: table.count])
    if not any(map(_repels, known)):
        return
    asking = bearing(template, known, of_nodes=False)
    if is_first:
        asking = bearing(msgspec.structs.replace(asking, requests={}), known, of_nodes=True)
    seen = trials.look(asking, is_roomy=is_first)
    sets: Counter[frozenset[Taint]] = Counter()
    for row in np.flatnonzero(seen.codes == 0).tolist():
        missing = (each for each in table.specs[row].taints if _repels(each))
        sets[frozenset(each for each in missing if not tolerated(each, template.tolerations))] += 1
    sets.pop(frozenset(), None)
    ordered = sorted(sets, key=lambda each: (len(each), -sets[each], sorted(map(_text, each))))
    for taints in ordered[:CANDIDATES_MAX]:
        yield Tolerate(taints=tuple(sorted(taints, key=_text)))


def _repels(taint: Taint) -> bool:
    return taint.effect in REPELLING and not taint.key.startswith(OF_NODES)


def _text(taint: Taint) -> tuple[str, str, str]:
    return taint.key, taint.value, taint.effect


def repair_of(spec: NodeSpec, template: PodTemplate) -> RepairNode | None:
    """Return what has to become well of a node before a pod may have it; None: nothing."""
    ill = tuple(
        each
        for each in spec.taints
        if each.key.startswith(OF_NODES)
        and each.effect in REPELLING
        and not tolerated(each, template.tolerations)
    )
    cordoned = spec.unschedulable and not tolerated(_CORDON, template.tolerations)
    return RepairNode(node=spec.name, cordoned=cordoned, taints=ill) if ill or cordoned else None


def repairs(trials: Trials, template: PodTemplate) -> Iterator[RepairNode]:
    """Yield nodes that would do if they were well, those that lack least first; none is checked yet."""
    table = trials.state.table
    ill = [spec.unschedulable or any(t.key.startswith(OF_NODES) for t in spec.taints) for spec in table.specs]
    if not any(ill):
        return
    seen = trials.look(bearing(template, taints_of(table.specs[: table.count]), of_nodes=True))
    rows = np.flatnonzero(seen.codes == 0).tolist()
    found = (repair_of(table.specs[row], template) for row in rows)
    ordered = sorted(filter(None, found), key=lambda each: (each.size, each.node))
    yield from ordered[:CANDIDATES_MAX]
