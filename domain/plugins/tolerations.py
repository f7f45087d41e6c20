"""The rule by which a toleration covers a taint, for one taint and over columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

import numpy as np

from domain.model.nodes import TAINT_EFFECTS, Taint
from domain.model.pods import Toleration
from domain.state.keyed_values import ABSENT, Values
from domain.state.table import NodeTable

REPELLING = ("NoSchedule", "NoExecute")
"""Effects of taints that keep pods off a node, and do not only prefer others."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Say whether a toleration covers a taint.

    An empty effect covers every effect, an empty key every key; it comes with ``Exists`` only. ``Lt`` and
    ``Gt`` cover nothing: in Kubernetes 1.36 they are alpha, and off.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "Equal" | "":
            return bool(toleration.key) and toleration.value == taint.value
        case _:
            return False


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Say whether any of the tolerations covers the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def untolerated_counts(
    tolerations: Sequence[Toleration], effects: Iterable[str], table: NodeTable
) -> np.ndarray | None:
    """Return int32[N]: how many taints of these effects no toleration covers; None: none on any node.

    Cost: O(N + tolerations), and for each of their keys O(nodes that have a taint of it).
    """
    left: np.ndarray | None = None
    for effect in effects:
        number = TAINT_EFFECTS.index(effect)
        able = [each for each in tolerations if each.effect in ("", effect)]
        if not table.taint_totals[number] or any(not each.key for each in able):
            continue
        left = table.taint_counts[number] + (0 if left is None else left)
        by_key: dict[str, list[Toleration]] = {}
        for each in able:
            by_key.setdefault(each.key, []).append(each)
        for key, alike in by_key.items():
            for nth in count():
                entries = table.taints.entries((key, effect, nth))
                if entries is None:
                    break
                rows, values = entries
                left[rows] -= _covered(values, alike, table.taints.values)
    return None if left is None else left[: table.count]


def _covered(found: np.ndarray, tolerations: Sequence[Toleration], values: Values) -> np.ndarray:
    """Return bool[len(found)]: some toleration of the key covers the taint that has the value."""
    if any(each.operator == "Exists" for each in tolerations):
        covered: np.ndarray = found != ABSENT
        return covered
    return values.among(found, [each.value for each in tolerations if each.operator in ("Equal", "")])
