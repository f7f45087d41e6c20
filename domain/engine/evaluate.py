"""One pod against every node: each node's first failing filter, each feasible node's score with its parts.

The kernel evaluates every row by the functions with which it places pods (``kernels/evaluating.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
import numpy as np

from domain.engine.explanation import rule_seen, scratch_for
from domain.engine.nominated_room import count_in_snapshot
from domain.engine.program import Program, warnings_of
from domain.engine.slots import GroupSlots
from domain.kernels import evaluating
from domain.kernels.arrays import RULE
from domain.kernels.ties import salted
from domain.model.decisions import GangSeen, Outcome, RuleSeen, is_unresolvable
from domain.model.pods import PodSpec
from domain.model.signature import tie_salt
from domain.plugins.base import Reason
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.queue.groups import WaitingGroup
from domain.state.cluster import ClusterState
from domain.state.nominations import Nomination
from domain.state.snapshot import Snapshot
from domain.state.steps import Lent, Reclassify


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    """A node that a pod could have, once its victims are gone, and what their eviction weighs.

    ``highest_priority`` and ``earliest_start_ms`` are those of ``preemption.Weight``.
    """

    node: str
    victims: list[str]
    violations: int
    highest_priority: int | None
    priorities_sum: int
    earliest_start_ms: int | None


class BudgetGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that could be evicted, as if all of them were: would a budget be violated by that?"""

    violating: list[str]
    non_violating: list[str]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod would get.

    Attributes
    ----------
    pod : str
        ``namespace/name``.
    outcome : Outcome
        ``bound``, ``unschedulable`` (no node now) or ``unresolvable`` (not even with all other pods gone). In
        a plan also ``gang-waiting``: ``feasible`` are then nodes that it could have if it were alone.
    node : str or None
        The best node; of equals the one that the seed prefers. Where no node is feasible, the node that is
        best to evict pods from, if the pod may preempt and it helps.
    devices : list of int
        In a plan, the devices of the node that a pod gets, from 0.
    feasible : list of str
        Nodes that pass every filter, in their order of arrival.
    infeasible : dict
        Every other node, with the reason code of its first failing filter in the profile's order.
    unresolvable : list of str
        Infeasible nodes whose first failing filter could not be cured by evicting pods.
    held_by : list of str
        Reason codes for which no node may take the pod, whatever it offers: an unknown profile, scheduling
        gates, constraints that are not honoured yet.
    warnings : list of str
        Codes of what the pod asks for and nothing looks at.
    scores : dict
        Feasible node -> sum of normalised score times weight. The best node has the highest total, which is
        the same sum in whole numbers of 2^-20.
    score_parts : dict
        Feasible node -> plugin -> normalised score, before its weight.
    weights : dict
        Plugin -> weight.
    rules : list of RuleSeen
        The rules over other pods that refused nodes, each with what it counted.
    eligible_to_preempt : bool
        Whether the pod may preempt if it finds no node.
    preemption_might_help : list of str
        Where no node is feasible: the nodes whose refusal could be cured by evicting pods.
    victims : dict
        Where no node is feasible and the pod may preempt: each node that it could have, the best first, with
        the pods that would have to go, the most important first.
    pdb_violations : dict
        How many victims of each of these nodes would violate a disruption budget.
    pdb_groups : BudgetGroups or None
        All pods of lower priority on these nodes, by whether their eviction would violate a budget.
    gang : GangSeen or None
        In a plan, of a pod that waits for the others of its gang: what the gang lacks.
    evictions : list of Eviction
        The best of these nodes, in order, with what decides between them.
    """

    pod: str
    outcome: Outcome
    node: str | None
    devices: list[int] = []
    feasible: list[str]
    infeasible: dict[str, str]
    unresolvable: list[str]
    held_by: list[str]
    warnings: list[str] = []
    scores: dict[str, float]
    score_parts: dict[str, dict[str, float]]
    weights: dict[str, float]
    rules: list[RuleSeen] = []
    eligible_to_preempt: bool = True
    preemption_might_help: list[str] = []
    victims: dict[str, list[str]] = {}
    pdb_violations: dict[str, int] = {}
    pdb_groups: BudgetGroups | None = None
    gang: GangSeen | None = None
    evictions: list[Eviction] = []


def evaluate(
    state: ClusterState, plan: ProfilePlan | None, pod: PodSpec, view: NodeView | None = None
) -> Verdict:
    """Evaluate a waiting pod over all nodes, and place nothing.

    Parameters
    ----------
    state : ClusterState
        The nodes, and the pods that count on them.
    plan : ProfilePlan or None
        Filters in order, scores with weights. None where the pod names a profile that does not exist: then
        every node refuses it.
    pod : PodSpec
        The pod, whose node name is empty.
    view : NodeView, optional
        What scores read of the nodes. It is needed where measured usage matters.

    Cost: O(N) per plugin, and a snapshot of all nodes.
    """
    table, view = state.table, view or NodeView(state)
    held_by = WaitingGroup(pod.signature, pod.template, plan).held_by
    seen = _refused(held_by, table.count)
    if plan is not None and not held_by:
        seen = _look(state, plan, pod, view)
    order = np.argsort(table.ordinal[: table.count], kind="stable").tolist()
    feasible = [row for row in order if not seen.codes[row]]
    refused = [(table.names[row], seen.reasons[seen.codes[row]]) for row in order if seen.codes[row]]
    weights = {} if plan is None else {use.label: use.weight for use in plan.scores}
    parts = {
        table.names[row]: {label: float(seen.parts[label][row]) for label in weights} for row in feasible
    }
    outcome = Outcome.BOUND if feasible else Outcome.UNSCHEDULABLE
    hopeless = bool(seen.hopeless.all())
    if is_unresolvable(held=bool(held_by), nodes_count=table.count, hopeless=hopeless):
        outcome = Outcome.UNRESOLVABLE
    return Verdict(
        pod=pod.key,
        outcome=outcome,
        node=table.names[winner(seen.totals, table.tie, pod.signature)] if feasible else None,
        feasible=[table.names[row] for row in feasible],
        infeasible={name: reason.code for name, reason in refused},
        unresolvable=[name for name, reason in refused if reason.unresolvable],
        held_by=list(held_by),
        warnings=list(warnings_of(plan, pod.template) or ()),
        scores={
            name: sum(weights[label] * part for label, part in of_node.items())
            for name, of_node in parts.items()
        },
        score_parts=parts,
        weights=weights,
        rules=seen.rules,
    )


class _Seen(NamedTuple):
    """What one pod sees on every row: the code of its refusal, the scores by label, the total.

    ``codes`` int64[N], ``hopeless`` uint8[N], ``parts`` float64[N] per label, ``totals`` int64[N].
    """

    codes: np.ndarray
    reasons: Mapping[int, Reason]
    hopeless: np.ndarray
    parts: Mapping[str, np.ndarray]
    totals: np.ndarray
    rules: list[RuleSeen]


def _refused(held_by: Sequence[str], count: int) -> _Seen:
    """Return what a pod sees that no node may take: every row is refused by the first code."""
    ones = np.ones(count, dtype=np.int64)
    return _Seen(ones, {1: Reason(held_by[0], unresolvable=True)} if held_by else {}, ones, {}, -ones, [])


class Alone(NamedTuple):
    """One pod's program, in slots and on a snapshot of its own."""

    snapshot: Snapshot
    slots: GroupSlots
    program: Program


