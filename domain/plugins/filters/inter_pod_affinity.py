"""InterPodAffinity: put pods near those that they need, and away from those that they must avoid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from domain.kernels import arrays as kernel
from domain.model.marks import Carries
from domain.model.selectors import AffinityTerm, LabelSelector
from domain.plugins.affinity_terms import match_of, read_arguments, terms_of_others, weighers_by_key
from domain.plugins.base import Reason
from domain.plugins.counting import CounterSpec, CountFilter, Incoming, Rule, selector_text
from domain.plugins.weighers import Weigher

_SELECTORS_SHOWN_MAX = 8
_AFFINITY = Reason("pod-affinity", unresolvable=True)
_OWN_ANTI = Reason("pod-anti-affinity", unresolvable=False)
_OTHERS_ANTI = Reason("existing-pod-anti-affinity", unresolvable=False)


class InterPodAffinity(CountFilter):
    """Refuse a node by required affinity and anti-affinity to other pods, the pod's own and theirs.

    *Affinity*: the node has all topology keys of the pod's terms, and in its domain of each key runs a pod
    that all of the terms match. Where none runs on any node that has one of the keys, a pod that its own
    terms match passes: the first of its kind. *Own anti-affinity*: in none of the node's domains runs a pod
    that a term matches. *Anti-affinity of others*: in none of the node's domains runs a pod with a term that
    matches this pod. A node without the key of a term of anti-affinity passes. Pods that are being deleted
    count.

    Arguments: those of the score, which the filter does not need.
    Reason codes: ``pod-affinity`` (evicting pods cannot help), ``pod-anti-affinity`` and
    ``existing-pod-anti-affinity`` (evicting pods could help); the first that holds, in this order.
    Source: kube-scheduler plugin InterPodAffinity.
    """

    name: ClassVar[str] = "InterPodAffinity"
    reads: ClassVar[frozenset[str]] = frozenset({"pod_affinity", "pod_anti_affinity"})
    phrases: ClassVar[Mapping[str, str]] = {
        "pod-affinity": "are not near the pods that it needs",
        "pod-anti-affinity": "are near pods that it must avoid",
        "existing-pod-anti-affinity": "are near pods that must avoid it",
    }

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        read_arguments(args, path)

    def rules(self, pod: Incoming) -> list[Rule]:
        """See ``CountFilter``: one per topology key of each kind of term."""
        return [*_needed(pod), *_own_anti(pod), *_anti_of_others(pod)]


def _needed(pod: Incoming) -> list[Rule]:
    affinity = pod.template.pod_affinity
    terms = () if affinity is None else affinity.required
    found = [match_of(term) for term in terms]
    matches = tuple(match for match in found if match is not None)
    has_all = len(matches) == len(terms) > 0  # a term without a selector matches nothing
    bootstraps = has_all and all(match.matches(pod, pod.pods.namespaces) for match in matches)
    weigher = Weigher(matches=((matches, 1),) if has_all else ())
    return [
        Rule(
            kernel.NEEDED,
            CounterSpec(key, weigher),
            1,
            _AFFINITY,
            missing=_AFFINITY,
            bootstraps=bootstraps,
            text=_text(key, terms),
        )
        for key in sorted({term.topology_key for term in terms})
    ]


def _own_anti(pod: Incoming) -> list[Rule]:
    affinity = pod.template.pod_anti_affinity
    terms = () if affinity is None else affinity.required
    weighers = weighers_by_key([(term, 1) for term in terms], ())
    return [_none_of(key, weigher, terms, _OWN_ANTI) for key, weigher in weighers.items()]


def _anti_of_others(pod: Incoming) -> list[Rule]:
    marks = terms_of_others(pod, lambda mark: mark.kind == Carries.ANTI_AFFINITY)
    weighers = weighers_by_key((), marks)
    terms = [mark.term for mark, _ in marks]
    # A reader of this pod need not be allowed to see what pods of other namespaces ask for.
    of_its_own = [term for term in terms if term.namespaces == (pod.namespace,)]
    shown = of_its_own if len(of_its_own) == len(terms) else []
    return [_none_of(key, weigher, shown, _OTHERS_ANTI) for key, weigher in weighers.items()]


def _none_of(key: str, weigher: Weigher, terms: Iterable[AffinityTerm], reason: Reason) -> Rule:
    return Rule(kernel.AT_MOST, CounterSpec(key, weigher), 0, reason, text=_text(key, terms))


def _text(key: str, terms: Iterable[AffinityTerm]) -> str:
    """Return the topology key and the selectors of its terms, where they are few: all pods may have some."""
    selectors = set[LabelSelector | None]()
    for term in terms:
        if term.topology_key == key:
            selectors.add(term.selector)
        if len(selectors) > _SELECTORS_SHOWN_MAX:
            return key
    if not selectors:
        return key
    return f"{key} {' or '.join(sorted(selector_text(each) for each in selectors))}"
