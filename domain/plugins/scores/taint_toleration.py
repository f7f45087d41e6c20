"""TaintToleration (score): prefer nodes without PreferNoSchedule taints that the pod does not tolerate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import StaticScore
from domain.plugins.normaliser import Normaliser
from domain.plugins.tolerations import untolerated_counts
from domain.plugins.view import NodeView

_PREFER = "PreferNoSchedule"


class TaintToleration(StaticScore):
    """Count the PreferNoSchedule taints that no toleration of the pod covers: the fewer, the better.

    Formula: ``100 * (highest count - count) / highest count`` over the feasible nodes; 100 where no node has
    any.

    Arguments: ``arithmetic`` (``real``, the default, or ``integer``: ``100 - 100 * count / highest count``,
    where the quotient is cut to a whole number, as upstream does).
    Source: kube-scheduler plugin TaintToleration.
    """

    name: ClassVar[str] = "TaintToleration"
    reads: ClassVar[frozenset[str]] = frozenset({"tolerations"})

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        cut = Arguments(args, path, ("arithmetic",)).whole_numbers()
        self.normaliser = Normaliser(reverse=True, from_zero=True, zero_full=True, cut=cut)

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        left = untolerated_counts(template.tolerations, (_PREFER,), view.table)
        return np.zeros(len(rows)) if left is None else left[rows].astype(np.float64)
