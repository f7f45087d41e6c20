"""Collects what a batch writes of pods: where they count, which of them wait, and which are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from domain.cycle.schedule import Scheduler
from domain.model.decisions import Decision
from domain.model.pods import PodSpec, PodTemplate
from domain.state.changes import PodRefreshed
from domain.state.nominations import Nomination
from services.ports.inbox import Sent
from services.ports.ledger import (
    BatchPods,
    PendingGroup,
    PlacementClosed,
    PlacementOpened,
    PlacementRefreshed,
    PodTombstone,
)
from services.worker.ledger_rows import count_placements, pending_pods, placement_opened
from services.worker.ledger_view import LedgerView
from services.worker.moving import move_rows
from services.worker.preempting import nomination_row, nomination_rows


class PodRows:
    """The rows of pods, as a batch would leave them so far.

    Attributes
    ----------
    opened : dict
        Uid -> the placement that begins.
    placed_ms : dict
        Key of a pod -> log time of that.
    waiting : dict
        Key -> a pod whose pending row is to be written, and its arrival.
    kept : dict
        Uid of a pod that was bound where it was nominated -> its nomination, which holds if the bind is lost.
    """

    def __init__(self, ledger_view: LedgerView) -> None:
        self._ledger_view = ledger_view
        self.opened: dict[str, PlacementOpened] = {}
        self.placed_ms: dict[str, int] = {}
        self.waiting: dict[str, tuple[PodSpec, int]] = {}
        self.kept: dict[str, Nomination] = {}
        self._closed: list[PlacementClosed] = []
        self._refreshed: dict[str, PlacementRefreshed] = {}
        self._removed: list[str] = []  # uids whose pending rows go
        self._waited: dict[str, tuple[int, int, str | None]] = {}  # see BatchPods
        self._groups: dict[tuple[int, bytes], PendingGroup] = {}
        self._tombstones: dict[tuple[str, str, str], PodTombstone] = {}

    @property
    def has_waits(self) -> bool:
        """Whether a pod began to wait, or ended."""
        return bool(self.waiting or self._removed)

    def end_wait(self, pod: PodSpec) -> None:
        """Remove the pending row."""
        self._ledger_view.untried.discard(pod.key)
        if self.waiting.pop(pod.key, None) is None:
            self._removed.append(pod.uid)

    def wait_on(self, pod: PodSpec, arrival: int) -> None:
        """Write the pending row again."""
        self.end_wait(pod)
        self.waiting[pod.key] = (pod, arrival)

    def begin(self, pod: PodSpec, decision: Decision, *, adopted: bool) -> None:
        """Open a placement."""
        self.opened[pod.uid] = placement_opened(pod, decision, adopted=adopted)
        self.placed_ms[pod.key] = decision.decided_at_ms

    def bind(self, pod: PodSpec, arrival: int) -> None:
        """End the wait of a pod that is placed, and remember it in case that is lost."""
        self._waited[pod.uid] = (arrival, *self._ledger_view.waits.pop(pod.key))
        self.end_wait(pod)

    def end(self, pod: PodSpec, at_ms: int) -> None:
        """Close the placement."""
        if self.opened.pop(pod.uid, None) is None:
            self._closed.append(PlacementClosed(pod.uid, at_ms))
        self._refreshed.pop(pod.uid, None)

    def refresh(self, change: PodRefreshed) -> None:
        """Write what does not matter for placing."""
        pod = change.pod
        if not change.placed:
            self.wait_on(pod, change.arrival)
        elif pod.uid in self.opened:
            opened = self.opened[pod.uid]
            self.opened[pod.uid] = msgspec.structs.replace(
                opened, resource_version=pod.resource_version, labels=pod.labels, life=pod.life
            )
        else:
            self._refreshed[pod.uid] = PlacementRefreshed(pod.uid, pod.resource_version, pod.labels, pod.life)

    def remember_gone(self, key: str, uid: str, version: int | None, shard: int, at_ms: int) -> None:
        """Write a tombstone; the key of a node has no namespace."""
        namespace, _, name = key.rpartition("/")
        self._tombstones[namespace, name, uid] = PodTombstone(
            namespace=namespace, name=name, uid=uid, resource_version=version, shard=shard, at_ms=at_ms
        )

    def explain(self, groups: Iterable[PendingGroup]) -> None:
        """Write why groups wait."""
        self._groups |= {(group.shard, group.signature): group for group in groups}

    def rows(self, scheduler: Scheduler, templates: Mapping[bytes, PodTemplate], sent: Sent) -> BatchPods:
        """Return the rows, with what the state says of these pods by now."""
        state = scheduler.state
        counted = count_placements(self.opened, state)  # changes what is opened
        return BatchPods(
            templates=templates,
            closed=self._closed,
            opened=list(self.opened.values()),
            refreshed=list(self._refreshed.values()),
            counted=counted,
            orphaned=dict(state.own_changes.told),
            waited=self._waited,
            kept={uid: nomination_row(each) for uid, each in self.kept.items()},
            pending_removed=self._removed,
            pending_added=pending_pods(self.waiting.values(), scheduler, self._ledger_view),
            pending_groups=list(self._groups.values()),
            unnominated=list(state.own_changes.unnominated),
            nominated=nomination_rows(state.nominations, state.own_changes.nominated),
            spared=list(state.own_changes.spared),
            rested=list(state.own_changes.rested),
            moved=move_rows(state.moves.reliefs, state.own_changes.relieved),
            tombstones=list(self._tombstones.values()),
            handed=sent.handed,
            forwarded=sent.forwarded,
        )
