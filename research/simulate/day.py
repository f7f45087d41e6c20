"""A day of co-location: services that use less than they request, and a batch job beside them.

The job runs as high pods, which need what nothing requests, or as low pods, which need what nothing uses. The
scheduler is that of a worker, and the boxes of each node are moved by the agent's own plan (``boxes.py``):
each minute every node is measured by quality, and the worker folds what was measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import merge

import msgspec

from domain.colocation.pricing import Part, Used, price_micro
from domain.colocation.suppression import boxes_of
from domain.model.colocation import (
    DEFAULT_POLICY,
    QOS_CLASS_OF,
    QUALITY_OF,
    Amounts,
    CoLocationPolicy,
    Quality,
    UseByQuality,
)
from domain.model.config import CO_LOCATION_POLICY
from domain.model.events import ConfigUpserted, NodeUpserted, NodeUsed, PodDeleted, PodUpserted
from domain.model.pods import COLOCATION_PROFILE, CpuClaim, PodSpec, PodTemplate
from domain.model.resources import CPU, MEMORY
from domain.model.signature import signature
from domain.model.usage import NodeUsage
from domain.state.usage import capacity_of
from research.simulate.boxes import MINUTE_SECONDS, Demand, LowPods, NodeBoxes
from research.simulate.demands import NAMESPACE, POD_MILLI, POD_USED_BYTES, Demands, promised
from research.simulate.methods import Method
from research.simulate.running import HAPPEN, LOOK, Every, Simulation, agenda
from research.simulate.trace import Ended, Kind, Moment, Trace

JOB_MS = 30 * 60_000
"""When the job comes: half of the services are there by then."""

GRACE_MS = 30_000
"""What a pod has to leave for another one: the default of Kubernetes."""

POD_REQUEST_BYTES = 1 << 30
HOURS_AS = {Quality.HIGH: 10, Quality.LOW: 1}
"""How long a pod of the job runs if it always gets its core: low pods are ten times as many."""

_MINUTE_MS = MINUTE_SECONDS * 1_000
_MILLI_SECONDS_PER_CORE_HOUR = 3_600_000

CHOICES = (
    "Services are high pods (Guaranteed) of priority 100 with what they request; where a trace says a limit "
    "above the request, they are mid.",
    f"The job comes after {JOB_MS // 60_000} minutes, with priority 0: in pods of one core that each have 10 "
    "core-hours to do as high pods, and one as low pods. A pod uses 256 MiB.",
    "A pod of the job that is ended keeps what it has done, as work is cut into small pieces, and waits "
    "again as a new pod. It begins to work with the minute after its placement.",
    "A pod that is to leave for another one leaves after 30 seconds.",
    "Each node is measured once a minute; its agent moves the boxes each second. The system uses nothing.",
)


class Job(msgspec.Struct, frozen=True):
    """A batch job: how much there is to do, in core-hours, and as which quality."""

    core_hours: float
    quality: Quality

    @property
    def pods_count(self) -> int:
        """How many pods share it."""
        return max(1, round(self.core_hours / HOURS_AS[self.quality]))

    @property
    def pod_milli_seconds(self) -> int:
        """What each pod has to do, in thousandths of a core times seconds."""
        return round(self.core_hours * _MILLI_SECONDS_PER_CORE_HOUR / self.pods_count)

    def pods(self, profile: str) -> list[PodUpserted]:
        """Return its pods, as they wait for a node."""
        cores = {CPU: POD_MILLI, MEMORY: POD_REQUEST_BYTES} if self.quality is Quality.HIGH else {}
        template = PodTemplate(
            requests=cores,
            limits=cores,
            scoring_cpu_milli=cores.get(CPU, 100),
            scoring_memory_bytes=cores.get(MEMORY, 200 << 20),
            cpu_claim=CpuClaim(fixed_milli=POD_MILLI) if cores else CpuClaim(silent_count=1),
            qos_class=QOS_CLASS_OF[self.quality],
            profile=profile,
        )
        kind = Kind(template, signature(template))
        width = len(str(self.pods_count))
        return [PodUpserted(kind.pod(f"{NAMESPACE}/{i:0{width}d}")) for i in range(self.pods_count)]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of a step of the curves; cores, but for counts of pods.

    Attributes
    ----------
    seconds : float
        When the step ends, since the trace began.
    services, job : float
        What services and the job used.
    lent : float
        What low pods could have used: the sum of their boxes at the end of the step.
    suppressed : float
        What low pods wanted on their nodes, and did not get.
    running, waiting : int
        Pods of the job with a node at the end of the step, and without.
    ended : int
        Pods of the job that were ended, or left for other pods, in the step.
    """

    seconds: float
    services: float
    job: float
    lent: float
    suppressed: float
    running: int
    waiting: int
    ended: int


