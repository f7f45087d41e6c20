"""What a search for cures takes, and what it finds: ``python -m benchmarks.cures [openb | ledger | small]``.

``openb``: the cluster of the trace, with more pods than it holds; one search for each group that waits.
``ledger``: the API on a ledger of 5,000 nodes (``--nodes``), 25,000 pods: the first question, and the next.
``small``: how often the smallest known cure is found (``tests/oracle/curing.py``).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from domain.cures.changes import MoreNodes
from domain.cures.search import find_cures
from domain.cures.trials import Bounds
from domain.cycle.schedule import Scheduler
from domain.kernels.catalogue import prepare_all
from domain.manifests.objects import node_from_manifest, pod_event_from_manifest
from domain.model.events import NodeUpserted
from domain.model.profiles import BUILT_IN_PROFILES
from services import bootstrap
from services.cli.demo import log_ends, settled
from services.config import Settings
from services.metrics import process_registry
from services.traces import openb
from tests.builders import event, node_manifest, pod_manifest
from tests.oracle import curing

PODS_PER_NODE, GROUPS, SEND = 5, 20, 2_000


def overfull(copies: int, nodes_max: int | None = None) -> Scheduler:
    """Return a scheduler that has placed so many copies of the trace's pods, as far as there is room."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    nodes_count = 0
    for each in openb.events():
        manifest = each["object"]
        if manifest["kind"] == "Node":
            nodes_count += 1
            if nodes_max is None or nodes_count <= nodes_max:
                scheduler.fold(NodeUpserted(node_from_manifest(manifest, path="object", strict=False)))
            continue
        for copy in range(copies):
            named = {key: f"{manifest['metadata'][key]}-{copy}" for key in ("name", "uid")}
            metadata = {**manifest["metadata"], **named}
            told = pod_event_from_manifest({**manifest, "metadata": metadata}, path="object", strict=False)
            scheduler.fold(told)
    while scheduler.has_work:
        scheduler.cycle()
    return scheduler


def _show_openb() -> None:
    prepare_all()
    scheduler = overfull(3)
    waiting = sorted(scheduler.queue.groups.values(), key=lambda group: -group.pods_count)
    pods = sum(group.pods_count for group in waiting)
    print(f"{scheduler.state.table.count:,} nodes; {len(waiting)} groups with {pods:,} pods wait")
    took, runs = list[float](), list[int]()
    kinds, best, cured = Counter[str](), Counter[str](), 0
    for group in waiting:
        pod = scheduler.state.pods[next(group.pods)].spec
        began = time.perf_counter()
        found = find_cures(scheduler, pod, group.pods_count, Bounds())
        took.append(time.perf_counter() - began)
        runs.append(found.dry_runs_count)
        names = [" + ".join(type(each).__name__ for each in cure.changes) for cure in found.cures]
        kinds.update(set(names))
        best.update(names[:1])
        cured += any(not isinstance(cure.changes[0], MoreNodes) for cure in found.cures)
        assert found.reached, "the budget of a search is enough for each group of the trace"
    print(f"{cured} of {len(waiting)} have a cure beside one more node")
    print(f"a search takes {statistics.median(took) * 1e3:.0f} ms, at most {max(took) * 1e3:.0f} ms")
    print(f"{statistics.median(runs):.0f} dry runs, at most {max(runs)}")
    print("groups with such a cure:", ", ".join(f"{name} {count}" for name, count in kinds.most_common()))
    print("the first one of a group:", ", ".join(f"{name} {count}" for name, count in best.most_common()))


def _things(nodes: int) -> list[dict[str, Any]]:
    zone = "topology.kubernetes.io/zone"
    things = [
        node_manifest(f"n{i}", cpu="16", memory="64Gi", labels={zone: "abc"[i % 3]}) for i in range(nodes)
    ]
    things += [
        pod_manifest(f"p{i}-{k}", cpu=3, memory="8Gi", node_name=f"n{i}", priority=k)
        for i in range(nodes)
        for k in range(PODS_PER_NODE)
    ]
    things += [pod_manifest(f"w{i}", cpu=2 + i, memory="8Gi", priority=3) for i in range(GROUPS)]
    return things


async def _show_ledger(nodes: int, folder: Path) -> None:
    settings = Settings(dir=folder / "berth", preemption="off", why_fresh_seconds=30)
    async with bootstrap.place(settings, make=True) as place:
        await bootstrap.initialise(place, 1)
        async with bootstrap.open_app(place, keys_required=False, settings=settings) as app:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://b", timeout=600) as client:
                await _fill(place, client, _things(nodes), settings)
                await _measure(client)


async def _fill(place: Any, client: httpx.AsyncClient, things: list[Any], settings: Settings) -> None:
    for first in range(0, len(things), SEND):
        events = [event("ADDED", thing) for thing in things[first : first + SEND]]
        (await client.post("/v1/events", json=events)).raise_for_status()
    worker = asyncio.create_task(bootstrap.run_worker(place, settings, process_registry()))
    store, log = bootstrap.open_store(place), bootstrap.open_log(place)
    ends = await log_ends(log)
    while not await settled(store, ends):
        await asyncio.sleep(0.2)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await store.aclose()
    await log.aclose()


async def _measure(client: httpx.AsyncClient) -> None:
    latest = 0.0

    async def beat() -> None:
        nonlocal latest
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            latest = max(latest, time.perf_counter() - began - 0.005)

    beating = asyncio.create_task(beat())
    for turn in ("first", "next", "and the next"):
        began = time.perf_counter()
        answer = (await client.get(f"/v1/pods/default/w{GROUPS - 1}/why")).raise_for_status().json()
        took = time.perf_counter() - began
        print(f"{turn}: {took:.2f} s, {answer['dry_runs']} dry runs, {len(answer['cures'])} cures")
    began = time.perf_counter()
    asked = [client.get(f"/v1/pods/default/w{i + 4}/why") for i in range(GROUPS - 4)]
    answers = [each.raise_for_status().json() for each in await asyncio.gather(*asked)]
    print(f"{len(answers)} at once: {time.perf_counter() - began:.2f} s")
    beating.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beating
    print(f"the event loop of the API was held up {latest * 1e3:.0f} ms at most")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=("openb", "ledger", "small"), default="openb")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--sites", type=int, default=1_000)
    asked = parser.parse_args()
    if asked.what == "openb":
        _show_openb()
    elif asked.what == "ledger":
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o711)  # for the account of the server, where this one is root
            asyncio.run(_show_ledger(asked.nodes, Path(folder)))
    else:
        curing.show(asked.sites)


if __name__ == "__main__":
    main()
