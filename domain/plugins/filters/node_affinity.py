"""NodeAffinity: nodes must match the pod's node selector and required node affinity."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.base import Reason, StaticFilter
from domain.plugins.selecting import match_any_term, match_labels
from domain.state.table import NodeTable


class NodeAffinity(StaticFilter):
    """Refuse a node that ``spec.nodeSelector`` or the required node affinity does not match.

    Source: kube-scheduler plugin NodeAffinity.
    """

    name: ClassVar[str] = "NodeAffinity"
    reads: ClassVar[frozenset[str]] = frozenset({"node_selector", "node_affinity"})
    reasons: ClassVar[tuple[Reason, ...]] = (Reason("node-affinity", unresolvable=True),)

    def refuse(self, template: PodTemplate, table: NodeTable, rows: np.ndarray) -> np.ndarray | None:
        """See ``StaticFilter``."""
        affinity = template.node_affinity
        required = None if affinity is None else affinity.required
        if not template.node_selector and required is None:
            return None
        matched = match_labels(template.node_selector, table, rows)
        if required is not None:
            matched &= match_any_term(required, table, rows)
        return (~matched).astype(np.uint8)
