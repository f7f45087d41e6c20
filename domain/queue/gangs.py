"""Gangs: waiting pods that are placed together or not at all. Each gang has one turn in the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from domain.model.resources import PODS
from domain.queue.blocked import Blocked
from domain.queue.deadlines import Deadlines, backoff_ends_ms
from domain.queue.groups import Gang, Line, Tried, WaitingGroup
from domain.state.cluster import ClusterState
from domain.state.resources import NOWHERE
from domain.state.snapshot import Snapshot

Turn = tuple[list[Tried], Gang | None]
"""Pods that are tried one after another, and the gang that is tried behind them, if any."""


class Gangs:
    """The gangs with members that wait.

    Parameters
    ----------
    activate : callable
        Has a group tried that waited for what could cure it.
    lines : dict
        The lines that may have another first pod; it is written.
    blocked : Blocked
        Where gangs are noted that cannot start, as long as nothing but nodes keeps them from it.

    Attributes
    ----------
    changed : dict
        Names of gangs to be looked at again; what the state says changed comes on top.
    is_put_off : bool
        Whether a gang was woken while it backs off.
    backing_off : Deadlines
        When these are active again.
    """

    def __init__(
        self,
        state: ClusterState,
        backoff_ms: tuple[int, int],
        activate: Callable[[WaitingGroup], None],
        lines: dict[Line, None],
        blocked: Blocked,
    ) -> None:
        self._state = state
        self._backoff_ms = backoff_ms
        self._activate_group = activate
        self._lines, self._blocked = lines, blocked
        self._now_ms = 0
        self.known: dict[str, Gang] = {}
        self.changed: dict[str, None] = {}
        self.is_put_off = False
        self.backing_off = Deadlines(self._backs_off)
        self._short: dict[str, None] = {}  # gangs that wait for room anywhere
        self._asked: dict[str, tuple[bool, int]] = {}  # gangs that changed since pods were drawn: see ``ask``
        self._turns_count = self._outdated_count = 0  # of all of these

    def join(self, group: WaitingGroup) -> None:
        """Let a new group of members wait with its gang, if it has one."""
        key = group.template.gang
        if key:
            if key not in self.known:
                self.known[key] = Gang(key, group)
            group.gang = self.known[key]
            group.gang.groups[group.key] = group

    def _drain_changed(self) -> list[str]:
        """Return the gangs that changed since this was asked last."""
        of_state = self._state.index.gangs.changed
        changed = [*{**self.changed, **of_state}]
        self.changed.clear()
        of_state.clear()
        return changed

    def ask(self) -> tuple[bool, int]:
        """Say whether any gang that changed has a turn, and how many lines of these stand as they did before.

        To ask decides nothing, since a replay does not ask when its worker did: what holds a gang between
        two draws of pods, and no longer, is as if it had never been.
        """
        for key in self._drain_changed():
            self._forget_answer(key)
            if (gang := self.known.get(key)) is not None:
                lines = chain.from_iterable(group.lines.values() for group in gang.groups.values())
                count = sum(line.entry is not None for line in (gang.line, *lines))
                self._asked[key] = has_turn, count = self._will_have_turn(gang), count
                self._turns_count += has_turn
                self._outdated_count += count
        return self._turns_count > 0, self._outdated_count

    def _forget_answer(self, key: str) -> None:
        had_turn, count = self._asked.get(key, (False, 0))
        self._asked[key] = False, 0
        self._turns_count -= had_turn
        self._outdated_count -= count

    def _will_have_turn(self, gang: Gang) -> bool:
        """Say whether a gang, or the pods of it that have to be told why they wait, have a turn next."""
        status = gang.look(self._state)
        reason = status.reason
        for group in gang.groups.values():
            held_by = group.held_for(reason)
            is_news = held_by != group.held_by and not group.held_by_itself
            if held_by and (is_news or any(line.fresh for line in group.lines.values())) and group.lines:
                return True
        if reason or not status.waiting_count:
            return False
        if not gang.is_parked or gang.has_fresh:
            return True
        return status.shape != gang.tried_as and not gang.is_woken and gang.due_ms <= self._now_ms

    def look_at_changed(self) -> Iterator[WaitingGroup]:
        """Look again at the gangs that changed: a complete one has a turn, the pods of others are held.

        Yields the groups that something else holds than before, or nothing.
        """
        changed = [*dict.fromkeys([*self._asked, *self._drain_changed()])]
        self._asked.clear()
        self._turns_count = self._outdated_count = 0
        for gang in [self.known[key] for key in changed if key in self.known]:
            gang.update_status(self._state)
            if not (gang.groups and gang.lacks_nodes):
                self._blocked.forget(gang.key)
            if not gang.groups:
                del self.known[gang.key]
                self._short.pop(gang.key, None)
            for group in gang.ready:
                before = group.held_by
                group.hold_for(gang.reason)
                if group.held_by != before:
                    self._activate_group(group)
                    yield group
            if gang.reason or gang.has_fresh:
                self.activate(gang)
            elif gang.status.shape != gang.tried_as:
                self.wake(gang)
            self._lines[gang.line] = None

    def park(self, gang: Gang, at_ms: int, *, placed_any: bool, is_short: bool = False) -> None:
        """Park a gang; its groups were parked as far as their pods found no node.

        With ``is_short`` none of them was tried, for want of room anywhere.
        """
        gang.update_status(self._state)
        gang.tried_as = gang.status.shape
        gang.tried_in.clear()
        gang.is_parked = True
        if placed_any:
            gang.failing_since_ms = None
        elif gang.failing_since_ms is None:
            gang.failing_since_ms = at_ms
        if not gang.lacks_nodes:
            self._blocked.forget(gang.key)
        elif gang.key not in self._blocked:
            self._blocked.note(gang.key, at_ms)
        gang.failures = 1 if placed_any else gang.failures + 1
        is_late = gang.seen(at_ms=at_ms).late_seconds > 0
        gang.due_ms = backoff_ends_ms(at_ms, gang.failures, self._backoff_ms, is_late=is_late)
        if is_short:
            self._short[gang.key] = None
        self._lines[gang.line] = None

    def wake_short(self) -> None:
        """Wake the gangs that wait for room anywhere."""
        for key in list(self._short):
            self.wake(self.known[key])

    def wake(self, gang: Gang) -> None:
        """Have a parked gang tried again, when its backoff has ended; with a fresh pod at once."""
        if not gang.is_parked or gang.is_woken or gang.reason:
            return
        self.activate(gang)
        if gang.due_ms > self._now_ms and not gang.has_fresh:
            gang.is_parked = gang.is_woken = self.is_put_off = True
            self.backing_off.add(gang.due_ms, gang.key)

    def activate(self, gang: Gang) -> None:
        """Have a gang tried in its turn."""
        gang.is_parked = gang.is_woken = False
        self._short.pop(gang.key, None)
        for group in gang.ready:
            self._activate_group(group)
        self._lines[gang.line] = None

    def pass_to(self, now_ms: int) -> None:
        """Let log time pass: gangs with a backoff that ended are active again."""
        self._now_ms = now_ms
        for key in self.backing_off.pass_to(now_ms):
            self.activate(self.known[key])

    def _backs_off(self, key: str, due_ms: int) -> bool:
        gang = self.known.get(key)
        return gang is not None and gang.is_woken and gang.due_ms == due_ms


def lacking(
    gang: Gang, state: ClusterState, snapshot: Snapshot, freed: np.ndarray | None = None
) -> Mapping[str, int]:
    """Return what is not free of the least resources of a gang; its own pods take nothing away from it.

    ``freed`` int64[R, N], if given, counts as free, too.

    Source: the coscheduling plugin of scheduler-plugins (``CheckClusterResource``). Cost: O(nodes) for each
    resource, nothing where the PodGroup names none.
    """
    assert gang.spec is not None
    if not gang.spec.min_resources:
        return {}
    own = Counter[str]()
    for entry in gang.placed:
        if entry.node in state.table.rows:
            own.update({**entry.spec.template.requests, PODS: 1})
    needed = {**gang.spec.min_resources, PODS: gang.spec.min_member}
    short = {
        name: amount - own[name] - _free(state, snapshot, name, freed) for name, amount in needed.items()
    }
    return {name: amount for name, amount in short.items() if amount > 0}


def _free(state: ClusterState, snapshot: Snapshot, name: str, freed: np.ndarray | None) -> int:
    column, columns = state.resources.column(name), snapshot.columns
    if column == NOWHERE:
        return 0
    count = int(columns.rows_count[0])
    free = columns.allocatable[column, :count] - columns.requested[column, :count]
    return sum((free if freed is None else free + freed[column, :count]).tolist())


def min_member_of(state: ClusterState, gang: str) -> int | None:
    """Return how many pods of a gang must have a node; None: there is no such PodGroup."""
    spec = state.config.gang(gang)
    return None if spec is None else spec.min_member


def codes_of(short: Mapping[str, int]) -> Sequence[str]:
    """Return a reason code for each resource that is short."""
    return [f"gang-resources:{name}" for name in sorted(short)]
