"""NodeAffinity: nodes must match the pod's node selector and required node affinity, and the profile's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import Reason, StaticFilter
from domain.plugins.node_selectors import added_affinity, match_any_term, match_labels
from domain.plugins.view import NodeView

_OWN, _ADDED = 1, 2


class NodeAffinity(StaticFilter):
    """Refuse a node that ``spec.nodeSelector`` or the required node affinity does not match.

    Arguments: ``addedAffinity`` (a node affinity whose required terms every pod must meet besides its own; it
    is looked at first).
    Reason codes: ``node-affinity``, ``node-affinity-enforced`` (by ``addedAffinity``).
    Source: kube-scheduler plugin NodeAffinity.
    """

    name: ClassVar[str] = "NodeAffinity"
    reads: ClassVar[frozenset[str]] = frozenset({"node_selector", "node_affinity"})
    phrases: ClassVar[Mapping[str, str]] = {
        "node-affinity": "do not match its node selector or affinity",
        "node-affinity-enforced": "do not match the node affinity that the profile adds",
    }
    reasons: tuple[Reason, ...] = (
        Reason("node-affinity", unresolvable=True),
        Reason("node-affinity-enforced", unresolvable=True),
    )

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        added = added_affinity(Arguments(args, path, ("addedAffinity",)))
        self._added = None if added is None else added.required

    def refuse(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """See ``StaticFilter``."""
        affinity = template.node_affinity
        required = None if affinity is None else affinity.required
        if not template.node_selector and required is None and self._added is None:
            return None
        matched = match_labels(template.node_selector, view.table, rows)
        if required is not None:
            matched &= match_any_term(required, view.table, rows)
        refused = np.where(matched, 0, _OWN).astype(np.uint8)
        if self._added is not None:
            refused[~match_any_term(self._added, view.table, rows)] = _ADDED
        return refused