@contextmanager
def compiled_alone(state: ClusterState, plan: ProfilePlan, pod: PodSpec, view: NodeView) -> Iterator[Alone]:
    """Compile one pod as of now, beside all else that follows the state.

    Nominations of others of no lower priority count.
    """
    with slots_apart(state, [plan], view) as (snapshot, slots):
        entry, out = state.pods.get(pod.key), less_urgent(state, pod)
        snapshot.reserve(len(out))
        count_in_snapshot(state, snapshot, out.values(), -1)
        slots.counters.nominated.out = out
        pod_class = None if entry is None else entry.pod_class
        program = slots.program(pod.signature, pod.signature, pod.template, plan, pod_class)
        assert program is not None, "the first program of a call has room"
        yield Alone(snapshot, slots, program)


def less_urgent(state: ClusterState, pod: PodSpec) -> dict[str, Nomination]:
    """Return the nominations that do not count for a pod, by key: its own, and those of lower priority."""
    return less_urgent_than(state, pod.template.priority, pod.key)


def less_urgent_than(state: ClusterState, priority: int, pod_key: str) -> dict[str, Nomination]:
    """Return the same, given the priority and the key of the pod."""
    known = state.nominations.entries
    return {key: each for key, each in known.items() if each.priority < priority or key == pod_key}


