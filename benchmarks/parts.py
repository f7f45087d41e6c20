"""Single parts of the engine, as a data table: kernels, one group, all pods different, a snapshot sync.

Times are processor time of the calling thread. On a core of its own that equals time on the wall. On a shared
core it is what the part costs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from benchmarks.cluster import SCORES, Cluster, KernelClock, ask_of
from benchmarks.flow import measure_flow
from benchmarks.plain import Picture, Spread, numpy_scores, python_scores, spread_of
from benchmarks.stage import BenchError
from benchmarks.workloads import WORKLOADS, resized
from domain.engine.verdicts import Placement
from domain.kernels.arrays import TOTAL_ONE
from domain.model.limits import batch_records_max
from domain.model.pods import COLOCATION_PROFILE
from domain.model.profiles import BUILT_IN_PROFILES, Profile

NODES = 20_000
NEW_GROUP_US_MAX = 100.0
_PROFILE_US_MAX = {"least-allocated": NEW_GROUP_US_MAX, "default-scheduler": 400.0}
IN_GROUP_PODS_PER_SECOND_MIN = 1_000_000.0
DISTINCT_PODS_PER_SECOND_MIN = 10_000.0
SYNC_US_MAX = 200.0
_NEW_GROUPS = 20
_PYTHON_NODES_MAX = 2_000
_PLAIN_PODS = 50
_NODES_CHANGED = 100


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A measured quantity over its repeats."""

    unit: str
    median: float
    min: float
    max: float
    repeats: int


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table, as ``-o json`` shows it; benchmarks/README.md explains the keys."""

    part: str
    nodes: int
    pods: int
    groups: int
    figure: Figure
    target: float | None
    times_faster_than: dict[str, float]
    besides: dict[str, float] = {}


UNMEASURED = [profile for name, profile in BUILT_IN_PROFILES.items() if name != COLOCATION_PROFILE]
"""The built-in profiles under which a pod finds a node that nothing was measured on."""


def measure_parts(nodes: int = NODES, repeats: int = 30) -> list[Part]:
    """Measure every row. Make ``nodes`` and ``repeats`` smaller only to try it out."""
    return [
        *(_new_groups(scoring, nodes, repeats) for scoring in SCORES),
        *(_new_groups_of_profile(profile, nodes, repeats) for profile in UNMEASURED),
        _one_group(nodes, max(3, repeats // 10)),
        *(_all_different(size, nodes) for size in (nodes, nodes // 4)),
        _sync(nodes, repeats),
    ]


# -------------------------------------------------------------------------------------- a new group


def _new_groups(scoring: str, nodes: int, repeats: int) -> Part:
    """Place one pod each of some new groups in one call of the kernel, and the same pods in plain code."""
    cluster, least = Cluster(nodes, scoring), Cluster(nodes)
    times: dict[str, list[float]] = {"kernel": [], "least": [], "cycle": [], "numpy": [], "python": []}
    for _ in range(repeats + 1):
        picture = cluster.picture()
        placed = _place_new_groups(cluster)
        times["cycle"].append(placed.cycle_seconds)
        times["kernel"].append(placed.kernel_seconds)
        # In turns, so that other load on the machine slows down both alike.
        times["least"].append(_place_new_groups(least).kernel_seconds)
        times["numpy"].append(replayed(scoring, picture, placed.rows, placed.asked))
        times["python"].append(_in_python(scoring, picture, ask_of(placed.asked[0])) * _NEW_GROUPS)
    micros = {key: [second * 1e6 / _NEW_GROUPS for second in values[1:]] for key, values in times.items()}
    middle = {key: statistics.median(values) for key, values in micros.items()}
    is_least = scoring == "LeastAllocated"
    besides = {"cycle_us": rounded(middle["cycle"])}
    if not is_least:
        besides["times_least_allocated"] = rounded(middle["kernel"] / middle["least"])
    return Part(
        part=f"new group, {scoring}",
        nodes=nodes,
        pods=_NEW_GROUPS,
        groups=_NEW_GROUPS,
        figure=figure_of("µs", micros["kernel"]),
        target=NEW_GROUP_US_MAX if is_least else rounded(3 * middle["least"]),
        times_faster_than={key: rounded(middle[key] / middle["kernel"]) for key in ("numpy", "python")},
        besides=besides,
    )


def _new_groups_of_profile(profile: Profile, nodes: int, repeats: int) -> Part:
    """Do the same with all filters and scores of a built-in profile; there is no plain code beside it."""
    cluster = Cluster(nodes, profile=profile)
    placed = [_place_new_groups(cluster) for _ in range(repeats + 1)][1:]
    cycle_us = statistics.median(each.cycle_seconds for each in placed) * 1e6 / _NEW_GROUPS
    return Part(
        part=f"new group, profile {profile.name}",
        nodes=nodes,
        pods=_NEW_GROUPS,
        groups=_NEW_GROUPS,
        figure=figure_of("µs", [each.kernel_seconds * 1e6 / _NEW_GROUPS for each in placed]),
        target=_PROFILE_US_MAX.get(profile.name),
        times_faster_than={},
        besides={"cycle_us": rounded(cycle_us)},
    )


class _Placed(NamedTuple):
    """The rows chosen, what the pods asked for, and the time that it took."""

    rows: list[int]
    asked: list[dict[str, int]]
    kernel_seconds: float
    cycle_seconds: float


def _place_new_groups(cluster: Cluster) -> _Placed:
    asked = [cluster.asks() for _ in range(_NEW_GROUPS)]
    for requests in asked:
        cluster.fold_pod(requests)
    began = time.thread_time()
    with KernelClock() as clock:
        verdicts = cluster.scheduler.cycle().verdicts
    cycle_seconds = time.thread_time() - began
    rows = [cluster.table.rows[v.node] for v in verdicts if isinstance(v, Placement)]
    if len(rows) != _NEW_GROUPS:
        raise BenchError(f"{len(rows)} of {_NEW_GROUPS} pods found a node")
    return _Placed(rows, asked, clock.seconds, cycle_seconds)


def replayed(
    scoring: str, picture: Picture, rows: Sequence[int], asked: Sequence[Mapping[str, int]]
) -> float:
    """Place the same pods with NumPy; return the seconds. Each chosen node must be among NumPy's best."""
    seconds = 0.0
    for row, requests in zip(rows, asked, strict=True):
        ask = ask_of(requests)
        began = time.thread_time()
        scores = numpy_scores(scoring, picture, ask)
        best = scores[np.argmax(scores)]
        seconds += time.thread_time() - began
        if abs(scores[row] - best) > 2 / TOTAL_ONE:
            raise BenchError(f"{scoring}: the kernel chose a node of score {scores[row]}, NumPy finds {best}")
        picture.requested[:, row] += ask
    return seconds


