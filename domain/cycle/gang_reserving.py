"""The placing of gangs for which nodes may be kept free: as many as the gang needs, or none.

Pods of no higher priority count as if they left by themselves. Members that find a node on trial keep it, and
the others are planned as if the gang preempted such pods (``GangPreemptingPlacer``); nobody is evicted.
"""

from __future__ import annotations

from collections.abc import Sequence

from domain.cycle.gang_preempting import GangPreemptingPlacer
from domain.cycle.gangs import Gang, lacking
from domain.cycle.groups import GroupKey, Line, WaitingGroup
from domain.cycle.preemption import NO_VICTIMS
from domain.cycle.program import Program
from domain.cycle.promises import mates_of
from domain.model.limits import reservation_lasts_seconds
from domain.state.nominations import Nomination
from domain.state.steps import Cleared


class GangReservingPlacer(GangPreemptingPlacer):
    """Tries the candidates of one cycle; keeps nodes free for a gang, and no longer than that is of use."""

    def reserve_gang(self, gang: Gang) -> str:
        """Keep nodes free for a gang that could start if pods of no higher priority left.

        Returns a member that has one, "" if none has.
        """
        pods, own_nodes = self._state.pods, {entry.node for entry in gang.placed}
        with self._out_of_turn(gang):
            found = self._plan_below(gang.lowest_priority + 1, gang, gang.members(), own_nodes)
            trial, plans = found or (None, {})
            leaving = [pods[key].spec.template.gang for plan in plans.values() for key in plan.victims]
            # With room it is tried in its turn; and it is to start beside its own pods, not after them.
            if trial is None or not leaving or gang.key in leaving:
                return ""
            kept = {key: plan._replace(victims=(), weight=NO_VICTIMS) for key, plan in plans.items()}
            chosen = self._promise_gang(gang, trial, kept, reservation_lasts_seconds * 1_000)
        return next(iter(chosen))

    def review_gang(self, nomination: Nomination) -> None:
        """End the reservation of a gang if it has room now, or one of its nodes can hold its pods no longer.

        Of rules over other pods nothing is asked here.
        """
        mates, programs = mates_of(self._state, nomination), dict[GroupKey, Program]()
        self._slots.start_call()
        if not all(self._compile_one(each, programs) for each in mates):
            return
        gang = self._waiting(mates)
        with self._out_of_turn(gang):
            could = not any(self._is_refused(each, programs) for each in mates)
            could = could and self._could_have_room(mates, gang.lowest_priority)
            self._hold(mates, -1)
            fits = self._fits(gang)
            if fits or not could:
                reason = "elsewhere" if fits else "not-held"
                self._let_go(self._state.apply(Cleared([each.key for each in mates], reason)))
        self._snapshot.caught_up()

    def _waiting(self, mates: Sequence[Nomination]) -> Gang:
        """Return the gang that pods with promised nodes would be if they waited for any node."""
        groups: dict[GroupKey, WaitingGroup] = {}
        for each in mates:
            entry, key = self._state.pods[each.key], self._group_of(each)
            if key not in groups:
                plan = self._plans[each.template.profile]
                groups[key] = WaitingGroup(key[0], each.template, plan, entry.pod_class, key[1])
            lines, namespace = groups[key].lines, entry.spec.namespace
            line = lines.setdefault(namespace, Line(namespace, groups[key]))
            line.put(each.key, entry.arrival, fresh=False)
        gang = Gang(mates[0].template.gang, groups[self._group_of(mates[0])])
        gang.groups = groups
        gang.renew(self._state)
        return gang

    def _could_have_room(self, mates: Sequence[Nomination], priority: int) -> bool:
        """Say whether promised nodes have room for all that is promised once pods up to a priority left."""
        freed = self._preemptor.freed(priority + 1, self._decided(priority)[0])
        columns, rows = self._snapshot.columns, self._state.table.rows
        for each in mates:
            asked, row = self._state.nominations.amounts(each)[0], rows[each.node]
            left = columns.allocatable[asked, row] - columns.requested[asked, row] + freed[asked, row]
            if (left < 0).any():
                return False
        return True

    def _fits(self, gang: Gang) -> bool:
        """Say whether enough members find a node as it is."""
        if gang.spec is None or lacking(gang, self._state, self._snapshot):
            return False
        members = gang.members()
        for domain in self._domains_to_try(gang, members)[0]:
            trial = self._try_gang(members, domain)
            if trial is None:
                return False
            self._take_back(trial)
            if trial.found_count >= gang.lacking_count:
                return True
        return False
