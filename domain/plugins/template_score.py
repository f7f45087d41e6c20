"""TemplateScore: a score to copy; docs/plugins.md says how, in "Write your own score"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import StaticScore
from domain.plugins.view import NodeView
from domain.state.keyed_values import ABSENT


class TemplateScore(StaticScore):
    """Prefer nodes without a label, for pods of a high enough priority.

    Formula: 100 where the node lacks the label and the pod's priority is ``priority`` at least, else 0.

    Arguments: ``label`` (key of the label; default ``old``), ``priority`` (from which on a pod prefers such
    nodes; default 1).
    Source: the template of berth; name the paper, the upstream plugin or the rule of your house here.
    """

    # How profiles name it, and the fields of the pod's template that the answer depends on.
    name: ClassVar[str] = "TemplateScore"
    reads: ClassVar[frozenset[str]] = frozenset({"priority"})

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("label", "priority"))
        self._label = given.raw("label") or "old"
        if not isinstance(self._label, str):
            raise FieldError(given.at("label"), "expected the key of a label")
        self._priority = given.number("priority", 1)

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """Return float64[len(rows)], 0..100: no ``normaliser`` brings it there.

        Asked for all nodes at once and again for those that changed: in columns, not node by node.
        """
        if template.priority < self._priority:
            return np.zeros(len(rows))
        values = view.table.labels.column(self._label)
        if values is None:
            return np.full(len(rows), 100.0)
        score: np.ndarray = np.where(values[rows] == ABSENT, 100.0, 0.0)
        return score
