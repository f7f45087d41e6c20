"""What the pods of a simulated day want of their nodes: services by their curves, the job by its cores."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import msgspec
import numpy as np

from domain.colocation.view import Requests
from domain.model.colocation import QOS_CLASS_OF, QUALITY_OF, Amounts, Quality
from domain.model.pods import CpuClaim, PodTemplate
from domain.model.resources import CPU, MEMORY
from research.simulate.boxes import Demand
from research.simulate.running import Simulation
from research.simulate.trace import Curves

NAMESPACE = "job"
"""Where the pods of the job are."""

SERVICE_PRIORITY = 100
POD_MILLI = 1_000
POD_USED_BYTES = 256 << 20


def promised(template: PodTemplate, profile: str) -> PodTemplate:
    """Return the template of a service's pod: high, or mid where its limit is above its request."""
    asked = {name: template.requests[name] for name in (CPU, MEMORY) if name in template.requests}
    limits = template.limits or asked
    quality = Quality.HIGH if limits == asked else Quality.MID
    return msgspec.structs.replace(
        template,
        limits=limits,
        qos_class=QOS_CLASS_OF[quality],
        cpu_claim=CpuClaim(fixed_milli=limits.get(CPU, 0)),
        priority=SERVICE_PRIORITY,
        profile=profile,
    )


class _Service(NamedTuple):
    """A running pod of a service: its node and curve, and what it requests."""

    node: int
    kind: int
    quality: Quality
    requests: Amounts


class Demands:
    """What the running pods of services want, node by node.

    Attributes
    ----------
    lows, highs : dict
        Node, by its number -> keys of the job's pods there, by quality.
    """

    def __init__(self, curves: Curves, nodes: dict[str, int]) -> None:
        assert curves.resources[:2] == (CPU, MEMORY), "the curves are of cpu and memory"
        self._curves, self._nodes = curves, nodes
        self._running: list[_Service] = []
        self._stamp: tuple[object, ...] = ()
        self.lows = defaultdict[int, list[str]](list)
        self.highs = defaultdict[int, list[str]](list)
        self._known: tuple[tuple[object, ...], list[Demand]] = ((), [])

    def see(self, simulation: Simulation, stamp: tuple[object, ...], begun_ms: int) -> None:
        """See which pods run, those of the job from the minute after their placement on.

        Nothing is read where the stamp, which counts all that comes and goes, is the same.
        """
        if stamp == self._stamp:
            return
        self._stamp = stamp
        self._running.clear()
        self.lows.clear()
        self.highs.clear()
        for key, entry in simulation.state.pods.items():
            if not entry.node:
                continue
            node, template = self._nodes[entry.node], entry.spec.template
            quality = QUALITY_OF[template.qos_class]
            if entry.spec.namespace == NAMESPACE:
                if entry.placed_ms <= begun_ms:
                    (self.lows if quality is Quality.LOW else self.highs)[node].append(key)
                else:
                    self._stamp = ()  # look again in a minute
                continue
            requests = Amounts(template.requests.get(CPU, 0), template.requests.get(MEMORY, 0))
            self._running.append(_Service(node, self._curves.kinds[key], quality, requests))
        self._known = ((), [])

    def at(self, at_ms: int) -> list[Demand]:
        """Return what is wanted on each node."""
        step = min(at_ms // self._curves.step_ms, self._curves.steps_count - 1)
        if self._known[0] != (step,):
            self._known = ((step,), self._demands(step))
        return self._known[1]

    def _demands(self, step: int) -> list[Demand]:
        count = len(self._nodes)
        sums = np.zeros((8, count), np.int64)  # cpu, memory, promised and requested cpu: of high, of mid
        used = np.rint(self._curves.used[:2, :, step]).astype(np.int64)
        for node, kind, quality, requests in self._running:
            cpu, memory = used[:, kind]
            at = 0 if quality is Quality.HIGH else 4
            sums[at : at + 4, node] += (cpu, memory, min(cpu, requests.cpu_milli), requests.cpu_milli)
        for node, keys in self.highs.items():
            sums[:4, node] += np.array((POD_MILLI, POD_USED_BYTES, POD_MILLI, POD_MILLI)) * len(keys)
        return [
            Demand(
                high=Amounts(*high[:2]),
                mid=Amounts(*mid[:2]),
                high_promised_milli=high[2],
                mid_promised_milli=mid[2],
                requests=Requests(Amounts(high[3]), Amounts(mid[3])),
            )
            for high, mid in ((row[:4], row[4:]) for row in sums.T.tolist())
        ]
