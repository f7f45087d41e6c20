"""FirstFit: the node that joined the cluster first wins."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.base import StaticScore
from domain.plugins.view import NodeView


class FirstFit(StaticScore):
    """Rate a node by its order of arrival in the cluster: the earlier, the better.

    The order is kept for ever, also over a node's absence, so the score of a node never changes.

    Formula: ``100 / k`` where k is the order of arrival, from 1.
    Source: the classic first-fit rule of bin packing.
    """

    name: ClassVar[str] = "FirstFit"
    reads: ClassVar[frozenset[str]] = frozenset()

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        score: np.ndarray = 100.0 / np.maximum(view.table.ordinal[rows], 1)
        return score