@contextmanager
def slots_apart(
    state: ClusterState, plans: Collection[ProfilePlan], view: NodeView
) -> Iterator[tuple[Snapshot, GroupSlots]]:
    """Return a snapshot as of now and one slot on it, beside all else that follows the state."""
    if not state.index.is_settled:
        state.apply(Reclassify())
    state.apply(Lent())
    with beside(state, plans, view) as found:
        yield found


@contextmanager
def beside(
    state: ClusterState,
    plans: Collection[ProfilePlan],
    view: NodeView,
    kept: tuple[Snapshot, GroupSlots] | None = None,
) -> Iterator[tuple[Snapshot, GroupSlots]]:
    """Return the same of a state that is up to date, as it is within a cycle: nothing of it is changed.

    ``kept`` is what an earlier call returned, since when resources have the same columns. It is of use again
    where nothing was counted by domain: else it would have to follow the pods.
    """
    journal, state.index.journal = state.index.journal, None
    try:
        if kept is None or kept[1].counters.has_any:
            snapshot = Snapshot(state.table)
            kept = snapshot, GroupSlots(state, snapshot, slots_max=1, bytes_max=0, view=view)
        snapshot, slots = kept
        is_whole = snapshot.sync()
        slots.reserve(plans)
        if not is_whole:
            slots.void()
        slots.counters.sync(snapshot.rows_width)
        yield kept
    finally:
        state.index.journal = journal  # for counters that follow the state


def _look(state: ClusterState, plan: ProfilePlan, pod: PodSpec, view: NodeView) -> _Seen:
    """Let the kernel evaluate a pod on every row of a snapshot of its own."""
    with compiled_alone(state, plan, pod, view) as alone:
        return _look_at_all(state, plan, pod, view, alone)


def _look_at_all(state: ClusterState, plan: ProfilePlan, pod: PodSpec, view: NodeView, alone: Alone) -> _Seen:
    _, slots, program = alone
    codes, hopeless, parts, totals = look_at_rows(plan, alone)
    rated = {use.label: parts[k] for k, use in enumerate(plan.kernel_scores)}
    for use in plan.static_scores:
        rated[use.label] = use.plugin.raw(pod.template, view, view.all_rows())
    reasons = {code: program.reason(code) for code in np.unique(codes[codes != 0]).tolist()}
    rules = list(_rules_seen(program, slots, codes))
    return _Seen(codes, reasons, hopeless, rated, totals, rules)


def look_at_rows(plan: ProfilePlan, alone: Alone) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return what the kernel says of each row.

    The code of the first filter that refuses it, int64[N], 0: none; whether it refuses whatever pods leave,
    uint8[N]; the parts of its score, float64[K, N]; and the totals, int64[N].
    """
    snapshot, slots, program = alone
    count, kinds = int(snapshot.columns.rows_count[0]), plan.kernel_scores
    codes, hopeless = np.zeros(count, dtype=np.int16), np.zeros(count, dtype=np.uint8)
    parts, totals = np.zeros((len(kinds), count)), np.zeros(count, dtype=np.int64)
    scratch = scratch_for(
        np.zeros(0, dtype=np.int32),
        1,
        blocks=slots.bounds.free_low.shape[1],
        width=snapshot.rows_width,
        metrics=plan.metrics_count,
        counted=len(plan.count_scores),
    )
    evaluating.evaluate(
        snapshot.columns, slots.groups, slots.counters.arrays, snapshot.changes, program.slot, scratch, codes,
        hopeless, parts, totals,
    )  # fmt: skip
    return codes, hopeless, parts, totals


def _rules_seen(program: Program, slots: GroupSlots, codes: np.ndarray) -> Iterator[RuleSeen]:
    """Yield what each rule saw that refused nodes."""
    arrays = slots.counters.arrays
    for r, (_, rule) in enumerate(program.counted.rules):
        number, code = program.counters[r], RULE + 2 * r
        if not ((codes == code) | (codes == code + 1)).any():
            continue
        domains = np.unique(arrays.domain[arrays.topology[number], np.flatnonzero(codes == code)])
        sums = arrays.sums[arrays.first[number] + domains].tolist()
        named = [slots.counters.domain_name(number, domain) for domain in domains.tolist()]
        highest = int(slots.groups.rule_high[program.slot, r])
        yield rule_seen(rule, highest, dict(zip(named, sums, strict=True)))


def winner(totals: np.ndarray, ties: np.ndarray, signature: bytes) -> int:
    """Return the index of the highest total; of equals that of the smallest tie value, salted."""
    best = np.flatnonzero(totals == totals.max())
    return int(best[np.argmin(salted(ties[best], tie_salt(signature)))])
