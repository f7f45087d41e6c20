"""SearchScore: rate nodes by what is left and by their load, weighed by what kind of pod it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.kernels.arrays import SEARCH
from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import ResourceScore, Term, TermPart
from domain.plugins.in_flight import ARGUMENT, ESTIMATED, READS, in_flight
from domain.plugins.paper_resources import FOUR_RESOURCES, parts_of
from domain.plugins.view import NodeView
from domain.state.resources import NOWHERE, ResourceIndex

_WEIGHTS = {
    "balanced": (0.25, 0.25, 0.25, 0.25),
    "compressible": (0.4, 0.1, 0.4, 0.1),
    "incompressible": (0.1, 0.4, 0.1, 0.4),
}
"""By type of pod, in the order in which the kernel numbers them."""

_CRITICAL_LOAD = 0.8
_SUM_APART_MAX = 1e-6


class SearchScore(ResourceScore):
    """Rate a node by the share of its free resources that the pod leaves, and by how far it is below a load.

    Formula: ``100 * (S + 1) / 3`` with ``S = R + L``, ``R = sum(mu_r * R_r)`` and
    ``L = sum(v_r * (T_r - L_r))``. ``R_r = 1 - asked / (capacity - requested)``; it is 1 where the pod asks
    for none, 0 where that is not free. ``L_r = (asked + requested) / capacity``, cut to 1, and ``T_r`` is the
    critical load. The weights ``mu`` and ``v`` depend on the type of the pod on that node. With ``C_r = asked
    / capacity``, it is *compressible* where ``C_cpu > C_memory`` and ``C_network > C_disk``, *incompressible*
    where both are the other way round, and *balanced* otherwise: also where a ratio is exactly 1, where the
    pod asks for none of one of the four, and where the node has none. A resource that the node does not have
    is left out, and the weights of the others are scaled up.

    Arguments: ``resources`` (four names: cpu, memory, network, disk, which are compared by twos; default cpu,
    memory, berth.io/bandwidth, berth.io/disk), ``criticalLoads`` (a number between 0 and 1 for each; default
    0.8), ``availableWeights`` (``mu``) and ``loadWeights`` (``v``): ``compressible`` (default 0.4, 0.1, 0.4,
    0.1), ``incompressible`` (0.1, 0.4, 0.1, 0.4) and ``balanced`` (0.25 each), four weights each that sum up
    to 1; ``load`` (``requested``, the default; or ``measured``: the highest of the latest and average usage
    and of yesterday's peak stands for ``requested`` in ``L_r``, where it is known), ``inFlight`` (with
    ``measured``, of cpu and memory: ``L_r`` adds to that load what the pod, and the pods that no measurement
    covers yet, are expected to use by the policy, over the node's capacity; default false).
    Source: equations 16 to 27 of the paper on an improved bald eagle search for placement (TBESK, 2023).
    """

    name: ClassVar[str] = "SearchScore"
    reads: ClassVar[frozenset[str]] = READS
    parts_max = 4
    numbers_max = 29

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        allowed = ("resources", "criticalLoads", "availableWeights", "loadWeights", "load", ARGUMENT)
        given = Arguments(args, path, allowed)
        self._names = given.name_list("resources", FOUR_RESOURCES, least=4, most=4)
        self.reads_usage = given.choice("load", ("requested", "measured")) == "measured"
        self.measured_count = 4 if self.reads_usage else 0
        self._in_flight = given.flag(ARGUMENT)
        self.parts_max = 12 if self._in_flight else 4
        if self._in_flight and not self.reads_usage:
            raise FieldError(given.at(ARGUMENT), "needs load: measured; what is requested counts all pods")
        loads = given.numbers("criticalLoads", [_CRITICAL_LOAD] * 4, 0.0, 1.0)
        for i, each in enumerate(loads):
            if not 0.0 < each < 1.0:
                raise FieldError(f"{given.at('criticalLoads')}[{i}]", f"{each:g} is not between 0 and 1")
        weights = [*_weights(given, "availableWeights"), *_weights(given, "loadWeights")]
        self._numbers = (float(self.reads_usage), *loads, *weights)

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``: the four resources; then, of pods in flight, capacities and estimates."""
        parts = parts_of(self._names, [1.0] * 4, template, resources)
        if self._in_flight:
            expected = [
                in_flight(part_name, template, resources)
                if part_name in ESTIMATED
                else (part, TermPart(NOWHERE, 1.0, part.value))
                for part_name, part in zip(self._names, parts, strict=True)
            ]
            parts = (*parts, *(capacity for capacity, _ in expected), *(each for _, each in expected))
        return Term(SEARCH, parts, self._numbers)

    def measured(self, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Plugin``: the load of each resource at its peak, in percent."""
        if not self.reads_usage:
            return super().measured(view, rows)
        return np.array([_peak(view, name, rows) for name in self._names])


def _peak(view: NodeView, resource: str, rows: np.ndarray) -> np.ndarray:
    average, _, latest = view.figures(resource, rows)
    peak = np.fmax(np.fmax(average, latest), view.peak_yesterday(resource, rows))
    cut: np.ndarray = np.clip(peak, 0.0, 1e6)
    return cut


def _weights(given: Arguments, key: str) -> list[float]:
    section, found = given.section(key, tuple(_WEIGHTS)), list[float]()
    for kind, default in _WEIGHTS.items():
        weights = section.numbers(kind, default, 0.0, 1.0)
        if abs(sum(weights) - 1.0) > _SUM_APART_MAX:
            raise FieldError(section.at(kind), f"the weights sum up to {sum(weights):g}; expected 1")
        found += weights
    return found
