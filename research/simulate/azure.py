"""The Azure trace of 2017 by flavours: batches of virtual machines come every five minutes, and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from domain.model.events import NodeUpserted, PodDeleted, PodUpserted
from domain.model.nodes import NodeSpec
from research.simulate.files import lines_of, unreadable
from research.simulate.trace import Kind, Moment, Trace, kind_of

BIN_SECONDS = 300
NODES_COUNT = 640
CORES, MEMORY_GIB = 64, 192
_FLAVOURS, _ARRIVALS, _LIVES, _BINS = (
    "flav_map.txt", "v1.dev.txt", "v1.dev.c2100000.txt", "v1.interval_map.txt"
)  # fmt: skip
_NAMESPACE = "azure"


def azure_trace(folder: Path | None, seed: int, nodes_count: int | None) -> Trace:
    """Return the "dev" split of the trace on nodes of our choice.

    Raises
    ------
    TraceError
        A file is missing or does not read.
    """
    count = nodes_count or NODES_COUNT
    room = {"cpu": CORES * 1_000, "memory": MEMORY_GIB << 30, "pods": CORES}
    nodes = [
        Moment(
            0,
            NodeUpserted(
                NodeSpec(name=f"node-{i:04}", uid=f"node-{i}", resource_version=None, allocatable=room)
            ),
        )
        for i in range(count)
    ]
    pods = sorted(_pods(folder, seed), key=lambda moment: moment.at_ms)
    return Trace(
        name="azure",
        moments=[*nodes, *pods],
        resources=("cpu", "memory"),
        choices=(
            f"The trace has no nodes: here {count:,} of {CORES} vCPU and {MEMORY_GIB} GiB, empty at first; "
            "640 offer 97 % of the vCPU that are asked for at the peak.",
            "The batches of a five-minute bin come one after another, at equal distances within it, in the "
            "order of the file; the virtual machines of a batch come together.",
            "A lifetime is drawn with the seed from the seconds of its bin; bin 0 is 0 to 300 s. Who still "
            "runs at second 2,100,000 never leaves.",
        ),
    )


def _pods(folder: Path | None, seed: int) -> Iterator[Moment]:
    kinds, lives = _kinds(folder), _lives(folder)
    rng = np.random.default_rng(seed)
    first, number = None, 0
    both = zip(lines_of(folder, _ARRIVALS), lines_of(folder, _LIVES), strict=True)
    for line_number, (arrivals, ends) in enumerate(both, start=1):
        try:
            seconds, batches = _batches(arrivals, ends)
            first = seconds if first is None else first
            for i, batch in enumerate(batches):
                at_ms = (seconds - first) * 1_000 + i * BIN_SECONDS * 1_000 // len(batches)
                for flavour, life in batch:
                    key = f"{_NAMESPACE}/vm-{number:06}"
                    number += 1
                    yield Moment(at_ms, PodUpserted(kinds[flavour].pod(key)))
                    low, high = lives[int(life[1:])]
                    life_ms = int(rng.integers(low * 1_000, high * 1_000))
                    if life.startswith("U"):
                        yield Moment(at_ms + max(life_ms, 1), PodDeleted(_NAMESPACE, key.partition("/")[2]))
        except (KeyError, ValueError) as error:
            raise unreadable(f"{_ARRIVALS} or {_LIVES}", line_number, error) from None


def _batches(arrivals: str, ends: str) -> tuple[int, list[list[tuple[str, str]]]]:
    """Return the second of a bin, and the flavour and the end of each virtual machine by batch."""
    (seconds, flavours), (again, lives) = arrivals.split(" "), ends.split(" ")
    if seconds != again:
        raise ValueError(f"{seconds} in the one, {again} in the other")
    batches: list[list[tuple[str, str]]] = [[]]
    for flavour, life in zip(flavours.split(","), lives.split(","), strict=True):
        if flavour == "|":
            batches.append([])
        elif flavour:
            batches[-1].append((flavour, life))
    return int(seconds), [batch for batch in batches if batch]


def _kinds(folder: Path | None) -> dict[str, Kind]:
    found = {}
    for number, line in enumerate(lines_of(folder, _FLAVOURS), start=1):
        try:
            amounts, letter = line.split(" ")
            cores, memory_gib = amounts.split(",")
            requests = {"cpu": int(cores) * 1_000, "memory": int(float(memory_gib) * (1 << 30))}
        except ValueError as error:
            raise unreadable(_FLAVOURS, number, error) from None
        found[letter] = kind_of(requests)
    return found


def _lives(folder: Path | None) -> dict[int, tuple[int, int]]:
    """Return the seconds from which, and up to which, a lifetime in each bin may be."""
    found: dict[int, tuple[int, int]] = {}
    for number, line in enumerate(lines_of(folder, _BINS), start=1):
        try:
            seconds, name = map(int, line.split(" "))
        except ValueError as error:
            raise unreadable(_BINS, number, error) from None
        low, high = found.get(name, (seconds, seconds))
        found[name] = min(low, seconds), max(high, seconds + BIN_SECONDS)
    return found
