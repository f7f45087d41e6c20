"""A shadow profile: where would it place a pod, and what would be lost by it, beside the profile in force.

Both profiles see one pod on all nodes, as they are before the pods that have their turn are placed. Nothing
of it is kept: the state, and all that follows it, is afterwards as it was before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from domain.engine.evaluate import Alone, beside, less_urgent_than, look_at_rows, winner
from domain.engine.nominated_room import count_in_snapshot
from domain.engine.slots import GroupSlots
from domain.kernels.arrays import TOTAL_ONE
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.queue.groups import WaitingGroup
from domain.state.cluster import ClusterState
from domain.state.snapshot import Snapshot


class Compared(NamedTuple):
    """What two profiles say of one pod.

    Attributes
    ----------
    live_finds, shadow_finds : bool
        Whether any node is feasible.
    agrees : bool
        Whether the live node is among the best of the shadow profile; ties are. False where either profile
        finds no node.
    shadow_loss : float or None
        How much less the live node scores under the shadow profile than the best node, in points of 0..100 of
        its total. None: the shadow profile refuses that node, or either finds none.
    live_loss : float or None
        The same of the shadow profile's node under the live profile.
    """

    live_finds: bool
    shadow_finds: bool
    agrees: bool = False
    shadow_loss: float | None = None
    live_loss: float | None = None


class Comparing:
    """Compares profiles on one state, on a snapshot of its own that is kept from one pod to the next.

    Parameters
    ----------
    state : ClusterState
        It is only read: between ``apply`` and ``apply``, also within a cycle.
    """

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._view = NodeView(state)
        self._kept: tuple[Snapshot, GroupSlots] | None = None
        self._columns_revision = 0

    def compare(self, group: WaitingGroup, key: str, shadow: ProfilePlan) -> Compared:
        """Compare the profile of a group with another one, for the pod ``key`` of it.

        Nominations of pods of lower priority do not count. The pod is alone: a nomination of its own does not
        bind it, and home nodes are as all others.

        Cost: O(N) per filter and score of both profiles, and per counter that either asks for O(classes).
        """
        state, live = self.state, group.plan
        assert live is not None
        if self._columns_revision != state.resources.revision:
            self._kept, self._columns_revision = None, state.resources.revision
        with beside(state, (live, shadow), self._view, self._kept) as self._kept:
            snapshot, slots = self._kept
            out = less_urgent_than(state, group.template.priority, key)
            snapshot.reserve(len(out))
            count_in_snapshot(state, snapshot, out.values(), -1)  # the next ``sync`` counts them again
            slots.counters.nominated.out = out
            totals = [self._totals(group, plan) for plan in (live, shadow)]
        return _compared(state, group, totals[0], totals[1], (live, shadow))

    def _totals(self, group: WaitingGroup, plan: ProfilePlan) -> np.ndarray:
        """Return int64[N]: the total of each row, less than 0 where the profile refuses it."""
        if WaitingGroup(group.signature, group.template, plan).held_by:
            return np.full(self.state.table.count, -1, dtype=np.int64)
        assert self._kept is not None
        snapshot, slots = self._kept
        slots.start_call()
        program = slots.program(plan, group.signature, group.template, plan, group.pod_class)
        assert program is not None, "the first program of a call has room"
        return look_at_rows(plan, Alone(snapshot, slots, program))[3]


def _compared(
    state: ClusterState,
    group: WaitingGroup,
    live: np.ndarray,
    shadow: np.ndarray,
    plans: tuple[ProfilePlan, ProfilePlan],
) -> Compared:
    """Compare totals, int64[N] each: less than 0 where the profile refuses the row."""
    live_finds, shadow_finds = bool((live >= 0).any()), bool((shadow >= 0).any())
    if not (live_finds and shadow_finds):
        return Compared(live_finds, shadow_finds)
    ties = state.table.tie
    here, there = winner(live, ties, group.signature), winner(shadow, ties, group.signature)
    shadow_loss, live_loss = _loss(shadow, here, plans[1]), _loss(live, there, plans[0])
    return Compared(True, True, shadow_loss == 0.0, shadow_loss, live_loss)


def _loss(totals: np.ndarray, row: int, plan: ProfilePlan) -> float | None:
    """Return what a row lacks of the best total, in points of 0..100; None: it is refused."""
    if totals[row] < 0:
        return None
    weights = sum(use.weight for use in plan.scores)
    return float(totals.max() - totals[row]) / TOTAL_ONE / weights if weights else 0.0
