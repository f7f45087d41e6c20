"""Tianchi's contest of 2018: containers with curves of what they use over a day."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from domain.model.events import NodeUpserted, PodUpserted
from research.simulate.trace import Curves, Moment, Trace
from research.traces import tianchi
from services.plan.objects import Given, event_of
from services.traces.openb import TraceError

_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_STEP_MS = 900_000
_ARRIVAL_MS = 3_600_000
_CHOICES = (
    "All instances come in the first hour, in the order of the file, and wait for a node; where the files "
    "have them already is not looked at.",
    "A pod requests the highest point of its curves; from then on the curves say what it uses, one point "
    "each 15 minutes.",
    "Rules that allow none of another app are required anti-affinity; those that allow some are left out.",
)


def tianchi_trace(folder: Path | None, nodes_count: int | None = None) -> Trace:
    """Return the preliminary data set of a folder, or of a folder directly in it.

    Parameters
    ----------
    nodes_count : int, optional
        Take so many of the nodes and as large a part of the instances, both at equal distances in the order
        of the files; None: all.

    Raises
    ------
    TraceError
        A file is missing or does not read.
    """
    if folder is None:
        raise TraceError("the trace does not come with berth: name the folder with its files by --data")
    inside = sorted({path.parent for path in folder.glob("*/*app_resources*.csv*")})
    data = tianchi.read(inside[0] if inside else folder)
    choices: tuple[str, ...] = _CHOICES
    if nodes_count is not None and nodes_count < len(data.machines):
        data, choices = _part(data, nodes_count), (*_CHOICES, _part_choice(data, nodes_count))
    apps = {name: number for number, name in enumerate(data.apps)}
    kinds: dict[str, int] = {}
    moments = list(_moments(data, apps, kinds))
    # Millionths of a core as thousandths, and millionths of a GB as bytes.
    used = np.stack([data.app_cpu / 1e3, data.app_memory * 1e3])
    curves = Curves(step_ms=_STEP_MS, resources=_RESOURCES[:2], kinds=kinds, used=used)
    return Trace(name="tianchi", moments=moments, resources=_RESOURCES, choices=choices, curves=curves)


def _part(data: tianchi.Tianchi, nodes_count: int) -> tianchi.Tianchi:
    """Return some nodes and as large a part of the instances, all of them pending."""
    nodes = np.arange(nodes_count) * len(data.machines) // nodes_count
    pods_count = len(data.instances) * nodes_count // len(data.machines)
    pods = np.arange(pods_count) * len(data.instances) // max(pods_count, 1)
    return data._replace(
        machines=[data.machines[i] for i in nodes],
        machine_cpu=data.machine_cpu[nodes],
        machine_memory=data.machine_memory[nodes],
        machine_counts=data.machine_counts[nodes],
        instances=[data.instances[i] for i in pods],
        app=data.app[pods],
        machine=np.full(pods_count, nodes_count, np.int32),
    )


def _part_choice(data: tianchi.Tianchi, nodes_count: int) -> str:
    """Say which part of the trace is taken."""
    return (
        f"{nodes_count:,} of {len(data.machines):,} nodes and as large a part of the instances, both at "
        "equal distances in the order of the files."
    )


def _moments(data: tianchi.Tianchi, apps: dict[str, int], kinds: dict[str, int]) -> Iterator[Moment]:
    """Yield nodes, then pods; note the app of each pod."""
    pods_count = 0
    for each in tianchi.events(data, keep_placed=False):
        event = event_of(Given(each["type"], each["object"]), lenient=True)
        if isinstance(event, NodeUpserted):
            yield Moment(0, event)
            continue
        assert isinstance(event, PodUpserted)
        kinds[event.pod.key] = apps[event.pod.labels[tianchi.APP]]
        pods_count += 1
        at_ms = pods_count * _ARRIVAL_MS // len(data.instances)
        yield Moment(at_ms, PodUpserted(msgspec.structs.replace(event.pod, resource_version=None)))
