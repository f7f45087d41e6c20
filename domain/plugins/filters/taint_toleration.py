"""TaintToleration: keep pods off nodes whose taints they do not tolerate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.base import Reason, StaticFilter
from domain.plugins.tolerations import tolerated
from domain.plugins.view import NodeView

_REPELLING = ("NoSchedule", "NoExecute")


class TaintToleration(StaticFilter):
    """Refuse a node with a NoSchedule or NoExecute taint that no toleration of the pod covers.

    Evaluated once per distinct set of taints, not per node. Source: kube-scheduler plugin TaintToleration.
    """

    name: ClassVar[str] = "TaintToleration"
    reads: ClassVar[frozenset[str]] = frozenset({"tolerations"})
    phrases: ClassVar[Mapping[str, str]] = {"untolerated-taint": "have a taint that it does not tolerate"}
    reasons: tuple[Reason, ...] = (Reason("untolerated-taint", unresolvable=True),)

    def refuse(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """See ``StaticFilter``."""
        refused = np.array(
            [
                any(t.effect in _REPELLING and not tolerated(t, template.tolerations) for t in taints)
                for taints in view.table.taint_sets
            ],
            dtype=np.uint8,
        )
        return refused[view.table.taint_set[rows]] if refused.any() else None
