"""Acts on a node: moves the boxes of pods and ends pods, as ``plan`` says, and notes what was done."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from domain.colocation.eviction import Candidate, Victim
from domain.colocation.suppression import UNLIMITED_US, BoxSettings
from domain.colocation.view import Requests
from domain.model.actions import ActionKind, NodeAction
from domain.model.colocation import Amounts, Quality, SuppressionRule
from domain.state.policies import PolicyInForce
from services.agent.ending import Ending
from services.agent.learned import NodePod, asked_milli, requests_of
from services.agent.measured import Reading, used_between
from services.agent.plan import Act, Carried, Need, Seen, choose, plan
from services.agent.pods import PodBooks
from services.agent.reporting import ended, eviction
from services.agent.talking import Learned, Outbox
from services.log_limit import LogLimit
from services.ports.cgroups import Boxes, Cgroups, PodGroup, Quota, Refused
from services.ports.clock import Clock

_SAY_AGAIN_MS = 60_000
_log = logging.getLogger("berth.agent")
_log.addFilter(LogLimit())


class AgentSettings(NamedTuple):
    """Which node this is, and how its agent works.

    ``run`` tells this run of the agent from others. With ``dry_run`` nothing is changed on the node, and
    nothing is sent. ``grace_seconds`` is what a pod has to end, where the kernel cannot end a group at once.
    ``latency_dir`` is where pods write their latency, a file by the pod's uid.
    """

    node: str
    run: str
    dry_run: bool = False
    grace_seconds: int = 30
    latency_dir: Path | None = None


class Actor:
    """What an agent does on its node, and what it remembers for that.

    Attributes
    ----------
    unknown : frozenset of str
        Pods that run here and that the API has not named yet, by uid.
    """

    def __init__(
        self,
        cgroups: Cgroups,
        settings: AgentSettings,
        clock: Clock,
        books: PodBooks,
        outbox: Outbox,
        say: Callable[[str], None],
    ) -> None:
        self._cgroups, self._settings, self._clock, self._say = cgroups, settings, clock, say
        self._books, self._outbox = books, outbox
        self._ending = Ending(cgroups, settings.grace_seconds * 1000)
        self._carried = Carried()
        self._said_ms: dict[str, int] = {}
        self.unknown = frozenset[str]()

    def act(
        self,
        boxes: Boxes,
        groups: Sequence[PodGroup],
        learned: Learned,
        before: Reading,
        reading: Reading,
    ) -> None:
        """Do what the time between two readings asks for."""
        policy, now_ms = learned.policy.policy, reading.at_ms
        if not self._settings.dry_run:
            self._ending.go_on(groups, now_ms)
        known, leaving = learned.pods or {}, self._ending.uids
        pods = {uid: pod for uid, pod in known.items() if uid not in leaving}
        unknown = [each for each in groups if each.uid not in known]
        self.unknown = frozenset(each.uid for each in unknown)
        seen = Seen(
            now_ms=now_ms,
            capacity=reading.node.capacity,
            use=used_between(before, reading),
            settings=self._box_settings(boxes, policy.suppression),
            features=self._cgroups.features(),
            requests=self._with_unknown(requests_of(pods.values()), unknown),
            asked_milli=asked_milli(pods.values(), policy.estimate),
            is_known=learned.pods is not None,
        )
        planned = plan(seen, self._carried, policy)
        self._carried = planned.carried
        for act in planned.acts:
            self._apply(act, boxes, learned.policy, now_ms)
        if planned.needs:
            self._end(planned.needs, groups, learned, now_ms)

    def _with_unknown(self, requests: Requests, unknown: Sequence[PodGroup]) -> Requests:
        """Add what mid pods request that the API does not name: those that came just now, and static ones."""
        mid = [each.group for each in unknown if each.quality is Quality.MID]
        cpu_milli = requests.mid.cpu_milli + sum(map(self._cgroups.requested_milli, mid))
        return requests._replace(mid=requests.mid._replace(cpu_milli=cpu_milli))

    def _box_settings(self, boxes: Boxes, rule: SuppressionRule) -> BoxSettings:
        """Return how the boxes are set: asked of the kernel, so that what others set is seen, too."""
        low, mid = (self._quota_us(box, rule) for box in (boxes.low, boxes.mid))
        return BoxSettings(self._cgroups.is_idle(boxes.low), low, mid)

    def _quota_us(self, box: str, rule: SuppressionRule) -> int:
        quota = self._cgroups.quota(box)
        if quota is None or quota.quota_us is None:
            return UNLIMITED_US
        return quota.quota_us * rule.period_us // quota.period_us

    def _apply(self, act: Act, boxes: Boxes, in_force: PolicyInForce, now_ms: int) -> None:
        policy = in_force.policy
        box = boxes.low if act.box is Quality.LOW else boxes.mid
        amount = act.value
        if act.kind is ActionKind.QUOTA and amount is not None:
            amount = None if amount < 0 else amount * 1000 // policy.suppression.period_us
        elif act.kind in (ActionKind.IDLE, ActionKind.WEIGHT):
            amount = None
        action = NodeAction(
            node=self._settings.node,
            at_ms=self._clock.now_ms(),
            kind=act.kind,
            quality=act.box.value,
            reason=act.reason,
            amount=amount,
            policy=in_force.reference,
        )
        if not self._settings.dry_run:
            try:
                self._set(act, box, policy.suppression.period_us)
            except Refused as refused:
                _log.warning("the kernel refuses: %s", refused)
                return
            self._outbox.actions.add(action)
        self._tell(f"{act.kind} of {act.box} pods", f"{act.value}: {act.reason}", now_ms)

    def _set(self, act: Act, box: str, period_us: int) -> None:
        match act.kind:
            case ActionKind.QUOTA:
                quota_us = None if act.value is None or act.value < 0 else act.value
                self._cgroups.set_quota(box, Quota(quota_us, period_us))
            case ActionKind.IDLE | ActionKind.WEIGHT:
                self._cgroups.set_idle(box, True)
            case ActionKind.MEMORY_HIGH:
                self._cgroups.set_memory_high(box, act.value)
            case ActionKind.RECLAIM:
                self._cgroups.reclaim(box, act.value or 0)
            case ActionKind.EVICT:
                raise AssertionError("an eviction is of a pod, not of a box")

    def _end(self, needs: Sequence[Need], groups: Sequence[PodGroup], learned: Learned, now_ms: int) -> None:
        """End pods. What they use is read anew: pods are read rarely, as there may be a hundred."""
        used = self._books.used_since(groups, now_ms)
        known = learned.pods or {}
        found = {
            pod.key: (pod, group)
            for group in groups
            if (pod := known.get(group.uid)) is not None and pod.quality is not Quality.HIGH
        }
        leaving = self._ending.leaving(now_ms)
        stays, leaves = list[Candidate](), list[Candidate]()
        for pod, _ in found.values():
            candidate = Candidate(
                pod.key,
                pod.quality,
                pod.priority,
                used.get(pod.uid, Amounts()),
                pod.requests,
                pod.estimate(learned.policy.policy.estimate),
            )
            if pod.uid in leaving:
                leaves.append(candidate)
            elif pod.uid not in self._ending.uids:
                stays.append(candidate)
        for victim in choose(needs, stays, leaves):
            self._end_one(*found[victim.name], victim, learned.policy.reference, now_ms)

    def _end_one(self, pod: NodePod, group: PodGroup, victim: Victim, policy: str, now_ms: int) -> None:
        if not self._settings.dry_run:
            at_ms, node = self._clock.now_ms(), self._settings.node
            self._ending.begin(group, now_ms)
            self._outbox.evict(pod.uid, eviction(pod, node, victim.reason, at_ms))
            self._outbox.actions.add(ended(pod, node, victim.reason, policy, at_ms))
        self._tell(f"eviction of {pod.key}", victim.reason, now_ms)

    def _tell(self, what: str, why: str, now_ms: int) -> None:
        """Say what is done. What would be done, and stays undone, is not said each second."""
        if not self._settings.dry_run:
            self._say(f"{what}: {why}")
        elif now_ms - self._said_ms.get(what, -_SAY_AGAIN_MS) >= _SAY_AGAIN_MS:
            self._said_ms[what] = now_ms
            self._say(f"dry run: {what}: {why}")