class Line(msgspec.Struct, frozen=True):
    """A line of the bill: whose use, its part, core-hours, their price, and what high pods would pay."""

    of: str
    quality: str
    part: str
    core_hours: float
    price: float
    as_high: float


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """What a day came to with one job, or without one.

    Attributes
    ----------
    job : str
        ``none``, or the quality of its pods.
    cores : float
        Of all nodes.
    done_core_hours : float
        What of the job was done at the end of the day.
    done_seconds : float, optional
        When all of it was done, since it came; None: it was not.
    used : float
        The mean use of all cores, as a share; ``used_until_done`` from when the job came until it was done.
    ended : dict
        Why pods of the job were ended -> how many; ``preempted``: for a pod of higher priority.
    suppressed_core_hours : float
        What low pods wanted on their nodes, and did not get.
    cut_core_seconds : float
        What high and mid pods wanted within their requests, and did not get.
    cut_nodes_count : int
        In how many minutes of a node that was so.
    waits_count, waits_seconds
        High pods of services that found no node at once, and how long they waited in sum; those without a
        node at the end until then.
    """

    trace: str
    profile: str
    seed: int
    job: str
    nodes_count: int
    cores: float
    services_count: int
    job_core_hours: float
    job_pods_count: int
    done_core_hours: float
    done_seconds: float | None
    used: float
    used_until_done: float | None
    ended: dict[str, int]
    suppressed_core_hours: float
    cut_core_seconds: float
    cut_nodes_count: int
    waits_count: int
    waits_seconds: float
    bill: list[Line]
    steps: list[Step]


def simulate_day(
    trace: Trace,
    job: Job | None,
    profile: Method,
    *,
    seed: int,
    policy: CoLocationPolicy = DEFAULT_POLICY,
) -> Day:
    """Let a trace with curves happen, with a job beside its pods; ``policy`` holds on all nodes."""
    return _Run(trace, job, profile, seed=seed, policy=policy).finish()


def _moments(trace: Trace, job: Job | None, profile: str, policy: CoLocationPolicy) -> Iterator[Moment]:
    """Yield the moments of a day: the policy, services with their promises, and the job."""
    yield Moment(0, ConfigUpserted(CO_LOCATION_POLICY, "", "day", policy))
    ours = [] if job is None else [Moment(JOB_MS, each) for each in job.pods(profile)]
    kinds = dict[bytes, Kind]()
    for moment in merge(trace.moments, ours, key=lambda each: each.at_ms):
        event = moment.event
        if isinstance(event, PodUpserted) and event.pod.namespace != NAMESPACE:
            pod = event.pod
            if pod.signature not in kinds:
                template = promised(pod.template, profile)
                kinds[pod.signature] = Kind(template, signature(template))
            template, sign = kinds[pod.signature]
            pod = msgspec.structs.replace(pod, template=template, signature=sign)
            moment = Moment(moment.at_ms, PodUpserted(pod))
        yield moment


class _Tally(msgspec.Struct):
    """Sums over the day, or a step of it; cpu in thousandths of a core times seconds.

    ``high``, ``mid`` and ``burst``, which is the part of ``mid`` beyond requests, are of services.
    """

    high: int = 0
    mid: int = 0
    burst: int = 0
    job: int = 0
    suppressed: int = 0
    cut: int = 0
    cut_nodes: int = 0

    @property
    def used(self) -> int:
        """What all pods used."""
        return self.high + self.mid + self.job


