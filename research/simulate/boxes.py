"""One node of a simulated day: what its pods get of the cpu, and the boxes as its agent moves them.

What the agent decides is the product's own (``services.agent.plan``), second by second. Seconds in which
nothing more can change are passed over at once: the agent would decide the same in each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from domain.colocation.eviction import Candidate, Cause, LowCpu, starved_release_milli
from domain.colocation.suppression import BoxSettings
from domain.colocation.view import Requests
from domain.model.actions import ActionKind
from domain.model.colocation import Amounts, CoLocationPolicy, Quality, UseByQuality
from services.agent.plan import Act, Carried, Need, Plan, Seen, choose, plan
from services.ports.cgroups import Feature

MINUTE_SECONDS = 60
FEATURES = frozenset((Feature.QUOTA, Feature.IDLE))
"""What the kernel can do: without ``memory.high`` low pods end at once where memory is short."""


class Demand(NamedTuple):
    """What high and mid pods on a node want to use now, and what is promised to them.

    Attributes
    ----------
    high, mid : Amounts
        What they would use if nothing held them back.
    high_promised_milli, mid_promised_milli : int
        Of the cpu what each pod wants within its request, in sum.
    requests : Requests
    """

    high: Amounts
    mid: Amounts
    high_promised_milli: int
    mid_promised_milli: int
    requests: Requests


class LowPods(NamedTuple):
    """The low pods on a node: their keys, what each of them wants, and what each is expected to use."""

    keys: tuple[str, ...]
    wants: Amounts
    estimate: Amounts


class Minute(NamedTuple):
    """What a minute of a node came to. cpu is in thousandths of a core times seconds.

    Attributes
    ----------
    use : UseByQuality
        In its last second: what the agent measures.
    high, mid : int
        cpu that they got.
    mid_burst : int
        What of it is beyond the requests.
    cut : int
        What was promised to high and mid pods, wanted by them, and not given: see ``Demand``.
    low_wanted : int
        What low pods wanted of the cpu.
    low : dict of str to int
        What each low pod got.
    ended : list of (str, Cause)
        Low pods that were ended, and why.
    """

    use: UseByQuality
    high: int
    mid: int
    mid_burst: int
    cut: int
    low_wanted: int
    low: dict[str, int]
    ended: list[tuple[str, Cause]]


class Given(NamedTuple):
    """What the kernel gives of the cpu of a node, in thousandths of a core."""

    high_milli: int
    mid_milli: int
    low_milli: int


def share_cpu(
    cores_milli: int, period_us: int, demand: Demand, low_milli: int, settings: BoxSettings
) -> Given:
    """Return who gets how much of the cpu.

    A quota bounds a box. Low pods that yield (``cpu.idle``) get what is left. Low pods that do not yield
    compete with all others: where more is wanted than there is, all are cut by the same factor. Among the
    others requests come first, as ``cpu.weight`` follows from them.
    """
    mid_milli = _within(settings.mid_quota_us, period_us, demand.mid.cpu_milli)
    low_milli = _within(settings.low_quota_us, period_us, low_milli)
    high_milli = demand.high.cpu_milli
    if not settings.low_yields and (wanted := high_milli + mid_milli + low_milli) > cores_milli:
        return Given(*(each * cores_milli // wanted for each in (high_milli, mid_milli, low_milli)))
    left = max(0, cores_milli - demand.high_promised_milli - demand.mid_promised_milli)
    high_more = min(high_milli - demand.high_promised_milli, left)
    mid_more = min(max(0, mid_milli - demand.mid_promised_milli), left - high_more)
    high = demand.high_promised_milli + high_more
    mid = min(mid_milli, demand.mid_promised_milli + mid_more)
    return Given(high, mid, min(low_milli, max(0, cores_milli - high - mid)))


def _within(quota_us: int, period_us: int, milli: int) -> int:
    return milli if quota_us < 0 else min(milli, quota_us * 1000 // period_us)


class NodeBoxes:
    """The boxes of a node, and what its agent remembers.

    Parameters
    ----------
    capacity : Amounts
        Of the node.
    policy : CoLocationPolicy
        What holds there.
    """

    def __init__(self, capacity: Amounts, policy: CoLocationPolicy) -> None:
        self._capacity, self._policy = capacity, policy
        self._settings, self._carried = BoxSettings(), Carried()
        self._steady: tuple[Demand, LowPods, Minute] | None = None

    def pass_minute(self, now_ms: int, demand: Demand, low: LowPods) -> Minute:
        """Let a minute pass that begins now; return what it came to. Low pods are equal, and share alike."""
        if self._steady is not None and self._steady[:2] == (demand, low):
            self._fill_window(MINUTE_SECONDS)
            return self._steady[2]
        pods, got = low, dict.fromkeys(low.keys, 0)
        high = mid = burst = cut = wanted = second = 0
        ended, is_whole = list[tuple[str, Cause]](), False
        while second < MINUTE_SECONDS:
            given = self._share(demand, pods)
            use = _use(demand, given, pods)
            planned = self._plan(now_ms + second * 1_000, demand, use, pods)
            is_steady = self._is_steady(planned, pods)
            seconds = MINUTE_SECONDS - second if is_steady else 1
            is_whole |= is_steady and second == 0
            high += given.high_milli * seconds
            mid += given.mid_milli * seconds
            burst += max(0, given.mid_milli - demand.mid_promised_milli) * seconds
            cut += _cut(demand, given) * seconds
            wanted += pods.wants.cpu_milli * len(pods.keys) * seconds
            for key in pods.keys:
                got[key] += given.low_milli // len(pods.keys) * seconds
            self._carried = planned.carried
            self._fill_window(seconds - 1)
            for act in planned.acts:
                self._apply(act)
            victims = _victims(planned.needs, _candidates(pods, given)) if pods.keys else {}
            ended += victims.items()
            pods = pods._replace(keys=tuple(key for key in pods.keys if key not in victims))
            second += seconds
        use = _use(demand, self._share(demand, pods), pods)
        minute = Minute(use, high, mid, burst, cut, wanted, got, ended)
        self._steady = (demand, low, minute) if is_whole else None
        return minute

    def _share(self, demand: Demand, pods: LowPods) -> Given:
        wanted_milli = pods.wants.cpu_milli * len(pods.keys)
        period_us = self._policy.suppression.period_us
        return share_cpu(self._capacity.cpu_milli, period_us, demand, wanted_milli, self._settings)

    def _plan(self, now_ms: int, demand: Demand, use: UseByQuality, pods: LowPods) -> Plan:
        seen = Seen(
            now_ms=now_ms,
            capacity=self._capacity,
            use=use,
            settings=self._settings,
            features=FEATURES,
            requests=demand.requests,
            asked_milli=pods.estimate.cpu_milli * len(pods.keys),
        )
        return plan(seen, self._carried, self._policy)

    def _is_steady(self, planned: Plan, pods: LowPods) -> bool:
        """Return whether the agent decides in all seconds that follow as in this one.

        Without low pods no need ends anything: mid pods use no more memory than they request, and only a
        policy that bounds the cpu of the node ends others.
        """
        if planned.acts:
            return False
        if not pods.keys:
            return True
        cpu: LowCpu = planned.carried.window[-1]
        is_starved = starved_release_milli(self._policy.eviction, cpu, cpu) > 0
        return not (planned.needs or is_starved or planned.carried.low_below_since_ms is not None)

    def _fill_window(self, seconds: int) -> None:
        """Note the latest second once more for each second that is passed over."""
        if seconds:
            window, length = self._carried.window, self._policy.eviction.pause_seconds + 1
            more = window[-1:] * min(seconds, length)
            self._carried = self._carried._replace(window=(*window, *more)[-length:])

    def _apply(self, act: Act) -> None:
        if act.kind in (ActionKind.IDLE, ActionKind.WEIGHT):
            self._settings = self._settings._replace(low_yields=True)
        elif act.kind is ActionKind.QUOTA:
            assert act.value is not None
            if act.box is Quality.LOW:
                self._settings = self._settings._replace(low_quota_us=act.value)
            else:
                self._settings = self._settings._replace(mid_quota_us=act.value)
        else:
            raise AssertionError(f"the kernel of a simulated node has no {act.kind}")


def _use(demand: Demand, given: Given, pods: LowPods) -> UseByQuality:
    return UseByQuality(
        high=Amounts(given.high_milli, demand.high.memory_bytes),
        mid=Amounts(given.mid_milli, demand.mid.memory_bytes),
        low=Amounts(given.low_milli, pods.wants.memory_bytes * len(pods.keys)),
    )


def _cut(demand: Demand, given: Given) -> int:
    """Return what high and mid pods lack of what they want and was promised to them."""
    high = max(0, demand.high_promised_milli - given.high_milli)
    return high + max(0, demand.mid_promised_milli - given.mid_milli)


def _victims(needs: Sequence[Need], candidates: Sequence[Candidate]) -> dict[str, Cause]:
    """Return which pods end, and for which cause: see ``choose``."""
    found = dict[str, Cause]()
    for need in needs:
        gone = [each for each in candidates if each.name in found]
        stays = [each for each in candidates if each.name not in found]
        found |= {victim.name: need.cause for victim in choose([need], stays, gone)}
    return found


def _candidates(pods: LowPods, given: Given) -> Sequence[Candidate]:
    used = Amounts(given.low_milli // max(len(pods.keys), 1), pods.wants.memory_bytes)
    return [Candidate(key, Quality.LOW, 0, used, Amounts(), pods.estimate) for key in pods.keys]
