"""The rule by which a toleration covers a taint."""

from __future__ import annotations

from collections.abc import Iterable

from domain.model.nodes import Taint
from domain.model.pods import Toleration
from domain.plugins.integers import canonical_integer


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Say whether a toleration covers a taint.

    An empty effect covers every effect, an empty key (with ``Exists``) every key. ``Lt`` and ``Gt`` compare
    integers in canonical form: the taint's value must be below or above the toleration's (Kubernetes 1.35,
    alpha).
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
        case "Lt" | "Gt":
            theirs, ours = canonical_integer(taint.value), canonical_integer(toleration.value)
            if theirs is None or ours is None:
                return False
            return theirs < ours if toleration.operator == "Lt" else theirs > ours
        case _:
            return False


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Say whether any of the tolerations covers the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)
