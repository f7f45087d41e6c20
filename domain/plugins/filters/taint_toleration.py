"""TaintToleration: keep pods off nodes whose taints they do not tolerate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.base import Reason, StaticFilter
from domain.plugins.tolerations import REPELLING, untolerated_counts
from domain.plugins.view import NodeView


class TaintToleration(StaticFilter):
    """Refuse a node with a NoSchedule or NoExecute taint that no toleration of the pod covers.

    Source: kube-scheduler plugin TaintToleration.
    """

    name: ClassVar[str] = "TaintToleration"
    reads: ClassVar[frozenset[str]] = frozenset({"tolerations"})
    phrases: ClassVar[Mapping[str, str]] = {"untolerated-taint": "have a taint that it does not tolerate"}
    reasons: tuple[Reason, ...] = (Reason("untolerated-taint", unresolvable=True),)

    def refuse(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """See ``StaticFilter``."""
        left = untolerated_counts(template.tolerations, REPELLING, view.table)
        return None if left is None or not left.any() else (left > 0)[rows].astype(np.uint8)
