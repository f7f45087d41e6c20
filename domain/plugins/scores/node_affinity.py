"""NodeAffinity (score): prefer nodes that match preferred terms of the pod or the profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import StaticScore
from domain.plugins.node_selectors import added_affinity, match_term
from domain.plugins.normaliser import Normaliser
from domain.plugins.view import NodeView


class NodeAffinity(StaticScore):
    """Sum the weights of the preferred node affinity terms that match the node.

    Formula: ``100 * sum / highest sum`` over the feasible nodes; 0 where no term matches anywhere. A term
    without any requirement matches nothing.

    Arguments: ``addedAffinity`` (a node affinity whose preferred terms count for every pod, besides its own),
    ``arithmetic`` (``real``, the default, or ``integer``: cut to a whole number, as upstream does).
    Source: kube-scheduler plugin NodeAffinity.
    """

    name: ClassVar[str] = "NodeAffinity"
    reads: ClassVar[frozenset[str]] = frozenset({"node_affinity"})

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("addedAffinity", "arithmetic"))
        self._added = added_affinity(given)
        self.normaliser = Normaliser(from_zero=True, cut=given.whole_numbers())

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        total = np.zeros(len(rows))
        for affinity in (self._added, template.node_affinity):
            for preferred in affinity.preferred if affinity is not None else ():
                total += preferred.weight * match_term(preferred.term, view.table, rows)
        return total
