"""Relieves hot nodes: pods leave one where a dry run finds another node for each of them.

The owner of a node's shard decides, after all pods that have their turn were placed. The fewest pods go whose
estimates bring the node below its target, low ones first, or none does. A dry run places each of them as it
is, one after another, by the filters and scores of its profile; hot nodes are out of the question. Nothing is
kept free: what replaces a pod is placed as any other one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from domain.colocation.hot_spots import Movable, relief
from domain.cycle.kernel_call import call_nominated, undo
from domain.cycle.run import CycleRun, Preempting
from domain.engine.evaluate import Alone, look_at_rows, winner
from domain.engine.program import Program
from domain.engine.verdicts import Migration, Moved
from domain.model.colocation import QUALITY_OF, HotSpotRule
from domain.model.hosting import controlled_by
from domain.model.limits import relief_choices_max, relief_looks_max
from domain.model.pods import PodSpec, why_it_stays
from domain.queue.groups import GroupKey, WaitingGroup
from domain.state.cluster import ClusterState
from domain.state.pods import PodEntry
from domain.state.steps import Relieved
from domain.state.usage import capacity_of


class Relieving:
    """The hot nodes that no move helps, as far as one worker looked. A restart forgets them.

    Attributes
    ----------
    is_cut : bool
        Whether the last look left hot nodes for the next cycle.
    """

    def __init__(self) -> None:
        self._looked_ms: dict[str, int] = {}  # by node: the moment of the measurement by which nothing helps
        self.is_cut = False

    def look(self, run: CycleRun, of: Preempting) -> None:
        """Relieve hot nodes of own shards, as far as moves may begin.

        One that nothing helps is looked at again when it is measured again.
        """
        self.is_cut = False
        qualities, looked = run.state.usage.qualities, 0
        for node in _hot_nodes(run):
            if self._looked_ms.get(node) == qualities[node].at_ms or not _may_begin(run.state, node):
                continue
            if looked == relief_looks_max:
                self.is_cut = True
                break
            looked += 1
            run.result.looked_at.add(node)
            if not _relieve(run, of, node):
                self._looked_ms[node] = qualities[node].at_ms
        self._looked_ms = {node: at_ms for node, at_ms in self._looked_ms.items() if node in qualities}


def _hot_nodes(run: CycleRun) -> list[str]:
    """Return the nodes of own shards that are hot by a measurement that is bad and not too old, by name.

    A good one says that a node calms down.
    """
    state, table = run.state, run.state.table
    rows = np.flatnonzero(table.hot[: table.count])
    if not len(rows):
        return []
    names = (table.names[row] for row in rows[run.slots.homes.among(rows)].tolist())
    heat_of = state.usage.qualities
    return sorted(n for n in names if state.lending.is_fresh(n) and not heat_of[n].heat.good_count)


def _rule(state: ClusterState, node: str) -> HotSpotRule:
    spec = state.nodes[node].spec
    assert spec is not None
    return state.config.policies.of(spec.labels).policy.hot_spot


def _may_begin(state: ClusterState, node: str) -> bool:
    """Say whether moves from a node may begin.

    It must not rest, nor wait for pods that leave it already: these may be enough.
    """
    if node in state.moves.reliefs or not state.leaving.keys().isdisjoint(state.nodes[node].pods):
        return False
    return len(state.moves.under_way) < _rule(state, node).moves_max


def _relieve(run: CycleRun, of: Preempting, node: str) -> bool:
    """Let the fewest pods leave a node that bring it below its target; say whether there are such."""
    state, rule = run.state, _rule(run.state, node)
    entry, record = state.nodes[node], state.usage.qualities[node]
    assert entry.spec is not None
    capacity, used = capacity_of(entry.spec), record.use.total
    most = rule.moves_max - len(state.moves.under_way)
    of.budgets.sync()
    movable = list(_movable(run, of, node))
    for _ in range(relief_choices_max):
        chosen = relief(rule, capacity, used, movable)
        if not 0 < len(chosen) <= most:
            return False
        pods = [entry.pods[each.name] for each in chosen]
        stays = _over_budget(of, pods)
        targets = () if stays else _dry_run(run, of, node, pods)
        if len(targets) == len(pods):
            found = zip(pods, chosen, targets, strict=True)
            _begin(run, of, node, [Moved(pod.spec, each.estimate, to) for pod, each, to in found])
            return True
        stays = stays or pods[len(targets)].spec.key
        movable = [each for each in movable if each.name != stays]
    return False


def _begin(run: CycleRun, of: Preempting, node: str, moves: Sequence[Moved]) -> None:
    state, entry, at_ms = run.state, run.state.nodes[node], run.at_ms
    shard = entry.ordinal % state.shards_count
    budgets = of.budgets.names_of(entry.pods[each.pod.key] for each in moves)
    state.apply(
        Relieved(
            node=node,
            shard=shard,
            targets={each.pod.key: each.target for each in moves},
            at_ms=at_ms,
            expires_ms=at_ms + of.nomination_ms,
            rests_until_ms=at_ms + _rule(state, node).rest_seconds * 1_000,
        )
    )
    run.result.moves.append(
        Migration(
            node=node,
            node_version=entry.version,
            shard=shard,
            why=state.usage.qualities[node].heat.signs,
            moves=tuple(moves),
            budgets=budgets,
        )
    )


# --------------------------------------------------------------------------------------- which pods may go


def _movable(run: CycleRun, of: Preempting, node: str) -> Iterator[Movable]:
    """Yield the pods that may leave a node, by key.

    Of these are those that its latest measurement covers: what others use is not in it.
    """
    state, entry = run.state, run.state.nodes[node]
    moving = {workload_of(state.pods[key].spec) for key in state.moves.under_way}
    allowed, recent = of.budgets.allowed, entry.recent or ()
    for key, pod in sorted(entry.pods.items()):
        spec = pod.spec
        if key in recent or why_it_stays(spec) or workload_of(spec) in moving:
            continue
        if all(allowed[number] > 0 for number in of.budgets.of(pod)):
            quality, estimate = QUALITY_OF[spec.template.qos_class], state.resources.estimate(spec.template)
            yield Movable(key, quality, estimate, workload_of(spec))


def workload_of(pod: PodSpec) -> str:
    """Return what names the controller of a pod, "" where it has none."""
    return "/".join(controlled_by(pod) or ())


def _over_budget(of: Preempting, pods: Sequence[PodEntry]) -> str:
    """Return the key of the first pod whose budgets do not let it go with those before it, or ""."""
    counts = Counter[int]()
    for pod in pods:
        numbers = of.budgets.of(pod)
        counts.update(numbers)
        if any(counts[number] > of.budgets.allowed[number] for number in numbers):
            return pod.spec.key
    return ""


# ------------------------------------------------------------------------------------------- the dry run


class _OnTrial(NamedTuple):
    """A pod that was placed on trial in a row, with its devices as bits."""

    group: GroupKey
    row: int
    devices: int


def _dry_run(run: CycleRun, of: Preempting, node: str, pods: Sequence[PodEntry]) -> list[str]:
    """Return where pods that leave a node would go, one after another, up to one that finds no node.

    Each counts no longer on its own node. Hot nodes are out of the question, and so are those on which other
    moves that are under way found room. Cost: O(nodes) per pod.
    """
    table, counters = run.state.table, run.slots.counters
    barred = table.hot[: table.count].copy()
    barred[[table.rows[each] for each in (node, *run.state.moves.targets()) if each in table.rows]] = True
    programs = dict[GroupKey, Program]()
    placed, left = list[_OnTrial](), list[tuple[int, int, int]]()  # counter, row and weight
    run.slots.start_call()
    compiled = list(takewhile(lambda pod: _compile(run, of, pod, programs), pods))
    run.make_room_for_changes(2 * len(pods))
    versions = counters.arrays.version.copy()
    for pod in compiled:
        program = programs[_group_of(pod)]
        effects = {} if pod.pod_class is None else counters.effects.of(pod.pod_class)
        off = [(number, table.rows[node], weight) for number, weight in effects.items()]
        counters.add([(number, row, -weight) for number, row, weight in off])
        left += off
        codes, _, _, totals = look_at_rows(program.plan, Alone(run.snapshot, run.slots, program))
        rows = np.flatnonzero((codes == 0) & ~barred)
        if not len(rows):
            break
        row = int(rows[winner(totals[rows], table.tie[rows], pod.spec.signature)])
        is_placed, devices = call_nominated(run, [program.slot], [row], programs)
        assert is_placed[0], "a row that no filter refuses takes the pod"
        placed.append(_OnTrial(_group_of(pod), row, int(devices[0])))
    counters.add(left)
    undo(run, placed, programs, versions)
    return [table.names[each.row] for each in placed]


def _group_of(pod: PodEntry) -> GroupKey:
    return pod.spec.signature, 0 if pod.pod_class is None else pod.pod_class.number


def _compile(run: CycleRun, of: Preempting, pod: PodEntry, programs: dict[GroupKey, Program]) -> bool:
    """Compile the group of a pod; say whether it would not be held, and there is a slot for it."""
    key, template = _group_of(pod), pod.spec.template
    plan = of.plans.get(template.profile)
    if plan is None or WaitingGroup(key[0], template, plan, pod.pod_class, key[1]).held_by:
        return False
    program = programs.get(key) or run.slots.program(key, key[0], template, plan, pod.pod_class)
    if program is not None:
        programs[key] = program
    return program is not None
