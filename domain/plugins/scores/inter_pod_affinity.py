"""InterPodAffinity (score): prefer nodes near the pods that a pod prefers, and near pods that prefer it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels import arrays as kernel
from domain.model.marks import Carries, TermMark
from domain.model.selectors import PodAffinity
from domain.plugins.affinity_terms import read_arguments, terms_of_others, weighers_by_key
from domain.plugins.counting import CounterSpec, CountScore, Incoming, Value

_NOTHING = PodAffinity()


class InterPodAffinity(CountScore):
    """Sum the weights of the preferred terms that hold between the pod and those in the node's domains.

    A term of the pod counts for each pod that it matches; a term of another pod counts where it matches this
    one. Terms of anti-affinity count against the node. A required term of affinity of another pod counts
    ``hardPodAffinityWeight``. Pods that are being deleted count. One other pod counts 1,023 at most, for or
    against, however many terms there are (``counted_weight_max``).

    Formula: ``100 * (sum - lowest) / (highest - lowest)`` over the feasible nodes; 0 where all are equal.
    Arguments: ``hardPodAffinityWeight`` (0..100; default 1), ``ignorePreferredTermsOfExistingPods`` (true:
    only pods with preferred terms of their own are scored; default false).
    Source: kube-scheduler plugin InterPodAffinity.
    """

    name: ClassVar[str] = "InterPodAffinity"
    reads: ClassVar[frozenset[str]] = frozenset({"pod_affinity", "pod_anti_affinity"})
    kind: ClassVar[int] = kernel.AFFINITY_SCORE

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        self._args = read_arguments(args, path)

    def values(self, pod: Incoming) -> list[Value]:
        """See ``CountScore``: one per topology key."""
        preferred = (pod.template.pod_affinity or _NOTHING).preferred
        anti_preferred = (pod.template.pod_anti_affinity or _NOTHING).preferred
        own = [(each.term, each.weight) for each in preferred]
        own += [(each.term, -each.weight) for each in anti_preferred]
        if not own and self._args.ignores_preferred:
            return []
        of_others = terms_of_others(pod, self._weight)
        return [Value(CounterSpec(key, each)) for key, each in weighers_by_key(own, of_others).items()]

    def _weight(self, mark: TermMark) -> int:
        """Return what a placed pod that carries a term adds for it."""
        match mark.kind:
            case Carries.AFFINITY:
                return self._args.hard_weight
            case Carries.PREFERRED_AFFINITY:
                return mark.weight
            case Carries.PREFERRED_ANTI_AFFINITY:
                return -mark.weight
            case Carries.ANTI_AFFINITY:
                return 0
