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


def tianchi_trace(folder: Path | None) -> Trace:
    """Return the preliminary data set of a folder, or of a folder directly in it.

    Raises
    ------
    TraceError
        A file is missing or does not read.
    """
    if folder is None:
        raise TraceError("the trace does not come with berth: name the folder with its files by --data")
    inside = sorted({path.parent for path in folder.glob("*/*app_resources*.csv*")})
    data = tianchi.read(inside[0] if inside else folder)
    apps = {name: number for number, name in enumerate(data.apps)}
    kinds: dict[str, int] = {}
    moments = list(_moments(data, apps, kinds))
    # Millionths of a core as thousandths, and millionths of a GB as bytes.
    used = np.stack([data.app_cpu / 1e3, data.app_memory * 1e3])
    curves = Curves(step_ms=_STEP_MS, resources=_RESOURCES[:2], kinds=kinds, used=used)
    return Trace(name="tianchi", moments=moments, resources=_RESOURCES, choices=_CHOICES, curves=curves)


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
