"""NodeAffinity: nodes must match the pod's node selector and required node affinity, and the profile's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.pods import NodeSelectorTerm, PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import Reason, StaticFilter
from domain.plugins.node_selectors import added_affinity, match_any_term, match_labels
from domain.plugins.view import NodeView

_OWN, _ADDED, _EXCLUDED = 1, 2, 3


def _names_of(term: NodeSelectorTerm) -> set[str] | None:
    """Return the names of nodes that a term asks for, None where it asks for none."""
    asked = [set(field.values) for field in term.match_fields if field.operator == "In"]
    return set.intersection(*asked) if asked else None


class NodeAffinity(StaticFilter):
    """Refuse a node that ``spec.nodeSelector`` or the required node affinity does not match.

    Arguments: ``addedAffinity`` (a node affinity whose required terms every pod must meet besides its own; it
    is looked at first). Where every required term names nodes (``matchFields`` with ``In``), the others are
    refused by this filter, even if one before it would refuse them too.
    A node to which the pod could not be bound a moment ago is refused last; it still counts for its
    domain where pods are spread.
    Reason codes: ``node-affinity``, ``node-affinity-enforced`` (by ``addedAffinity``), ``bind-failed``.
    Source: kube-scheduler plugin NodeAffinity.
    """

    name: ClassVar[str] = "NodeAffinity"
    reads: ClassVar[frozenset[str]] = frozenset({"node_selector", "node_affinity", "excluded"})
    phrases: ClassVar[Mapping[str, str]] = {
        "node-affinity": "do not match its node selector or affinity",
        "node-affinity-enforced": "do not match the node affinity that the profile adds",
        "bind-failed": "could not take it a moment ago, though it was bound there",
    }
    reasons: tuple[Reason, ...] = (
        Reason("node-affinity", unresolvable=True),
        Reason("node-affinity-enforced", unresolvable=True),
        Reason("bind-failed", unresolvable=True),
    )

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        added = added_affinity(Arguments(args, path, ("addedAffinity",)))
        self._added = None if added is None else added.required

    def named(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """See ``StaticFilter``: the nodes in ``matchFields``, where each required term names some."""
        required = None if template.node_affinity is None else template.node_affinity.required
        names = [_names_of(term) for term in required or ()]
        if not names or None in names:
            return None
        known = {view.table.rows.get(name, -1) for each in names for name in each or ()}
        return np.isin(rows, list(known))

    def refuse(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """See ``StaticFilter``."""
        affinity = template.node_affinity
        required = None if affinity is None else affinity.required
        if not template.node_selector and required is None and self._added is None and not template.excluded:
            return None
        matched = match_labels(template.node_selector, view.table, rows)
        if required is not None:
            matched &= match_any_term(required, view.table, rows)
        refused = np.where(matched, 0, _OWN).astype(np.uint8)
        if self._added is not None:
            refused[~match_any_term(self._added, view.table, rows)] = _ADDED
        if template.excluded:
            excluded = [view.table.rows.get(name, -1) for name in template.excluded]
            refused[np.isin(rows, excluded) & (refused == 0)] = _EXCLUDED
        return refused
