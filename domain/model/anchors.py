"""Anchors: what a pod must have so that a selector could match it, for finding one by the other quickly.

An anchor is a mark that a pod carries, or (namespace, label key, label value). ``EVERY`` stands for any
namespace, and an empty key for any labels.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

from domain.model.selectors import AffinityTerm, LabelSelector

EVERY = "*"
"""Any namespace; no namespace has this name."""


def anchors_of_pod(namespace: str, labels: Mapping[str, str]) -> Iterator[Hashable]:
    """Yield every anchor that a pod has by its namespace and labels."""
    for each in (namespace, EVERY):
        yield each, "", ""
        for key, value in labels.items():
            yield each, key, value


def anchors_of_selector(namespaces: Iterable[str], selector: LabelSelector) -> Iterator[Hashable]:
    """Yield anchors of which every pod has one that a selector matches in some namespaces."""
    pairs = [("", "")]
    for each in selector.requirements:
        if each.operator == "In":
            pairs = [(each.key, value) for value in each.values]
            break
    for namespace in namespaces:
        for key, value in pairs:
            yield namespace, key, value


def anchors_of_term(term: AffinityTerm) -> Iterator[Hashable]:
    """Yield anchors of which every pod has one that a term matches."""
    if term.selector is not None:
        namespaces = term.namespaces if term.namespace_selector is None else (EVERY,)
        yield from anchors_of_selector(namespaces, term.selector)
