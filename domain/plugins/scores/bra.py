"""BRA: prefer nodes where two resources are used alike; a baseline of the paper on TBESK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels.arrays import BALANCED_PAIR
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import ResourceScore, Term
from domain.plugins.paper_resources import parts_of
from domain.state.resources import ResourceIndex


class BRA(ResourceScore):
    """Rate a node by how alike the used shares of two resources are, as the paper reads BalancedResource.

    Formula: ``100 - 100 * |a - b|`` with ``a`` and ``b`` the requested shares with the pod, each cut to 1. It
    is ten times the paper's figure (scale 10). A node without one of the resources uses all of it.

    Arguments: ``resources`` (a list of two names; default cpu and memory).
    Source: equation 2 of the paper on an improved bald eagle search for batch placement (TBESK, 2023).
    """

    name: ClassVar[str] = "BRA"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})
    parts_max = 2

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("resources",))
        self._names = given.name_list("resources", ("cpu", "memory"), least=2, most=2)

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``."""
        return Term(BALANCED_PAIR, parts_of(self._names, (1.0, 1.0), template, resources))