def _in_python(scoring: str, picture: Picture, ask: np.ndarray) -> float:
    """Score a sample of the nodes in plain Python, and return the seconds that all nodes would take."""
    count = len(picture.allocatable[0])
    sample = min(count, _PYTHON_NODES_MAX)
    offered, held = (part[:, :sample].T.tolist() for part in picture)
    spread, asked = spread_of(picture), ask.tolist()
    began = time.thread_time()
    plain = python_scores(scoring, offered, held, asked, spread)
    seconds = time.thread_time() - began
    if not np.allclose(plain, numpy_scores(scoring, picture, ask)[:sample], rtol=1e-9, atol=1e-9):
        raise BenchError(f"{scoring}: NumPy and Python do not agree")
    return seconds * (count / sample)


# ------------------------------------------------------------------------------------ inside a group


def _one_group(nodes: int, repeats: int) -> Part:
    """Place many pods of one group in one call of the kernel, and some in plain code, a row a pod."""
    cluster = Cluster(nodes)
    pods = 5 * nodes
    times: dict[str, list[float]] = {"kernel": [], "cycle": [], "numpy": [], "python": []}
    for _ in range(repeats):
        asked = cluster.asks()
        picture, ask = cluster.picture(), ask_of(asked)
        times["numpy"].append(_group_in_numpy(picture, ask) / _PLAIN_PODS)
        times["python"].append(_group_in_python(picture, ask) / _PLAIN_PODS)
        for _ in range(pods):
            cluster.fold_pod(asked)
        began = time.thread_time()
        with KernelClock() as clock:
            result = cluster.scheduler.cycle()
        times["cycle"].append((time.thread_time() - began) / pods)
        times["kernel"].append(clock.seconds / pods)
        placed = sum(isinstance(verdict, Placement) for verdict in result.verdicts)
        if placed != pods:
            raise BenchError(f"{placed} of {pods} pods of one group found a node")
    middle = {key: statistics.median(values) for key, values in times.items()}
    return Part(
        part="inside a group",
        nodes=nodes,
        pods=pods,
        groups=1,
        figure=figure_of("pods/s", [1 / seconds for seconds in times["kernel"]]),
        target=IN_GROUP_PODS_PER_SECOND_MIN,
        times_faster_than={key: rounded(middle[key] / middle["kernel"]) for key in ("numpy", "python")},
        besides={"cycle_us_per_pod": rounded(middle["cycle"] * 1e6)},
    )


