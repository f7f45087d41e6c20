"""LRA: prefer nodes of which the least is requested; a baseline of the paper on TBESK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels.arrays import LEAST_ALLOCATED
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import ResourceScore, Term
from domain.plugins.paper_resources import parts_of
from domain.state.resources import ResourceIndex


class LRA(ResourceScore):
    """Rate a node by the mean free share of its resources, as the paper reads LeastRequested.

    Formula: ``100 * mean(max(capacity - requested, 0) / capacity)``, which is ten times the paper's figure
    (scale 10). ``requested`` counts the pod itself. A resource that the node does not have is left out.
    Unlike NodeResourcesFit it takes requests as they are, and counts resources that the pod does not request.

    Arguments: ``resources`` (a list of one to eight names; default cpu and memory).
    Source: equation 1 of the paper on an improved bald eagle search for batch placement (TBESK, 2023).
    """

    name: ClassVar[str] = "LRA"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("resources",))
        self._names = given.name_list("resources", ("cpu", "memory"), least=1, most=8)
        self.parts_max = len(self._names)

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``."""
        return Term(LEAST_ALLOCATED, parts_of(self._names, [1.0] * len(self._names), template, resources))
