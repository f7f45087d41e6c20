"""Terms of affinity to other pods, as the filter and the score InterPodAffinity read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from domain.model.errors import FieldError
from domain.model.marks import TermMark
from domain.model.selectors import AffinityTerm
from domain.model.validation import shown
from domain.plugins.arguments import Arguments
from domain.plugins.counting import Incoming
from domain.plugins.weighers import Match, Weigher

_WEIGHT_MAX = 100


class AffinityArguments(NamedTuple):
    """``hardPodAffinityWeight`` and ``ignorePreferredTermsOfExistingPods``."""

    hard_weight: int
    ignores_preferred: bool


def read_arguments(args: Mapping[str, Any], path: str) -> AffinityArguments:
    """Return the arguments of the plugin.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    given = Arguments(args, path, ("hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods"))
    weight = given.number("hardPodAffinityWeight", 1.0, 0, _WEIGHT_MAX)
    if not weight.is_integer():
        raise FieldError(given.at("hardPodAffinityWeight"), f"{weight:g} is not a whole number")
    ignores = given.raw("ignorePreferredTermsOfExistingPods")
    if ignores is not None and not isinstance(ignores, bool):
        at = given.at("ignorePreferredTermsOfExistingPods")
        raise FieldError(at, f"expected true or false, got {shown(ignores)}")
    return AffinityArguments(int(weight), bool(ignores))


def match_of(term: AffinityTerm) -> Match | None:
    """Return the pods that a term means; None: it has no selector, and means none."""
    if term.selector is None:
        return None
    return Match(
        selector=term.selector, namespaces=term.namespaces, namespace_selector=term.namespace_selector
    )


def terms_of_others(pod: Incoming, weight_of: Callable[[TermMark], int]) -> list[tuple[TermMark, int]]:
    """Return the distinct terms that mean a pod, of the pods that are placed or waiting, with their weights.

    Those of weight 0 are left out: whether they mean the pod is not asked, since very many may come near it.
    They look at the labels of the pod's Namespace object. Without one it has none, so ``NotIn`` matches.
    """
    labels_of_namespace = pod.pods.namespaces.get(pod.namespace, {})
    return [
        (mark, weight)
        for mark in pod.pods.terms_near(pod.namespace, pod.labels)
        if (weight := weight_of(mark))
        and (mark.term.selector is not None and mark.term.selector.matches(pod.labels))
        and (
            pod.namespace in mark.term.namespaces
            or (
                mark.term.namespace_selector is not None
                and mark.term.namespace_selector.matches(labels_of_namespace)
            )
        )
    ]


def weighers_by_key(
    own: Iterable[tuple[AffinityTerm, int]], of_others: Iterable[tuple[TermMark, int]]
) -> dict[str, Weigher]:
    """Return how much a placed pod counts in its domain of each topology key.

    A pod counts the weight of each of the ``own`` terms that mean it, and of each of the terms ``of_others``
    that it carries.
    """
    matches: dict[str, list[tuple[tuple[Match, ...], int]]] = {}
    marks: dict[str, list[tuple[TermMark, int]]] = {}
    for term, weight in own:
        match = match_of(term)
        if match is not None:
            matches.setdefault(term.topology_key, []).append(((match,), weight))
    for mark, weight in of_others:
        marks.setdefault(mark.term.topology_key, []).append((mark, weight))
    return {
        key: Weigher(matches=tuple(matches.get(key, ())), marks=frozenset(marks.get(key, ())))
        for key in sorted({*matches, *marks})
    }
