"""TemplateFilter: a filter to copy; docs/plugins.md says how, in "Write your own filter"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import Reason, StaticFilter
from domain.plugins.view import NodeView
from domain.state.keyed_values import ABSENT


class TemplateFilter(StaticFilter):
    """Refuse a node without a label, unless the pod's priority is high enough to go anywhere.

    Arguments: ``label`` (key of the label; default ``ready``), ``priority`` (from which on a pod goes
    anywhere; default 1).
    Source: the template of berth; name the paper, the upstream plugin or the rule of your house here.
    """

    # How profiles name it, and the fields of the pod's template that the answer depends on.
    name: ClassVar[str] = "TemplateFilter"
    reads: ClassVar[frozenset[str]] = frozenset({"priority"})
    phrases: ClassVar[Mapping[str, str]] = {"template-filter": "lack the label that the profile asks for"}
    # What it says of a node that it refuses; unresolvable: evicting pods could not change that.
    reasons: tuple[Reason, ...] = (Reason("template-filter", unresolvable=True),)

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("label", "priority"))
        self._label = given.raw("label") or "ready"
        if not isinstance(self._label, str):
            raise FieldError(given.at("label"), "expected the key of a label")
        self._priority = given.number("priority", 1)

    def refuse(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """Return for each row 0, or 1 for the first of ``reasons``; None where every node passes.

        Asked for all nodes at once and again for those that changed: in columns, not node by node.
        """
        if template.priority >= self._priority:
            return None
        values = view.table.labels.column(self._label)
        if values is None:
            return np.ones(len(rows), dtype=np.uint8)
        refused: np.ndarray = values[rows] == ABSENT
        return refused.astype(np.uint8)
