"""Makes a plan's placement better by search, and says in which order which pods have to move.

Pods stay where they are whose filters look at other pods (spread, affinity, host ports, shares of masters),
whose gang is counted, or whose disruption budget lets none go; so no pod breaks a rule by moving. So do
pods that are being deleted, and those of a DaemonSet or of a node's own. All others may move to nodes that
their static filters allow, and where they have room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from domain.engine.budgets import Budgets
from domain.engine.evaluate import compiled_alone
from domain.model import devices
from domain.model.pods import PodSpec, why_it_stays
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.queue.groups import WaitingGroup
from domain.search.packing import Improving, Score
from domain.state.cluster import ClusterState
from domain.state.pods import PodEntry
from domain.state.resources import NOWHERE, PODS
from services.plan.devices import Placed, allowed_rows, devices_of


class Move(NamedTuple):
    """One step: a pod leaves ``source`` (None: it waits) for ``target`` (None: it makes room, and waits).

    ``gain`` is by how much the cost of the objective falls with it.
    """

    pod: str
    source: str | None
    target: str | None
    gain: float


class Optimised(NamedTuple):
    """What a search found.

    Attributes
    ----------
    before, after : Score
        With all pods that wait and are not held.
    moves : list of Move
        From what runs to the best placement found, in an order in which each one finds its room. A pod that
        has to make room first has two.
    staying : mapping of str to int
        How many pods with a node a search cannot move, or must not, by the reason.
    left_count : int
        Pods that wait and that a search cannot place: they are held, or as those that stay.
    steps_count : int
        Steps of the search.
    """

    before: Score
    after: Score
    moves: list[Move]
    staying: Mapping[str, int]
    left_count: int
    steps_count: int


class Search:
    """A search for a better placement of the pods of a plan.

    Parameters
    ----------
    plan : Placed
        A plan that has placed its pods, or another cluster with pods.
    running : collection of str
        Keys of pods that ran before; none of them loses its node for another pod.
    objective : str
        A key of ``domain.search.packing.COSTS``.
    moves_max : int, optional
        How many pods that have a node may get another one.
    pinned : mapping of str to str
        Keys of running pods that must stay where they are, and why.

    Raises
    ------
    FieldError
        There is no such objective, or it needs devices and no node has any.
    """

    def __init__(
        self,
        plan: Placed,
        running: frozenset[str],
        *,
        objective: str,
        moves_max: int | None,
        seed: int,
        pinned: Mapping[str, str] | None = None,
    ) -> None:
        state = plan.state
        self._state = state
        view = NodeView(state)
        (self._pods, kinds, allowed, demands), self._staying = _movable(plan, view, running, pinned or {})
        count = state.table.count
        node = np.array([_row(state, each) for each in self._pods], np.int32)
        demand = np.stack(demands) if demands else np.zeros((0, len(state.resources)), np.int64)
        kind = np.array(kinds, np.int32)
        self._allocatable = state.table.allocatable[: demand.shape[1], :count].T
        held = state.table.requested[: demand.shape[1], :count].T.copy()
        np.subtract.at(held, node[node < count], demand[kind[node < count]])
        waiting = [each.spec.template.priority for each in self._pods if not each.node]
        lowest = min(waiting, default=0)
        home = np.where([each.spec.key in running for each in self._pods], node, count).astype(np.int32)
        keeps = [each.spec.key in running or each.spec.template.priority > lowest for each in self._pods]
        self._improving = Improving(
            self._allocatable,
            demand,
            kind,
            node,
            np.stack(allowed) if allowed else np.zeros((0, count), np.bool_),
            home=home,
            held=held,
            keeps=np.array(keeps, np.bool_),
            objective=objective,
            devices=devices_of(plan, view) if objective == "fragmentation" else None,
            weights=_seen(state) if objective in ("z", "variance") else None,
            moves_max=moves_max,
            seed=seed,
        )
        self._planned, self._home = node, home
        self._demand, self._kind, self._held = demand, kind, held
        self._steps_count = 0
        self.before = self._improving.score

    def improve(self, steps: int, *, homing: bool = False) -> Score:
        """Search on; with ``homing`` only bring pods back whose move gained nothing."""
        score = self._improving.improve(steps, homing=homing)
        self._steps_count += steps
        return score

    def found(self) -> Optimised:
        """Return the best placement so far, as moves."""
        steps = list(self._in_order())
        gains = self._improving.gains((pod, target) for pod, _, target in steps)
        names = [*self._state.table.names[: self._state.table.count], None]
        moves = [
            Move(self._pods[pod].spec.key, names[source], names[target], gain)
            for (pod, source, target), gain in zip(steps, gains, strict=True)
        ]
        pods = [each for each in self._state.pods.values() if not each.spec.finished]
        left = len(pods) - self._staying.total() - len(self._pods)
        return Optimised(self.before, self._improving.score, moves, self._staying, left, self._steps_count)

    def deviations(self) -> Iterator[tuple[str, float, float]]:
        """Yield each resource that is asked for, and the standard deviation of its use before and after."""
        allocatable = self._allocatable
        first, last = self._used(self._planned), self._improving.used
        for column, name in self._state.resources.visible():
            has = allocatable[:, column] > 0
            if has.any() and self._demand[:, column].any():
                before, after = (
                    float((u[has, column] / allocatable[has, column]).std()) for u in (first, last)
                )
                yield name, before, after

    def _in_order(self) -> Iterator[tuple[int, int, int]]:
        """Yield each move, a pod and two rows, when its room is free.

        Where all wait for each other, one leaves first, and waits (row N).
        """
        count = self._state.table.count
        at, goal = self._home.copy(), self._improving.node
        used, allocatable = self._used(at), self._allocatable
        open_moves = [int(pod) for pod in np.flatnonzero(at != goal)]
        while open_moves:
            blocked = []
            for pod in open_moves:
                demand, target = self._demand[self._kind[pod]], int(goal[pod])
                short = (
                    target < count and ((used[target] + demand > allocatable[target]) & (demand > 0)).any()
                )
                if short:
                    blocked.append(pod)
                    continue
                yield self._step(pod, at, target, used)
            if len(blocked) == len(open_moves):
                first = next(pod for pod in blocked if at[pod] < count)
                yield self._step(first, at, count, used)
            open_moves = blocked

    def _used(self, rows: np.ndarray) -> np.ndarray:
        """Return what is used on each node (int64[N, R]) with each pod on its row; N: it waits."""
        used: np.ndarray = self._held.copy()
        has_node = rows < len(used)
        np.add.at(used, rows[has_node], self._demand[self._kind[has_node]])
        return used

    def _step(self, pod: int, at: np.ndarray, target: int, used: np.ndarray) -> tuple[int, int, int]:
        source, at[pod] = int(at[pod]), target
        for row, sign in ((source, -1), (target, 1)):
            if row < len(used):
                used[row] += sign * self._demand[self._kind[pod]]
        return pod, source, target


def _row(state: ClusterState, entry: PodEntry) -> int:
    return state.table.rows[entry.node] if entry.node else state.table.count


def _seen(state: ClusterState) -> np.ndarray:
    """Return float64[R]: 1 for each resource that manifests name, but for the number of pods."""
    weights = np.zeros(len(state.resources))
    for column, name in state.resources.visible():
        weights[column] = column != PODS and devices.is_shown(name)
    return weights


_Kinds = tuple[list[PodEntry], list[int], list[np.ndarray], list[np.ndarray]]


def pinned_of(state: ClusterState, running: Collection[str], *, bare: bool) -> dict[str, str]:
    """Return the running pods that must not move, and why; ``bare`` as of ``why_it_stays``."""
    found = ((key, why_it_stays(state.pods[key].spec, bare=bare)) for key in running)
    return {key: why for key, why in found if why}


def _movable(
    plan: Placed, view: NodeView, running: Collection[str], pinned: Mapping[str, str]
) -> tuple[_Kinds, Counter[str]]:
    """Return the pods that may move, the kind of each, and each kind's allowed nodes and demands.

    Beside them, how many pods with a node stay where they are, by the reason.
    """
    state = plan.state
    budgets = Budgets(state)
    found: _Kinds = ([], [], [], [])
    staying = Counter[str]()
    numbers: dict[tuple[bytes, int], int | str] = {}
    for entry in state.pods.values():
        if entry.spec.finished:
            continue
        key, why = entry.spec.key, ""
        if entry.node and entry.node not in state.table.rows:
            why = "on a node that is not there"
        elif key in pinned:
            why = pinned[key]
        elif entry.spec.terminating:
            why = "being deleted"
        elif key in running and any(budgets.allowed[number] <= 0 for number in budgets.of(entry)):
            why = "with a disruption budget that lets no pod go"
        else:
            kind_key = (entry.spec.signature, id(entry.pod_class))
            if kind_key not in numbers:
                kind = _kind(state, plan.profile_of(entry.spec), entry.spec, view)
                numbers[kind_key] = kind if isinstance(kind, str) else len(found[2])
                if not isinstance(kind, str):
                    found[2].append(kind[0])
                    found[3].append(kind[1])
            number = numbers[kind_key]
            if not isinstance(number, str):
                found[0].append(entry)
                found[1].append(number)
                continue
            why = number
        staying[why] += bool(entry.node)
    return found, +staying


def _kind(
    state: ClusterState, plan: ProfilePlan | None, pod: PodSpec, view: NodeView
) -> tuple[np.ndarray, np.ndarray] | str:
    """Return which nodes a pod's filters allow (bool[N]) and what it asks for (int64[R]), or why it stays."""
    if pod.template.gang:
        return "of a gang"
    if plan is None or WaitingGroup(pod.signature, pod.template, plan).held_by or plan.fit is None:
        return "with a profile that no search can follow"
    if 0 < devices.asked(pod.template.requests).milli < devices.DEVICE_ONE:
        return "with a share of a device"  # no sum over pods says which fit
    demands = plan.fit[1].demands(pod.template, state.resources)
    is_limited = any(limit.limits(pod.template, state.resources) for _, limit in plan.limits)
    if is_limited or not pod.template.requests.keys() <= {asked.name for asked in demands}:
        return "with a profile that no search can follow"
    with compiled_alone(state, plan, pod, view) as alone:
        if alone.program.counted.rules:
            return "with filters that look at other pods"
    allowed = allowed_rows(plan, pod.template, view)
    demand = np.zeros(len(state.resources), np.int64)
    for asked in demands:
        if asked.column == NOWHERE:
            allowed &= asked.value == 0
        else:
            demand[[asked.column, state.resources.column(asked.name)]] = asked.value  # of devices two columns
    return allowed, demand
