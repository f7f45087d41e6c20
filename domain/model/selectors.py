"""What one pod asks of others: label selectors, topology spread constraints, pod affinity terms."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class LabelRequirement(msgspec.Struct, frozen=True, order=True):
    """A demand on one label: ``In``, ``NotIn``, ``Exists`` or ``DoesNotExist``; ``values`` are sorted."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether labels meet the demand; ``NotIn`` is met where the key is absent."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None

    def __str__(self) -> str:
        """Return the demand as kubectl writes it: ``app=web``, ``app in (db,web)``, ``!app``."""
        match self.operator, self.values:
            case "In", (value,):
                return f"{self.key}={value}"
            case "NotIn", (value,):
                return f"{self.key}!={value}"
            case "In" | "NotIn", values:
                return f"{self.key} {self.operator.lower()} ({','.join(values)})"
            case "Exists", _:
                return self.key
            case _:
                return f"!{self.key}"


class LabelSelector(msgspec.Struct, frozen=True, cache_hash=True):
    """Requirements that must all hold, sorted, each once; without any it matches everything.

    ``matchLabels`` are read as ``In`` with one value. Where a manifest has no selector at all, None stands
    for it, which matches nothing.
    """

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether labels meet all requirements."""
        for requirement in self.requirements:  # noqa: SIM110  # a generator takes twice as long
            if not requirement.matches(labels):
                return False
        return True

    def __str__(self) -> str:
        """Return the requirements as kubectl writes them; ``all`` where there are none."""
        return ",".join(map(str, self.requirements)) or "all"


class SpreadConstraint(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``topologySpreadConstraints``.

    ``selector`` holds what ``matchLabelKeys`` adds already; None matches nothing. ``hard`` is
    ``DoNotSchedule``. The policies say whether nodes count that the pod's own node affinity, or its
    tolerations, keep it from.
    """

    topology_key: str
    max_skew: int = 1
    hard: bool = True
    selector: LabelSelector | None = None
    min_domains: int = 1
    honours_affinity: bool = True
    honours_taints: bool = False


class AffinityTerm(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """One term of pod affinity or anti-affinity: pods that match, and the topology in which they count.

    ``namespaces`` is never empty where ``namespace_selector`` is None: the pod's own namespace stands for
    none given. A namespace counts if it is named or the selector matches its labels. ``selector`` holds
    what ``matchLabelKeys`` and ``mismatchLabelKeys`` add; None matches nothing.
    """

    topology_key: str
    selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None


class WeightedAffinityTerm(msgspec.Struct, frozen=True, kw_only=True):
    """A preferred term; ``weight`` 1..100."""

    weight: int
    term: AffinityTerm


class PodAffinity(msgspec.Struct, frozen=True, kw_only=True):
    """The affinity, or the anti-affinity, of a pod to other pods."""

    required: tuple[AffinityTerm, ...] = ()
    preferred: tuple[WeightedAffinityTerm, ...] = ()
