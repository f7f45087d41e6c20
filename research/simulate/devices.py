"""The fragmentation of a cluster's GPUs at a moment of a simulation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from domain.model.devices import DEVICE_ONE, GPU_MILLI, asked, choose, devices_of
from domain.model.events import PodUpserted
from domain.model.pods import PodTemplate
from domain.search.mix import ANY_MODEL, Shape, typical
from domain.state.cluster import ClusterState
from domain.state.resources import CPU, MEMORY
from research.devices.arrays import DeviceNodes
from research.devices.placing import fragmentation
from research.simulate.trace import Trace
from services.traces.openb import GPU_PRODUCT


class Fragments:
    """What the pods of a trace ask of devices, and how much of what is free they cannot use.

    The mix are the pods of the trace, as far as the most frequent make up 95 %. Source of the measure:
    ``domain/kernels/fragmentation.py``.
    """

    def __init__(self, trace: Trace) -> None:
        self._models: dict[str, int] = {}
        has_devices = GPU_MILLI in trace.resources
        self._mix = typical(self._shapes(trace)) if has_devices else {}

    def share(self, state: ClusterState) -> float | None:
        """Return which part of all devices is free and of no use, on the mean of the mix; None: no devices.

        Devices are given to the pods of a node in the order in which these came (``choose``).
        """
        table = state.table
        rows = [row for row, spec in enumerate(table.specs) if devices_of(spec.allocatable)]
        if not self._mix or not rows:
            return None
        devices = np.array([devices_of(table.specs[row].allocatable) for row in rows], np.int64)
        free = {row: [DEVICE_ONE] * count for row, count in zip(rows, devices.tolist(), strict=True)}
        for entry in state.pods.values():
            ask = asked(entry.spec.template.requests)
            row = table.rows.get(entry.node)
            if ask.number and row in free:
                for index in choose(free[row], ask):
                    free[row][index] -= ask.milli
        left = np.zeros((len(rows), int(devices.max())), np.int64)
        for i, row in enumerate(rows):
            left[i, : devices[i]] = np.maximum(free[row], 0)
        room = np.maximum(table.allocatable[:, rows] - table.requested[:, rows], 0)
        models = [self._model(table.specs[row].labels.get(GPU_PRODUCT, "")) for row in rows]
        nodes = DeviceNodes(
            np.ascontiguousarray(room[CPU]),
            np.ascontiguousarray(room[MEMORY]),
            left,
            devices,
            np.array(models, np.int64),
            np.zeros(len(rows), np.int64),
        )
        return float(fragmentation(nodes, self._mix).sum() / (devices.sum() * DEVICE_ONE))

    def _shapes(self, trace: Trace) -> Iterator[Shape]:
        for moment in trace.moments:
            if isinstance(moment.event, PodUpserted):
                template = moment.event.pod.template
                ask = asked(template.requests)
                requests = template.requests
                yield Shape(
                    requests.get("cpu", 0), requests.get("memory", 0), *ask, self._models_of(template)
                )

    def _model(self, name: str) -> int:
        return self._models.setdefault(name, len(self._models))

    def _models_of(self, template: PodTemplate) -> int:
        """Return the bits of the models that a pod may have."""
        required = template.node_affinity.required if template.node_affinity else None
        if not asked(template.requests).number or not required:
            return ANY_MODEL
        found = 0
        for term in required:
            named = [each for each in term.match_expressions if each.key == GPU_PRODUCT]
            if not named or named[0].operator != "In":
                return ANY_MODEL
            for name in named[0].values:
                found |= 1 << self._model(name)
        return found
