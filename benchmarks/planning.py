"""Preemption in the engine alone, as parts of `berth bench engine --parts`: victims and nominations."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from benchmarks.parts import NODES, Part, figure_of, rounded
from benchmarks.stage import BenchError
from domain.cycle.schedule import Scheduler
from domain.engine.evaluate import compiled_alone
from domain.engine.preemption import Preemptor
from domain.kernels import preempting
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec, PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.signature import signature
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView

PODS_EACH = 30
RULE_OUT_MS_MAX = 1.0
_PREEMPTORS = 1_000
_LOW_MILLI, _HIGH_MILLI = 100, 1_000
_KERNELS = ("rule_out", "plan_victims", "nominate")


def measure_planning(nodes: int = NODES, repeats: int = 5) -> list[Part]:
    """Measure on full nodes of 30 pods; a preemptor needs ten of them gone."""
    state, pod = _full(nodes).state, _pod("high", _HIGH_MILLI, 10)
    count = min(_PREEMPTORS, nodes)
    times: dict[str, list[float]] = {name: [] for name in (*_KERNELS, "one", "many", "first")}
    plan = ProfilePlan(BUILT_IN_PROFILES[pod.template.profile])
    with compiled_alone(state, plan, pod, NodeView(state)) as alone:
        for repeat in range(repeats + 1):
            preemptor = Preemptor(state, alone.snapshot, alone.slots)
            began = time.thread_time()
            preemptor.plan(alone.program)
            first = time.thread_time()
            preemptor.plan(alone.program)
            one = time.thread_time()
            with _Clocks() as clocks:
                planned = preemptor.plan(alone.program, count).planned
            many = time.thread_time()
            if len(planned) != count:
                raise BenchError(f"{len(planned)} of {count} preemptors have a node")
            if repeat:  # the first one compiles
                times["first"].append(first - began)
                times["one"].append(one - first)
                times["many"].append(many - one)
                for name in _KERNELS:
                    times[name].append(clocks.seconds[name])
    further = [
        max(0.0, many - one) / max(1, count - 1)
        for many, one in zip(times["many"], times["one"], strict=True)
    ]
    kernel_us = [seconds * 1e6 / count for seconds in times["nominate"]]

    def part(name: str, pods: int, unit: str, values: list[float], target: float | None = None) -> Part:
        return Part(
            part=name,
            nodes=nodes,
            pods=pods,
            groups=1,
            figure=figure_of(unit, values),
            target=target,
            times_faster_than={},
        )

    def ms(name: str) -> list[float]:
        return [seconds * 1e3 for seconds in times[name]]

    placed = nodes * PODS_EACH
    return [
        part("first preemption, which reads all pods", placed, "ms", ms("first")),
        part("hopeless nodes ruled out", placed, "ms", ms("rule_out"), RULE_OUT_MS_MAX),
        part("victims of all nodes", placed, "ms", ms("plan_victims")),
        part("a further preemptor, kernel", count, "µs", kernel_us),
        part("a further preemptor, planned", count, "µs", [rounded(each * 1e6) for each in further]),
    ]


def _full(nodes: int) -> Scheduler:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=0)
    offered = {"cpu": PODS_EACH * _LOW_MILLI, "memory": 1 << 40, "pods": 110}
    for i in range(nodes):
        name = f"node-{i:05}"
        scheduler.fold(NodeUpserted(NodeSpec(name=name, uid=name, resource_version=1, allocatable=offered)))
        for k in range(PODS_EACH):
            scheduler.fold(PodUpserted(_pod(f"low-{i}-{k}", _LOW_MILLI, 0, name)))
    return scheduler


def _pod(name: str, cpu_milli: int, priority: int, node: str = "") -> PodSpec:
    template = PodTemplate(
        requests={"cpu": cpu_milli}, scoring_cpu_milli=cpu_milli, scoring_memory_bytes=0, priority=priority
    )
    return PodSpec(
        uid=name,
        key=f"bench/{name}",
        resource_version=1,
        template=template,
        signature=signature(template),
        node_name=node,
    )


class _Clocks:
    """Measures the processor seconds of the planner's kernels, by wrapping them."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(_KERNELS, 0.0)
        self._own = {name: getattr(preempting, name) for name in _KERNELS}

    def __enter__(self) -> Self:
        for name, kernel in self._own.items():
            setattr(preempting, name, self._timed(name, kernel))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, kernel in self._own.items():
            setattr(preempting, name, kernel)

    def _timed(self, name: str, kernel: Any) -> Any:
        def run(*arguments: Any) -> Any:
            began = time.thread_time()
            answer = kernel(*arguments)
            self.seconds[name] += time.thread_time() - began
            return answer

        return run
