"""What an open overview costs placing: the same pods are placed with and without one, in turns.

In use the browser is on another machine, so here a thread asks what it asks, as often as it does while much
happens: the page every three seconds (``live.js``), and then the field.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx

from benchmarks import e2e
from benchmarks.console import berth_api
from benchmarks.report import Options
from benchmarks.stage import own_servers, scratch_directory
from benchmarks.workloads import WORKLOADS, resized
from services.bootstrap import Place

PAGE_SECONDS = 3.0


@contextlib.contextmanager
def _looking(place: Place, scratch: Path) -> Iterator[list[int]]:
    """Ask what an open overview asks until the end of the block; return the status of each answer."""
    told, stop = list[int](), threading.Event()
    with berth_api(place.dsn, scratch, kafka=place.kafka_bootstrap) as url:
        thread = threading.Thread(target=_look, args=(url, told, stop))
        thread.start()
        try:
            yield told
        finally:
            stop.set()
            thread.join()


def _look(url: str, told: list[int], stop: threading.Event) -> None:
    etag = ""
    with httpx.Client(base_url=url, timeout=60.0) as client:
        while not stop.wait(PAGE_SECONDS):
            told.append(client.get("/console/").status_code)
            field = client.get("/console/data/field", headers={"If-None-Match": etag} if etag else {})
            etag = field.headers.get("etag", "")
            told.append(field.status_code)


def measure(nodes: int, pods: int, *, is_open: bool) -> float:
    """Return the decisions a second, on servers of their own."""
    with scratch_directory() as scratch, own_servers(scratch, embedded=False) as servers:
        place = servers.place
        options = Options(
            workload=resized(WORKLOADS["groups-1000"], nodes=nodes, pods=pods),
            kafka=place.kafka_bootstrap,
            dsn=place.dsn,
        )
        with _looking(place, scratch) if is_open else contextlib.nullcontext([200]) as told:
            report = e2e.measure(options)
        assert 200 in told, told
        return report.decisions_per_second


def main() -> None:
    """Measure in turns, and print each run and the medians."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--nodes", type=int, default=20_000)
    given.add_argument("--pods", type=int, default=200_000)
    given.add_argument("--runs", type=int, default=3)
    told = given.parse_args()
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(told.runs):
        for is_open, speeds in found.items():
            speeds.append(measure(told.nodes, told.pods, is_open=is_open))
            beside = "an open overview" if is_open else "no page"
            sys.stdout.write(f"{speeds[-1]:,.0f} decisions a second beside {beside}\n")
            sys.stdout.flush()
    alone, beside_page = (statistics.median(speeds) for speeds in found.values())
    sys.stdout.write(f"median {alone:,.0f} and {beside_page:,.0f}: {100 * (1 - beside_page / alone):.1f} %\n")


if __name__ == "__main__":
    main()