class _Run:
    """A day under way."""

    def __init__(
        self, trace: Trace, job: Job | None, profile: Method, *, seed: int, policy: CoLocationPolicy
    ) -> None:
        assert trace.curves is not None, "a day follows curves"
        assert trace.curves.step_ms % _MINUTE_MS == 0, "a step of the curves is whole minutes"
        self._job, self._profile, self._seed, self._policy = job, profile, seed, policy
        moments = list(_moments(trace, job, COLOCATION_PROFILE, policy))
        self._trace = msgspec.structs.replace(trace, moments=moments)
        self._simulation = Simulation(self._trace, profile, seed=seed, grace_ms=GRACE_MS)
        nodes = [each.event.node for each in moments if isinstance(each.event, NodeUpserted)]
        self._names = {node.name: number for number, node in enumerate(nodes)}
        self._capacities = [capacity_of(node) for node in nodes]
        self._boxes = [NodeBoxes(capacity, policy) for capacity in self._capacities]
        self._demands = Demands(trace.curves, self._names)
        keys = [] if job is None else [each.pod.key for each in job.pods(COLOCATION_PROFILE)]
        self._left = dict.fromkeys(keys, 0 if job is None else job.pod_milli_seconds)
        self._day, self._ended, self._steps = _Tally(), Counter[str](), list[Step]()
        self._done: tuple[int, int] | None = None  # when, and what had been used since the job came

    def finish(self) -> Day:
        """Let the whole day pass."""
        curves, step = self._trace.curves, _Tally()
        assert curves is not None
        before_job, ended_before = 0, 0
        for due in agenda(self._trace, Every(ms=_MINUTE_MS)):
            if due.rank == HAPPEN:
                self._simulation.meet(due)
            if due.rank != LOOK:
                continue
            self._simulation.pass_to(due.at_ms)
            self._minute(due.at_ms, step)
            if due.at_ms == JOB_MS:
                before_job = self._day.used
            if self._done is None and self._job is not None and due.at_ms > JOB_MS and not self._left:
                self._done = due.at_ms, self._day.used - before_job
            if due.at_ms % curves.step_ms == 0:
                moved = self._simulation.counts.moved
                self._steps.append(self._step(step, due.at_ms, moved - ended_before))
                step, ended_before = _Tally(), moved
        return self._result()

    def _minute(self, now_ms: int, step: _Tally) -> None:
        """Let a minute pass on all nodes, and fold what their agents report at its end."""
        counts = self._simulation.counts
        stamp = counts.arrived, counts.placements, counts.moved, len(self._simulation.state.pods)
        begun_ms = now_ms - _MINUTE_MS
        self._demands.see(self._simulation, stamp, begun_ms)
        told = list[Moment]()
        wants = Amounts(POD_MILLI, POD_USED_BYTES)
        rule = self._policy.estimate
        estimate = Amounts(rule.cpu_milli, rule.memory_bytes)
        for (name, number), demand in zip(self._names.items(), self._demands.at(begun_ms), strict=True):
            pods = LowPods(tuple(self._demands.lows.get(number, ())), wants, estimate)
            minute = self._boxes[number].pass_minute(begun_ms, demand, pods)
            highs = self._demands.highs.get(number, ())
            each = minute.high * POD_MILLI // max(demand.high.cpu_milli, 1)
            finished, used = self._work({**minute.low, **dict.fromkeys(highs, each)})
            for tally in (self._day, step):
                tally.high += minute.high - each * len(highs)
                tally.mid += minute.mid
                tally.burst += minute.mid_burst
                tally.job += used
                tally.suppressed += minute.low_wanted - sum(minute.low.values())
                tally.cut += minute.cut
                tally.cut_nodes += minute.cut > 0
            told += [Moment(now_ms, PodDeleted(NAMESPACE, key.partition("/")[2])) for key in finished]
            ended = [(key, cause) for key, cause in minute.ended if key not in finished]
            self._ended.update(cause.value for _, cause in ended)
            told += [Moment(now_ms, Ended(key)) for key, _ in ended]
            told.append(Moment(now_ms, NodeUsed(NodeUsage(node=name, at_ms=now_ms, quality=minute.use))))
        self._simulation.happen(told)

    def _work(self, got: dict[str, int]) -> tuple[list[str], int]:
        """Take from what is left to do; return which pods are done, and what was used for it."""
        finished, used = list[str](), 0
        for key, amount in got.items():
            used += min(amount, self._left[key])
            self._left[key] -= amount
            if self._left[key] <= 0:
                del self._left[key]
                finished.append(key)
        return finished, used

    def _step(self, tally: _Tally, now_ms: int, ended: int) -> Step:
        curves = self._trace.curves
        assert curves is not None
        length = curves.step_ms  # thousandths of a core times seconds are cores times milliseconds
        running = sum(
            1 for key in self._left if (entry := self._simulation.state.pods.get(key)) and entry.node
        )
        came = now_ms >= JOB_MS
        return Step(
            seconds=now_ms / 1_000,
            services=(tally.high + tally.mid) / length,
            job=tally.job / length,
            lent=self._lent(now_ms) / 1_000,
            suppressed=tally.suppressed / length,
            running=running,
            waiting=len(self._left) - running if came else 0,
            ended=ended,
        )

    def _lent(self, now_ms: int) -> int:
        """Return what low pods may use on all nodes, in thousandths of a core."""
        view, rule = self._policy.view, self._policy.suppression
        return sum(
            boxes_of(view, rule, capacity, _use(demand), demand.requests).low_milli
            for capacity, demand in zip(self._capacities, self._demands.at(now_ms - _MINUTE_MS), strict=True)
        )

    def _result(self) -> Day:
        end_ms, job, day = self._simulation.now_ms, self._job, self._day
        cores = sum(capacity.cpu_milli for capacity in self._capacities) / 1_000
        waits_ms = [wait_ms for wait_ms in self._waits_ms(end_ms) if wait_ms]
        preempted = self._simulation.counts.moved - self._ended.total()
        total = 0 if job is None else job.pods_count * job.pod_milli_seconds
        done_ms, used_until_done = (None, None) if self._done is None else self._done
        return Day(
            trace=self._trace.name,
            profile=self._profile.name,
            seed=self._seed,
            job="none" if job is None else job.quality.value,
            nodes_count=len(self._names),
            cores=cores,
            services_count=sum(1 for _ in self._came()),
            job_core_hours=0.0 if job is None else job.core_hours,
            job_pods_count=0 if job is None else job.pods_count,
            done_core_hours=(total - sum(self._left.values())) / _MILLI_SECONDS_PER_CORE_HOUR,
            done_seconds=None if done_ms is None else (done_ms - JOB_MS) / 1_000,
            used=day.used / (cores * end_ms),
            used_until_done=None
            if done_ms is None or used_until_done is None
            else used_until_done / (cores * (done_ms - JOB_MS)),
            ended={**({"preempted": preempted} if preempted else {}), **dict(sorted(self._ended.items()))},
            suppressed_core_hours=day.suppressed / _MILLI_SECONDS_PER_CORE_HOUR,
            cut_core_seconds=day.cut / 1_000,
            cut_nodes_count=day.cut_nodes,
            waits_count=len(waits_ms),
            waits_seconds=sum(waits_ms) / 1_000,
            bill=self._bill(),
            steps=self._steps,
        )

    def _came(self) -> Iterator[tuple[int, PodSpec]]:
        """Yield the pods of services, and when each of them came."""
        for moment in self._trace.moments:
            if isinstance(moment.event, PodUpserted) and moment.event.pod.namespace != NAMESPACE:
                yield moment.at_ms, moment.event.pod

    def _waits_ms(self, end_ms: int) -> Iterator[int]:
        """Yield how long each high pod of a service waited. None of them is ever moved."""
        for came_ms, pod in self._came():
            entry = self._simulation.state.pods.get(pod.key)
            if entry is not None and QUALITY_OF[pod.template.qos_class] is Quality.HIGH:
                yield max(0, (entry.placed_ms if entry.node else end_ms) - max(came_ms, 1))

    def _bill(self) -> list[Line]:
        day, job = self._day, self._job
        amounts = [
            ("services", Quality.HIGH, Part.REQUEST, day.high),
            ("services", Quality.MID, Part.REQUEST, day.mid - day.burst),
            ("services", Quality.MID, Part.BURST, day.burst),
        ]
        if job is not None:
            part = Part.LOW if job.quality is Quality.LOW else Part.REQUEST
            amounts.append(("job", job.quality, part, day.job))
        prices, lines = self._policy.prices, list[Line]()
        for of, quality, part, amount in amounts:
            if amount:
                used, hours = Used(amount), amount / _MILLI_SECONDS_PER_CORE_HOUR
                price, as_high = (price_micro(prices, each, used) / 1e6 for each in (part, Part.REQUEST))
                lines.append(Line(of, quality.value, part.value, hours, price, as_high))
        return lines


def _use(demand: Demand) -> UseByQuality:
    return UseByQuality(high=demand.high, mid=demand.mid)
