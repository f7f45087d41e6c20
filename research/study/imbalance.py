"""The study of imbalance: places the pods of a generated setting by several methods, on the real engine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.pods import PodSpec
from domain.search.packing import Improving
from research.search.balance import Balance, balance, imbalance, utilisation
from research.search.setting import PODS_COUNT, RESOURCES, Setting, generate
from research.simulate.generated import nodes_of, pods_of
from research.simulate.searching import place_by_search
from research.study.methods import METHODS, Method

STEP_PODS = 100
"""How many pods arrive between two looks at the balance."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What one method did with one setting.

    Attributes
    ----------
    pods, imbalance : list
        After how many pods, and what Z_avg was then.
    balance : Balance
        How evenly the nodes are used in the end.
    utilisation : dict
        Node -> the utilisation of each resource in the end.
    unplaced_count : int
        Pods that found no node.
    pod_us : float
        Microseconds of processor time per pod, all in.
    """

    method: str
    seed: int
    pods: list[int]
    imbalance: list[float]
    balance: Balance
    utilisation: dict[str, list[float]]
    unplaced_count: int
    pod_us: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one method: medians, and the lowest and highest of ``imbalance``."""

    method: str
    title: str
    imbalance: float
    imbalance_lowest: float
    imbalance_highest: float
    deviation: list[float]
    ranges: list[float]
    overloaded: list[float]
    unplaced_count: float
    pod_us: float


def study(
    names: Sequence[str],
    seeds: Sequence[int],
    *,
    pods_count: int = PODS_COUNT,
    report: Callable[[Run], None] = lambda run: None,
) -> list[Run]:
    """Place the pods of one setting per seed by each method."""
    found = []
    for name in names:
        place_all(METHODS[name], generate(0, pods_count=20), 0)  # so that what is compiled is there
    for seed in seeds:
        setting = generate(seed, pods_count=pods_count)
        for name in names:
            found.append(_run(name, setting, seed))
            report(found[-1])
    return found


def summaries(runs: Sequence[Run]) -> Iterator[Summary]:
    """Yield the median over the seeds for each method."""
    for name in dict.fromkeys(run.method for run in runs):
        own = [run for run in runs if run.method == name]
        last = [run.balance.imbalance for run in own]
        yield Summary(
            method=name,
            title=METHODS[name].title,
            imbalance=statistics.median(last),
            imbalance_lowest=min(last),
            imbalance_highest=max(last),
            deviation=_medians([run.balance.deviation for run in own]),
            ranges=_medians([run.balance.ranges for run in own]),
            overloaded=_medians([run.balance.overloaded for run in own]),
            unplaced_count=statistics.median(run.unplaced_count for run in own),
            pod_us=statistics.median(run.pod_us for run in own),
        )


def _medians(lists: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.median(each) for each in zip(*lists, strict=True)]


def _run(name: str, setting: Setting, seed: int) -> Run:
    placed_count, steps, seconds = place_all(METHODS[name], setting, seed)
    total = len(setting.types)
    return Run(
        method=name,
        seed=seed,
        pods=[min((i + 1) * STEP_PODS, total) for i in range(len(steps))],
        imbalance=[float(imbalance(shares).mean()) for shares in steps],
        balance=balance(steps[-1]),
        utilisation=dict(zip((spec.name for spec in nodes_of(setting)), steps[-1].tolist(), strict=True)),
        unplaced_count=total - placed_count,
        pod_us=seconds / total * 1e6,
    )


def place_all(method: Method, setting: Setting, seed: int) -> tuple[int, list[np.ndarray], float]:
    """Place all pods of a setting, ``STEP_PODS`` at a time.

    Returns how many found a node, the utilisation float64[N, R] after each step, and the seconds of processor
    time.
    """
    profile = method.profile()
    scheduler = Scheduler({profile.name: profile}, seed=seed)
    for spec in nodes_of(setting):
        scheduler.fold(NodeUpserted(spec))
    pods, steps, placed, seconds = pods_of(setting), list[np.ndarray](), dict[str, str](), 0.0
    for first in range(0, len(pods), STEP_PODS):
        chunk = pods[first : first + STEP_PODS]
        started = time.process_time()
        if method.search is None:
            placed.update(_place_greedily(scheduler, chunk))
        else:
            placed.update(place_by_search(scheduler, method.search, chunk, seed=seed + first))
        held = _held(scheduler)
        if method.improving_steps:
            held = _improved(
                method, setting, [placed.get(pod.key) for pod in pods[: first + len(chunk)]], seed
            )
        seconds += time.process_time() - started
        steps.append(utilisation(setting.allocatable, held))
    return len(placed), steps, seconds


def _held(scheduler: Scheduler) -> np.ndarray:
    """Return what is requested of each node, int64[R, N]."""
    table = scheduler.state.table
    columns = [scheduler.state.resources.column(name) for name in RESOURCES]
    held: np.ndarray = table.requested[columns, : table.count]
    return held


def _improved(method: Method, setting: Setting, placed: Sequence[str | None], seed: int) -> np.ndarray:
    """Return what is requested of each node once the placement so far is made better, on paper."""
    index = {spec.name: i for i, spec in enumerate(nodes_of(setting))}
    count = len(placed)
    improving = Improving(
        setting.allocatable.T,
        setting.asked[:count],
        np.arange(count, dtype=np.int32),
        np.array([len(index) if name is None else index[name] for name in placed], dtype=np.int32),
        np.ones((count, len(index)), dtype=np.bool_),
        objective="balance",
        seed=seed,
    )
    improving.improve(method.improving_steps * count)
    return improving.used.T


def _place_greedily(scheduler: Scheduler, pods: Sequence[PodSpec]) -> dict[str, str]:
    """Place pods one by one; return the nodes by the keys of those that got one."""
    placed = {}
    for pod in pods:
        scheduler.fold(PodUpserted(pod))
    while verdicts := scheduler.cycle().verdicts:
        placed.update({each.pod.key: each.node for each in verdicts if isinstance(each, Placement)})
    return placed
