"""How full scores by devices make the GPUs of openb: ``python -m benchmarks.openb_devices``.

The published protocol (Weng et al., USENIX ATC 2023): the 1,213 nodes with GPUs, pods that ask for 130 % of
them (all pods of a list and uniform draws, shuffled), placed one after another; nothing ends. Every seed
draws other pods, another order of pods, and another order of nodes, which breaks ties.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from domain.kernels.device_arrays import (
    BEST_FIT,
    CLUSTERING,
    DOT_PRODUCT,
    LEAST_FRAGMENTATION,
    LEAST_STRANDING,
    PACKING,
)
from domain.search.mix import Shape, typical
from research.devices.placing import Profile, Weighted, fragmentation, nodes_of, place_on_devices
from research.traces.openb_devices import DeviceCluster, arrivals, device_cluster

SEEDS = range(42, 52)
RATIO = 1.3
LISTS = ("default", "gpuspec33")
SIZES = (1, 2, 4, 8)


def _only(score: int) -> Callable[[Sequence[Shape]], Profile]:
    return lambda pods: Profile(scores=[Weighted(score, 1.0)], mix=typical(pods))


def _without_memory(pods: Sequence[Shape]) -> Profile:
    mix = typical(each._replace(memory=0) for each in pods)
    return Profile(scores=[Weighted(LEAST_FRAGMENTATION, 1.0)], mix=mix)


def _unrounded(pods: Sequence[Shape]) -> Profile:
    return Profile(scores=[Weighted(LEAST_FRAGMENTATION, 1.0, whole=False)], mix=typical(pods))


def gpu_packed(pods: Sequence[Shape]) -> Profile:
    """Return the profile that beats FGD: fragmentation and stranding, then best fit."""
    scores = [
        Weighted(LEAST_FRAGMENTATION, 100.0, whole=False),
        Weighted(LEAST_STRANDING, 100.0, whole=False),
        Weighted(BEST_FIT, 1.0, whole=False),
    ]
    return Profile(scores=scores, mix=typical(pods))


PROFILES: dict[str, Callable[[Sequence[Shape]], Profile]] = {
    "FirstFit": lambda _: Profile(),
    "DotProduct": _only(DOT_PRODUCT),
    "GpuClustering": _only(CLUSTERING),
    "GpuPacking": _only(PACKING),
    "BestFit": _only(BEST_FIT),
    "FGD": _only(LEAST_FRAGMENTATION),
    "FGD, mix without memory": _without_memory,
    "FGD, not rounded": _unrounded,
    "gpu-packed": gpu_packed,
}


class Run(NamedTuple):
    """One seed: GPUs in use and fragmented, in percent; pods without node by GPUs; time of a pod."""

    used: float
    fragmented: float
    unplaced: dict[int, int]
    micros: float


def run(cluster: DeviceCluster, profile: Profile, seed: int) -> Run:
    """Place the pods of one seed."""
    nodes, order = arrivals(cluster, seed, RATIO)
    empty = nodes_of([cluster.nodes[each] for each in nodes])
    pods = [cluster.pods[each] for each in order]
    begun = time.process_time()
    placed = place_on_devices(empty, pods, profile)
    micros = (time.process_time() - begun) * 1e6 / len(pods)
    whole = int(empty.free.sum())
    unplaced = Counter(pod.number for pod, node in zip(pods, placed.node, strict=True) if node < 0)
    lost = float(fragmentation(placed.nodes, typical(cluster.pods)).sum())
    return Run(
        100.0 - 100.0 * int(placed.nodes.free.sum()) / whole, 100.0 * lost / whole, dict(unplaced), micros
    )


def line(name: str, runs: Sequence[Run]) -> str:
    """Return a line of the table."""
    used = [each.used for each in runs]
    cells = [
        name,
        f"{statistics.median(used):.2f}",
        f"{min(used):.2f} to {max(used):.2f}",
        f"{statistics.median(each.fragmented for each in runs):.2f}",
        *(f"{statistics.mean(each.unplaced.get(size, 0) for each in runs):.1f}" for size in SIZES),
        f"{statistics.median(each.micros for each in runs):.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str]) -> None:
    """Print a table per pod list."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.openb_devices", description=__doc__)
    parser.add_argument("--pods", action="append", help="a pod list; again for more [default: both]")
    parser.add_argument("--profile", action="append", choices=PROFILES, help="again for more [default: all]")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many, from 42 [default: 10]")
    given = parser.parse_args(arguments)
    for pods in given.pods or LISTS:
        cluster = device_cluster(pods, gpu_nodes_only=True)
        titles = ["profile", "GPU %", "range", "fragmented %", *(f"unplaced {n}" for n in SIZES), "us a pod"]
        print(f"\n{pods}: {len(cluster.nodes):,} nodes, {given.seeds} seeds\n\n| {' | '.join(titles)} |")
        print("|---|" + "---:|" * (len(titles) - 1))
        run(cluster, gpu_packed(cluster.pods), SEEDS[0])  # the kernel is compiled or read before the clock
        for name in given.profile or PROFILES:
            profile = PROFILES[name](cluster.pods)
            runs = [run(cluster, profile, seed) for seed in range(SEEDS[0], SEEDS[0] + given.seeds)]
            print(line(name, runs), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