def _group_in_numpy(picture: Picture, ask: np.ndarray) -> float:
    """Place pods of a group in NumPy, with one row scored again per pod; return the seconds."""
    nodes = Picture(picture.allocatable, picture.requested.copy())
    began = time.thread_time()
    scores = numpy_scores("LeastAllocated", nodes, ask)
    for _ in range(_PLAIN_PODS):
        row = int(np.argmax(scores))
        nodes.requested[:, row] += ask
        one = Picture(nodes.allocatable[:, row : row + 1], nodes.requested[:, row : row + 1])
        scores[row] = numpy_scores("LeastAllocated", one, ask)[0]
    return time.thread_time() - began


def _group_in_python(picture: Picture, ask: np.ndarray) -> float:
    """Do the same in plain Python. The first scores of all nodes are not counted."""
    offered, held = (part.T.tolist() for part in picture)
    asked, spread = ask.tolist(), Spread(len(offered), 0)
    scores = python_scores("LeastAllocated", offered, held, asked, spread)
    began = time.thread_time()
    for _ in range(_PLAIN_PODS):
        row = max(range(len(scores)), key=scores.__getitem__)
        held[row] = [a + b for a, b in zip(held[row], asked, strict=True)]
        (scores[row],) = python_scores("LeastAllocated", [offered[row]], [held[row]], asked, spread)
    return time.thread_time() - began


# -------------------------------------------------------------------------- all different, and a sync


def _all_different(nodes: int, pods: int) -> Part:
    """Send pods of which no two are equal through decode, fold and cycle, on one core."""
    workload = resized(WORKLOADS["distinct"], nodes=nodes, pods=pods)
    flow, per_cpu_second = measure_flow(workload, min(batch_records_max, pods))
    return Part(
        part="all pods different",
        nodes=nodes,
        pods=pods,
        groups=pods,
        figure=figure_of("pods/s", per_cpu_second),
        target=DISTINCT_PODS_PER_SECOND_MIN,
        times_faster_than={},
        besides={
            "decode_us": flow.decode_us_per_pod,
            "fold_us": flow.fold_us_per_pod,
            "cycle_us": flow.cycle_us_per_pod,
        },
    )


def _sync(nodes: int, repeats: int) -> Part:
    """Sync the snapshot after 100 nodes changed. NumPy copies all columns instead."""
    cluster = Cluster(nodes)
    changed = min(nodes, _NODES_CHANGED)
    incremental, whole = [], []
    for _ in range(repeats + 1):
        for row in cluster.random.sample(range(nodes), changed):
            cluster.fold_pod(cluster.asks(), cluster.table.names[row])
        began = time.thread_time()
        cluster.scheduler.sync()
        incremental.append((time.thread_time() - began) * 1e6)
        began = time.thread_time()
        (cluster.table.allocatable.copy(), cluster.table.requested.copy())
        whole.append((time.thread_time() - began) * 1e6)
    return Part(
        part=f"snapshot after {changed} nodes changed",
        nodes=nodes,
        pods=changed,
        groups=changed,
        figure=figure_of("µs", incremental[1:]),
        target=SYNC_US_MAX,
        times_faster_than={
            "numpy": rounded(statistics.median(whole[1:]) / statistics.median(incremental[1:]))
        },
    )


def figure_of(unit: str, values: Sequence[float]) -> Figure:
    """Return what several repeats took."""
    return Figure(
        unit=unit,
        median=rounded(statistics.median(values)),
        min=rounded(min(values)),
        max=rounded(max(values)),
        repeats=len(values),
    )


def rounded(value: float) -> float:
    """Round to three digits, but keep all digits before the point."""
    return round(value, 0 if value >= 100 else 1 if value >= 10 else 2)
