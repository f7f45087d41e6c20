"""TaintToleration (score): prefer nodes without PreferNoSchedule taints that the pod does not tolerate."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.base import StaticScore
from domain.plugins.normaliser import Normaliser
from domain.plugins.tolerations import untolerated_counts
from domain.plugins.view import NodeView

_PREFER = "PreferNoSchedule"


class TaintToleration(StaticScore):
    """Count the PreferNoSchedule taints that no toleration of the pod covers: the fewer, the better.

    Formula: ``100 * (highest count - count) / highest count`` over the feasible nodes; 100 where no node has
    any.
    Source: kube-scheduler plugin TaintToleration.
    """

    name: ClassVar[str] = "TaintToleration"
    reads: ClassVar[frozenset[str]] = frozenset({"tolerations"})
    normaliser: ClassVar[Normaliser] = Normaliser(reverse=True, from_zero=True, zero_full=True)

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        left = untolerated_counts(template.tolerations, (_PREFER,), view.table)
        return np.zeros(len(rows)) if left is None else left[rows].astype(np.float64)
