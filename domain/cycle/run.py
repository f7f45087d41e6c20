"""One cycle: what it works on, what it has left to spend, and what it has decided so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from domain.engine.budgets import Budgets
from domain.engine.preemption import Preemptor
from domain.engine.slots import GroupSlots
from domain.engine.verdicts import CycleResult
from domain.model.limits import cycle_work_max, gang_members_max
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.queue.eviction_pauses import EvictionPauses
from domain.queue.groups import GroupKey, Tried
from domain.queue.queue import Queue
from domain.state.cluster import ClusterState
from domain.state.nominations import Nomination
from domain.state.snapshot import Snapshot

Watch = Callable[[Sequence[Tried]], None]
"""Is told which pods have their turn, before they are placed; it may look, and must change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempting:
    """What a cycle needs where pods may preempt, or have nodes nominated already.

    Attributes
    ----------
    plans : mapping
        The profiles in force.
    tries : list of Nomination
        Nominations to be tried on their nodes, the most urgent first; those that were tried are taken out.
    preempts : bool
        Whether pods may be evicted. Without it nominations are kept, and none begins.
    nomination_ms : int
        How long a nomination lasts, in log time.
    reserved : Nomination or None
        The nomination that is a reservation (``Reserving``); of a gang that of any member.
    uncounted : dict
        The nominations that the snapshot does not count now, by the key of their pod.
    paid : set
        The groups whose namespaces paid for a plan when their pods were drawn.
    """

    plans: Mapping[str, ProfilePlan]
    preemptor: Preemptor
    budgets: Budgets
    tries: list[Nomination]
    preempts: bool
    nomination_ms: int
    pauses: EvictionPauses
    reserved: Nomination | None = None
    uncounted: dict[str, Nomination] = field(default_factory=dict)
    paid: set[GroupKey] = field(default_factory=set)


class CycleRun:
    """One cycle of a scheduler: the modules of this folder take it, one after another.

    Attributes
    ----------
    at_ms : int
        Log time, with which attempts are stamped.
    preempting : Preempting or None
        None where no pod may preempt and none has a node nominated.
    work_left : int
        What the cycle may still do that was not paid when pods were drawn (``turns.py``).
    programs_max : int
        How many groups one call of the kernel compiles.
    watch : Watch or None
        What looks at the pods that have their turn, if anything does.
    """

    def __init__(
        self,
        state: ClusterState,
        queue: Queue,
        snapshot: Snapshot,
        slots: GroupSlots,
        view: NodeView,
        *,
        seed: int,
        at_ms: int,
        preempting: Preempting | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.state, self.queue = state, queue
        self.snapshot, self.slots, self.view = snapshot, slots, view
        self.seed, self.at_ms = seed, at_ms
        self.preempting, self.watch = preempting, watch
        self.result = CycleResult([], [])
        self.work_left = cycle_work_max
        self.programs_max = gang_members_max
        if preempting is not None:
            slots.counters.nominated.out = preempting.uncounted

    def make_room_for_changes(self, count: int) -> None:
        """Have the snapshot's change log take so many further changes."""
        if not self.snapshot.reserve(count):
            self.slots.void()
