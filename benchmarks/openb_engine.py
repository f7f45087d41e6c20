"""The protocol of ``openb_devices`` through the engine: ``python -m benchmarks.openb_engine``.

The scheduler of a worker folds the nodes and all pods of a seed and places them, with its filters, queue and
explanations. What it places is compared with what the loop over the kernel alone places. FirstFit, a thousand
times lighter than a whole score, lets the first of equal nodes win there, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.openb_devices import LISTS, PROFILES, RATIO, SEEDS
from domain.cycle.schedule import Scheduler
from domain.manifests.objects import node_from_manifest, pod_event_from_manifest
from domain.model.events import NodeUpserted
from domain.model.pods import DEFAULT_PROFILE
from domain.model.profiles import PluginUse, Profile
from domain.plugins.device_terms import SHAPES_MAX
from domain.search.mix import ANY_MODEL, Shape, typical
from research.devices.placing import nodes_of, place_on_devices
from research.traces.openb_devices import GPU_NODE_FILE, arrivals, device_cluster
from services.traces import openb

_FILTERS = (PluginUse(name="NodeAffinity"), PluginUse(name="NodeResourcesFit"))
_FIRST = PluginUse(name="FirstFit")
NAMES = ("BestFit", "DotProduct", "GpuPacking", "FGD", "gpu-packed")


class EngineRun(NamedTuple):
    """GPUs in use by the engine and by the kernel alone, in percent; pods on equal nodes; time of a pod."""

    used: float
    used_alone: float
    equal: int
    pods: int
    micros: float


def mix_argument(mix: Mapping[Shape, int], models: Sequence[str]) -> list[dict[str, Any]]:
    """Return a mix as the argument of FGD."""
    found = []
    for shape, weight in mix.items():
        each: dict[str, Any] = {"cpu": f"{shape.cpu}m", "memory": f"{shape.memory}Mi", "weight": weight}
        if shape.number:
            each |= {"gpus": shape.number} if shape.milli == 1000 else {"gpuMilli": shape.milli}
        if shape.models != ANY_MODEL:
            each["models"] = [name for bit, name in enumerate(models) if shape.models >> bit & 1]
        found.append(each)
    return found


def profile_of(name: str, mix: list[dict[str, Any]]) -> Profile:
    """Return the profile that stands for one of ``openb_devices``."""
    scores: tuple[PluginUse, ...]
    match name:
        case "gpu-packed":
            scores = (
                PluginUse(name="FGD", weight=100.0, args={"mix": mix, "arithmetic": "real"}),
                PluginUse(name="GpuStranding", weight=100.0),
                PluginUse(name="GpuBestFit", args={"arithmetic": "real"}),
            )
        case "FGD":
            scores = (PluginUse(name="FGD", weight=1000.0, args={"mix": mix}), _FIRST)
        case _:
            plugin = {"BestFit": "GpuBestFit", "DotProduct": "GpuDotProduct"}.get(name, name)
            scores = (PluginUse(name=plugin, weight=1000.0), _FIRST)
    return Profile(name=DEFAULT_PROFILE, revision=1, filters=_FILTERS, scores=scores)


def run(pods: str, name: str, seed: int) -> EngineRun:
    """Place the pods of one seed by the engine, and by the kernel alone."""
    cluster = device_cluster(pods, gpu_nodes_only=True)
    nodes, order = arrivals(cluster, seed, RATIO)
    folder = openb.bundled()
    node_rows = openb.rows_of(folder, GPU_NODE_FILE)
    pod_rows = openb.rows_of(folder, f"openb_pod_list_{pods}.csv.gz")
    models = {each.model: row["model"] for each, row in zip(cluster.nodes, node_rows, strict=True)}
    names = [models.get(bit, f"none-{bit}") for bit in range(max(models) + 1)]
    mix = dict(list(typical(cluster.pods).items())[:SHAPES_MAX])
    profile = profile_of(name, mix_argument(mix, names))
    scheduler = Scheduler({profile.name: profile}, seed=1)
    for at, number in enumerate(nodes, start=1):
        scheduler.fold(NodeUpserted(node_from_manifest(openb.node_of(node_rows[number], at))))
    keys = []
    for at, number in enumerate(order, start=1):
        manifest = openb.pod_of(pod_rows[number], pods, at)
        manifest["metadata"] |= {"name": f"p{at}", "uid": f"u{at}"}
        upserted = pod_event_from_manifest(manifest)
        keys.append(upserted.pod.key)
        scheduler.fold(upserted)
    begun = time.process_time()
    while scheduler.has_work:
        scheduler.cycle()
    micros = (time.process_time() - begun) * 1e6 / len(keys)
    at_of = {node_rows[number]["sn"]: at for at, number in enumerate(nodes)}
    found = [at_of.get(scheduler.state.pods[key].node, -1) for key in keys]
    empty = nodes_of([cluster.nodes[each] for each in nodes])
    same = dataclasses.replace(PROFILES[name](cluster.pods), mix=mix)
    alone = place_on_devices(empty, [cluster.pods[each] for each in order], same)
    whole = int(empty.free.sum())
    asked = [cluster.pods[each].number * cluster.pods[each].milli for each in order]
    return EngineRun(
        100.0 * sum(milli for milli, node in zip(asked, found, strict=True) if node >= 0) / whole,
        100.0 - 100.0 * int(alone.nodes.free.sum()) / whole,
        sum(a == b for a, b in zip(found, alone.node.tolist(), strict=True)),
        len(keys),
        micros,
    )


def main(arguments: Sequence[str]) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.openb_engine", description=__doc__)
    parser.add_argument("--pods", action="append", help="a pod list; again for more [default: both]")
    parser.add_argument("--profile", action="append", choices=NAMES, help="again for more [default: all]")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many, from 42 [default: 10]")
    given = parser.parse_args(arguments)
    print("| pods | profile | GPU % | range | of the kernel alone | pods on equal nodes | us a pod |")
    print("|---|---|" + "---:|" * 5)
    for pods in given.pods or LISTS:
        run(pods, "FGD", SEEDS[0])  # the kernels are compiled or read before the clock
        for name in given.profile or NAMES:
            runs = [run(pods, name, seed) for seed in range(SEEDS[0], SEEDS[0] + given.seeds)]
            used = [each.used for each in runs]
            cells = [
                pods,
                name,
                f"{statistics.median(used):.2f}",
                f"{min(used):.2f} to {max(used):.2f}",
                f"{statistics.median(each.used_alone for each in runs):.2f}",
                f"{sum(each.equal for each in runs)} of {sum(each.pods for each in runs)}",
                f"{statistics.median(each.micros for each in runs):.0f}",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
