"""PodTopologySpread: keep pods of one kind spread evenly over zones, racks or nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels import arrays as kernel
from domain.plugins.base import Reason
from domain.plugins.counting import CountFilter, Incoming, Rule, selector_text
from domain.plugins.spread_constraints import Constraint, SpreadDefaults, counter_of

_TOO_UNEVEN = Reason("topology-spread", unresolvable=False)
_NO_LABEL = Reason("topology-spread-missing-label", unresolvable=True)


class PodTopologySpread(CountFilter):
    """Refuse a node whose domain would hold too many more pods than the emptiest one.

    A constraint with ``DoNotSchedule`` counts the pods of the namespace that its selector matches, without
    those that are being deleted, per value of its topology key. Nodes count that have the keys of all such
    constraints, and that its policies include.

    Formula: refused where `count of the node's domain + (1 if the selector matches the pod) - lowest count of
    any domain > maxSkew`. The lowest is 0 where there are fewer domains than ``minDomains``.
    Arguments: ``defaultConstraints`` (for pods without constraints; only with ``defaultingType: List``),
    ``defaultingType`` (``System``, the default: no default constraint refuses a node; or ``List``).
    Reason codes: ``topology-spread`` (evicting pods could help), ``topology-spread-missing-label`` (the node
    lacks the key: evicting pods cannot help).
    Source: kube-scheduler plugin PodTopologySpread.
    """

    name: ClassVar[str] = "PodTopologySpread"
    reads: ClassVar[frozenset[str]] = frozenset({"spread", "node_selector", "node_affinity", "tolerations"})
    phrases: ClassVar[Mapping[str, str]] = {
        "topology-spread": "are where too many of its kind run already",
        "topology-spread-missing-label": "lack a label over which it must be spread",
    }

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        self._defaults = SpreadDefaults(args, path)

    def rules(self, pod: Incoming) -> list[Rule]:
        """See ``CountFilter``: one per constraint, in order."""
        constraints = self._defaults.constraints(pod, hard=True)
        return [_rule(each, pod, constraints.keys) for each in constraints.items]


def _rule(constraint: Constraint, pod: Incoming, keys: tuple[str, ...]) -> Rule:
    spread, match = constraint
    selector = selector_text(None if match is None else match.selector)
    own = match is not None and match.matches(pod, pod.pods.namespaces)
    return Rule(
        kernel.SPREAD,
        counter_of(constraint, pod, keys),
        spread.max_skew - own,
        _TOO_UNEVEN,
        missing=_NO_LABEL,
        min_domains=spread.min_domains,
        text=f"{spread.topology_key} maxSkew {spread.max_skew} {selector}",
    )
