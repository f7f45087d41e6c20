"""Pods that could leave a node for a waiting one, and the priority from which it could have them evicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from domain.cures.changes import Change, Cure, Leave, RaisePriority
from domain.cures.trials import Trials, template_after
from domain.cycle.preempt import may_preempt
from domain.engine.preemption import Planned
from domain.model.pods import PodTemplate
from domain.state.pods import PodEntry

_NODES_MAX = 4
_VICTIMS_TRIED_MAX = 40
_FEW = 2
_LEVELS_LOG = 12
"""Of so many priorities (2 to this power) the lowest that helps is found exactly."""


def leaves(trials: Trials, before: Sequence[Change] = ()) -> Iterator[Cure]:
    """Yield the fewest pods of lower priority found that leave one node; those that no budget holds first.

    The engine says which nodes could do, and with which victims. On the best of them fewer are looked for.
    """
    template = template_after(trials.pod.template, before)
    planned = trials.fewest(template, template.priority, _NODES_MAX)
    best: Cure | None = None
    for each in planned:
        entries = [trials.state.pods[key] for key in each.victims]
        if not all(_may_leave(trials, entry, template.priority) for entry in entries) or not entries:
            continue
        most = len(each.victims) if best is None else min(len(each.victims), _pods_of(best))
        fewer = _fewer(trials, before, template, each.node, most)
        planned_ones = _leave(trials, before, each.node, each.victims, template.priority)
        for found in (fewer, planned_ones):  # of equal ones the first has the lower priorities
            if found and (best is None or found.order < best.order):
                best = found
        if best is not None and _pods_of(best) == 1:
            break
    if best is not None:
        yield best


def leaves_for_gang(trials: Trials) -> Iterator[Cure]:
    """Yield the pods that the engine would evict for a gang, all of lower priority than any of its own."""
    planned = [each for each in trials.evicting_for_gang(()) if each.victims]
    pods = [key for each in planned for key in each.victims]
    if trials.gang is None or not pods:
        return
    below = min(group.template.priority for group in trials.gang.ready)
    if all(_may_leave(trials, trials.state.pods[key], below) for key in pods):
        node = planned[0].node if len(planned) == 1 else ""
        found = _leave(trials, (), node, pods, below)
        if found:
            yield found


def _pods_of(cure: Cure) -> int:
    change = cure.changes[-1]
    assert isinstance(change, Leave)
    return len(change.pods)


def _leave(
    trials: Trials, before: Sequence[Change], node: str, pods: Sequence[str], below: int
) -> Cure | None:
    change = Leave(node=node, pods=tuple(pods), below=below, budgets=trials.budgets_against(pods))
    return trials.cure(*before, change)


def _fewer(
    trials: Trials, before: Sequence[Change], template: PodTemplate, node: str, most: int
) -> Cure | None:
    """Return one or two pods of the lowest priorities, at most ``most``, that would do; None: none do."""
    pods = [e for e in trials.state.nodes[node].pods.values() if _may_leave(trials, e, template.priority)]
    pods.sort(key=lambda e: (e.spec.template.priority, e.spec.key))
    for count in range(1, min(most, _FEW) + 1):
        tried = 0
        for some in combinations(pods[:_VICTIMS_TRIED_MAX], count):
            if not _makes_room(trials, template, node, some):
                continue
            found = _leave(trials, before, node, [each.spec.key for each in some], template.priority)
            if found:
                return found
            if (tried := tried + 1) == 2:  # something else than room keeps the pod off
                break
    return None


def _may_leave(trials: Trials, entry: PodEntry, below: int) -> bool:
    pod, state = entry.spec, trials.state
    is_promised = bool(pod.template.gang) and any(state.nominations.of_gang(pod.template.gang))
    return pod.template.priority < below and pod.key not in state.leaving and not is_promised


def _makes_room(trials: Trials, template: PodTemplate, node: str, pods: Sequence[PodEntry]) -> bool:
    """Say whether the sums of a node, less some pods, have room for what is requested."""
    table, resources = trials.state.table, trials.state.resources
    row = table.rows[node]
    for name, value in (*template.requests.items(), ("pods", 1)):
        column = resources.column(name)
        left = sum(e.spec.template.requests.get(name, 0) if name != "pods" else 1 for e in pods)
        if table.requested[column, row] - left + value > table.allocatable[column, row]:
            return False
    return True


def higher_priority(trials: Trials) -> Iterator[Cure]:
    """Yield the lowest priority above its own with which the engine would evict pods for more of the group.

    What it would evict for the group as it is needs no cure, and pods like those that wait are no victims.
    """
    template = trials.pod.template
    members = [template] if trials.gang is None else [group.template for group in trials.gang.ready]
    if not all(may_preempt(each, each.priority - 1) for each in members):
        return
    placed = {e.spec.template.priority for e in trials.state.pods.values() if e.node}
    levels = sorted(each + 1 for each in placed if each >= template.priority)
    if not levels:
        return
    already_count = len(_planned(trials, template.priority, trials.tried_count))
    if already_count >= trials.tried_count:
        return
    low, high = -1, len(levels)
    for _ in range(_LEVELS_LOG):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        helps = len(_planned(trials, levels[middle], already_count + 1)) > already_count
        low, high = (low, middle) if helps else (middle, high)
    if high == len(levels):
        return
    planned = _planned(trials, levels[high], trials.tried_count)
    nodes = {each.node for each in planned if each.victims}
    node = nodes.pop() if len(nodes) == 1 else ""
    victims_count = sum(len(each.victims) for each in planned)
    change = RaisePriority(priority=levels[high], node=node, victims_count=victims_count)
    yield Cure(changes=(change,), pods_count=len(planned), counted_count=trials.tried_count)


def _planned(trials: Trials, priority: int, count: int) -> list[Planned]:
    """Return what the engine would evict at a priority for so many pods, or a gang; never pods like them."""
    change = RaisePriority(priority=priority, node="", victims_count=0)
    if trials.gang is None:
        planned = trials.evicting(change.of_template(trials.pod.template), count)
        return [each for each in planned if not _are_alike(trials, each.victims)]
    planned = trials.evicting_for_gang((change,))
    return [] if any(_are_alike(trials, each.victims) for each in planned) else planned


def _are_alike(trials: Trials, keys: Sequence[str]) -> bool:
    """Say whether one of these pods is like those that wait, or of their gang."""
    pods = [trials.state.pods[key].spec for key in keys]
    gang = trials.pod.template.gang
    return any(
        each.signature == trials.pod.signature or (gang and each.template.gang == gang) for each in pods
    )
