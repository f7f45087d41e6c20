"""CWT: prefer the node that is nearest to the best of all, by given weights and by those of entropy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels.arrays import BY_CLOSENESS
from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments, numbers
from domain.plugins.base import RelativeScore, TermPart
from domain.plugins.pairwise import weights_of
from domain.plugins.paper_resources import FOUR_RESOURCES, parts_of
from domain.state.resources import ResourceIndex

_IMPORTANCE_MAX = 9.0
"""Saaty's scale: 1 is as important, 9 far more important."""


class CWT(RelativeScore):
    """Rate a node by TOPSIS: how near its free shares come to the best, and how far they are from the worst.

    Formula: ``x_r`` is the free share of a resource with the pod on the node. It is divided by the root of
    the sum of the squares of all feasible nodes, and times a weight. ``closeness = d_worst / (d_best +
    d_worst)``, the distances to the lowest and to the highest of each resource. The closest node becomes 100,
    the farthest 0, equal ones 100. The weights combine two: by AHP, the main eigenvector of ``comparisons``;
    and by entropy, ``1 - H_r / ln(n)`` with ``H_r`` the entropy of the shares of ``n`` nodes: what differs
    most between nodes weighs most. Their products are scaled to sum up to 1. Shares are whole numbers of
    2^-20, so that the order of nodes changes nothing. A node without a resource has none of it free.

    Arguments: ``resources`` (a list of two to nine names; default cpu, memory, berth.io/bandwidth,
    berth.io/disk), ``comparisons`` (a row for each resource: how many times as important as each other one it
    is, from 1/9 to 9; default 1 everywhere).
    Source: a baseline of the paper on an improved bald eagle search for batch placement (TBESK, 2023).
    """

    name: ClassVar[str] = "CWT"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})
    kind = BY_CLOSENESS

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("resources", "comparisons"))
        self._names = given.name_list("resources", FOUR_RESOURCES, least=2, most=9)
        self.parts_max = len(self._names)
        self._weights = _ahp(given, len(self._names))

    def parts(self, template: PodTemplate, resources: ResourceIndex) -> tuple[TermPart, ...]:
        """See ``RelativeScore``: what the formula calls weights, and what the pod asks for."""
        return parts_of(self._names, self._weights, template, resources)


def _ahp(given: Arguments, count: int) -> list[float]:
    if "comparisons" not in given:
        return [1.0 / count] * count
    rows = [
        numbers(row, path, count, 1.0 / _IMPORTANCE_MAX, _IMPORTANCE_MAX)
        for path, row in given.items("comparisons")
    ]
    if len(rows) != count:
        raise FieldError(given.at("comparisons"), f"has {len(rows)} rows; expected {count}")
    return weights_of(rows, given.at("comparisons"))
