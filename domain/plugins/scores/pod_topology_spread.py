"""PodTopologySpread (score): prefer domains in which few pods of the same kind run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels import arrays as kernel
from domain.plugins.counting import CountScore, Incoming, Value
from domain.plugins.spread_constraints import HOSTNAME, SpreadDefaults, counter_of


class PodTopologySpread(CountScore):
    """Count the pods that constraints with ``ScheduleAnyway`` count: the fewer, the better.

    For ``kubernetes.io/hostname`` the pods of the node itself count, whatever the policies of the constraint.

    Formula: `raw = round(sum of count * ln(size + 2) + maxSkew - 1)` over the constraints whose key the node
    has, with the number of domains among the feasible nodes as size (for ``kubernetes.io/hostname`` the
    number of these nodes), rounded half away from zero; the score is `100 * (highest + lowest - raw) /
    highest`, and 100 where the highest is 0. A node without the key of some constraint gets 0, except with
    the constraints of ``defaultingType: System``: its pods count in the zone of the empty name then.
    Arguments: ``defaultConstraints`` and ``defaultingType`` (``List``; or ``System``, the default:
    ``kubernetes.io/hostname`` with maxSkew 3 and ``topology.kubernetes.io/zone`` with maxSkew 5).
    Source: kube-scheduler plugin PodTopologySpread.
    """

    name: ClassVar[str] = "PodTopologySpread"
    reads: ClassVar[frozenset[str]] = frozenset({"spread", "node_selector", "node_affinity", "tolerations"})
    kind: ClassVar[int] = kernel.SPREAD_SCORE

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        self._defaults = SpreadDefaults(args, path)

    def values(self, pod: Incoming) -> list[Value]:
        """See ``CountScore``: one per constraint, in order."""
        constraints = self._defaults.constraints(pod, hard=False)
        requires_all = constraints.requires_all
        keys = constraints.keys if requires_all else ()
        return [
            Value(
                counter_of(
                    each,
                    pod,
                    keys,
                    by_row=each.spread.topology_key == HOSTNAME,
                    missing_is_empty=not requires_all,
                ),
                max_skew=each.spread.max_skew,
                sized=True,
                is_required=requires_all,
            )
            for each in constraints.items
        ]
