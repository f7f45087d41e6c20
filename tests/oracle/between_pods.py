"""The plain reading of what pods ask of one another: all placed pods and all nodes are looked at each time.

Nothing is counted ahead, cached or shared between pods. The rules are those of kube-scheduler 1.36
(PodTopologySpread, InterPodAffinity), in its whole-number arithmetic.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from domain.model.config import Namespace, Selecting
from domain.model.events import ConfigDeleted, ConfigUpserted
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec
from domain.model.selectors import (
    AffinityTerm,
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    SpreadConstraint,
)
from tests.oracle.rules import selects, tolerated

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REPELLING = ("NoSchedule", "NoExecute")
OWNERS = ("ReplicationController", "ReplicaSet", "StatefulSet")
SYSTEM_DEFAULTS = (
    SpreadConstraint(topology_key=HOSTNAME, max_skew=3, hard=False),
    SpreadConstraint(topology_key=ZONE, max_skew=5, hard=False),
)
Refused = tuple[str, bool]
"""The reason code, and whether evicting other pods cannot help."""


@dataclass
class Around:
    """Everything that a rule between pods may look at.

    ``pods`` are all pods on nodes that exist. ``namespaces`` holds the labels of each that is known, and
    ``selectors`` what a Service or an owner selects, by (kind, namespace, name).
    """

    nodes: Sequence[NodeSpec] = ()
    pods: Sequence[tuple[PodSpec, NodeSpec]] = ()
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)
    selectors: dict[tuple[str, str, str], LabelSelector | None] = field(default_factory=dict)

    def configure(self, event: ConfigUpserted | ConfigDeleted) -> None:
        """Note that an object came, changed or went."""
        key = (event.kind, event.namespace, event.name)
        match event:
            case ConfigUpserted(content=Namespace(labels=labels)):
                self.namespaces[event.name] = labels
            case ConfigUpserted(content=Selecting(selector=selector)):
                self.selectors[key] = selector
            case ConfigDeleted(kind="Namespace"):
                self.namespaces.pop(event.name, None)
            case ConfigDeleted():
                self.selectors.pop(key, None)


# -------------------------------------------------------------------------------------------- selectors


def met(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    """Say whether labels meet one demand."""
    if requirement.operator in ("In", "NotIn"):
        is_listed = requirement.key in labels and labels[requirement.key] in requirement.values
        return is_listed if requirement.operator == "In" else not is_listed
    return (requirement.key in labels) == (requirement.operator == "Exists")


def matched(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Say whether a selector matches labels; no selector matches nothing."""
    return selector is not None and all(met(each, labels) for each in selector.requirements)


# ------------------------------------------------------------------------------------- topology spread


@dataclass
class Spread:
    """One constraint as it holds for a pod: default constraints select by what selects the pod itself.

    ``controller_uid`` stands for the selector of an owner whose object is not known.
    """

    constraint: SpreadConstraint
    selector: LabelSelector | None
    controller_uid: str = ""

    def matches(self, pod: PodSpec) -> bool:
        if self.controller_uid and (pod.controller is None or pod.controller.uid != self.controller_uid):
            return False
        return matched(self.selector, pod.labels)

    def selects_all(self) -> bool:
        return self.selector is not None and not self.selector.requirements and not self.controller_uid


def spreads_of(pod: PodSpec, args: Mapping[str, Any], around: Around, *, hard: bool) -> list[Spread]:
    """Return the hard or the soft constraints of a pod: its own, or the default ones if it has none."""
    own = pod.template.spread
    if own:
        return [Spread(each, each.selector) for each in own if each.hard == hard]
    defaults = [each for each in default_constraints(args) if each.hard == hard]
    selector, uid = default_selector(pod, around)
    if not selector.requirements and not uid:
        return []
    return [Spread(each, selector, uid) for each in defaults]


def default_constraints(args: Mapping[str, Any]) -> Sequence[SpreadConstraint]:
    if args.get("defaultingType", "System") == "System":
        return SYSTEM_DEFAULTS
    return [
        SpreadConstraint(
            topology_key=each["topologyKey"],
            max_skew=each["maxSkew"],
            hard=each["whenUnsatisfiable"] == "DoNotSchedule",
        )
        for each in args.get("defaultConstraints") or ()
    ]


def default_selector(pod: PodSpec, around: Around) -> tuple[LabelSelector, str]:
    """Return what the Services and the owner of a pod select by, and the owner's uid if it is not known."""
    requirements: list[LabelRequirement] = []
    for (kind, namespace, _), selector in around.selectors.items():
        if (kind, namespace) == ("Service", pod.namespace) and selector and matched(selector, pod.labels):
            requirements += selector.requirements
    owner = pod.controller
    if owner is None or owner.kind not in OWNERS:
        return LabelSelector(tuple(requirements)), ""
    key = (owner.kind, pod.namespace, owner.name)
    if key not in around.selectors:
        return LabelSelector(tuple(requirements)), owner.uid
    selector = around.selectors[key]
    theirs = selector.requirements if selector is not None else ()
    if owner.kind == "ReplicationController":  # labels that are merged: its own win
        requirements = [each for each in requirements if each.key not in {own.key for own in theirs}]
    return LabelSelector((*requirements, *theirs)), ""


def is_counted(constraint: SpreadConstraint, pod: PodSpec, node: NodeSpec) -> bool:
    """Say whether a node counts: the policies ask for the pod's own affinity and tolerations."""
    if constraint.honours_affinity and not selects(pod.template, node):
        return False
    repelling = [taint for taint in node.taints if taint.effect in REPELLING]
    return not constraint.honours_taints or all(tolerated(t, pod.template.tolerations) for t in repelling)


def counts_on(spread: Spread, pod: PodSpec, around: Around) -> Counter[str]:
    """Count the pods on each node that a constraint selects: one that selects everything counts nobody."""
    if spread.selects_all():
        return Counter()
    return Counter(
        on.name
        for other, on in around.pods
        if other.namespace == pod.namespace and not other.terminating and spread.matches(other)
    )


def has_keys(spreads: Sequence[Spread], node: NodeSpec) -> bool:
    return all(each.constraint.topology_key in node.labels for each in spreads)


def spread_refusals(pod: PodSpec, args: Mapping[str, Any], around: Around) -> dict[str, Refused]:
    """Return the nodes that the hard constraints refuse."""
    spreads = spreads_of(pod, args, around, hard=True)
    tables: list[tuple[Spread, dict[str, int], int]] = []
    for spread in spreads:
        constraint, counts = spread.constraint, dict[str, int]()
        on_nodes = counts_on(spread, pod, around)
        for node in around.nodes:
            if has_keys(spreads, node) and is_counted(constraint, pod, node):
                value = node.labels[constraint.topology_key]
                counts[value] = counts.get(value, 0) + on_nodes[node.name]
        enough = counts and len(counts) >= constraint.min_domains
        tables.append((spread, counts, min(counts.values()) if enough else 0))
    refused: dict[str, Refused] = {}
    for node in around.nodes:
        for spread, counts, least in tables:
            if spread.constraint.topology_key not in node.labels:
                refused[node.name] = ("topology-spread-missing-label", True)
                break
            value = node.labels[spread.constraint.topology_key]
            if counts.get(value, 0) + spread.matches(pod) - least > spread.constraint.max_skew:
                refused[node.name] = ("topology-spread", False)
                break
    return refused


def spread_scores(
    pod: PodSpec, args: Mapping[str, Any], around: Around, feasible: Sequence[NodeSpec]
) -> dict[str, int]:
    """Return the score of each feasible node; nothing where the pod has no soft constraint."""
    spreads = spreads_of(pod, args, around, hard=False)
    if not spreads:
        return {}
    requires_all = bool(pod.template.spread) or args.get("defaultingType", "System") != "System"
    rated = [node for node in feasible if not requires_all or has_keys(spreads, node)]
    raw = {node.name: 0.0 for node in rated}
    for spread in spreads:
        key = spread.constraint.topology_key
        size = len(rated) if key == HOSTNAME else len({node.labels.get(key, "") for node in rated})
        weight = math.log(size + 2)
        on_nodes, by_value = counts_on(spread, pod, around), Counter[str]()
        for node in around.nodes:
            counts = not requires_all or has_keys(spreads, node)
            if counts and is_counted(spread.constraint, pod, node):
                by_value[node.labels.get(key, "")] += on_nodes[node.name]
        for node in rated:
            if key in node.labels:
                count = on_nodes[node.name] if key == HOSTNAME else by_value[node.labels[key]]
                raw[node.name] += count * weight + (spread.constraint.max_skew - 1)
    whole = {name: rounded(value) for name, value in raw.items()}
    high, low = max(whole.values(), default=0), min(whole.values(), default=0)
    scores = dict.fromkeys((node.name for node in feasible), 0)
    return scores | {
        name: 100 * (high + low - value) // high if high else 100 for name, value in whole.items()
    }


def rounded(value: float) -> int:
    """Round to the nearest whole number, a half away from zero; ``value`` is not below zero."""
    whole = math.floor(value)
    return whole + (value - whole >= 0.5)


# ---------------------------------------------------------------------------------------- pod affinity


def selects_pod(term: AffinityTerm, other: PodSpec, around: Around) -> bool:
    """Say whether a term of the incoming pod selects a pod.

    A selector sees known namespaces only; but upstream asks it about no labels, too, whatever the namespace.
    """
    labels, of_namespace = around.namespaces.get(other.namespace), term.namespace_selector
    by_label = matched(of_namespace, {}) or (labels is not None and matched(of_namespace, labels))
    return (by_label or other.namespace in term.namespaces) and matched(term.selector, other.labels)


def selects_incoming(term: AffinityTerm, pod: PodSpec, around: Around) -> bool:
    """Say whether a term of a placed pod selects the incoming pod; an unknown namespace has no labels."""
    by_label = matched(term.namespace_selector, around.namespaces.get(pod.namespace, {}))
    return (by_label or pod.namespace in term.namespaces) and matched(term.selector, pod.labels)


def affinity_of(pod: PodSpec) -> PodAffinity:
    return pod.template.pod_affinity or PodAffinity()


def anti_affinity_of(pod: PodSpec) -> PodAffinity:
    return pod.template.pod_anti_affinity or PodAffinity()


def affinity_refusals(pod: PodSpec, args: Mapping[str, Any], around: Around) -> dict[str, Refused]:
    """Return the nodes that required terms refuse: the pod's own, and those of the pods that are placed."""
    terms = affinity_of(pod).required
    wanted = [on for o, on in around.pods if all(selects_pod(term, o, around) for term in terms)]
    beside = {(t.topology_key, on.labels.get(t.topology_key)) for t in terms for on in wanted}
    is_first = all(value is None for _, value in beside)
    is_first = is_first and all(selects_pod(term, pod, around) for term in terms)
    own = {
        (term.topology_key, on.labels.get(term.topology_key))
        for term in anti_affinity_of(pod).required
        for other, on in around.pods
        if selects_pod(term, other, around)
    }
    theirs = {
        (term.topology_key, on.labels.get(term.topology_key))
        for other, on in around.pods
        for term in anti_affinity_of(other).required
        if selects_incoming(term, pod, around)
    }
    refused: dict[str, Refused] = {}
    for node in around.nodes:
        domains = set(node.labels.items())
        needed = {(term.topology_key, node.labels.get(term.topology_key)) for term in terms}
        if not needed <= (domains if is_first else domains & beside):
            refused[node.name] = ("pod-affinity", True)
        elif own & domains:
            refused[node.name] = ("pod-anti-affinity", False)
        elif theirs & domains:
            refused[node.name] = ("existing-pod-anti-affinity", False)
    return refused


def affinity_scores(
    pod: PodSpec, args: Mapping[str, Any], around: Around, feasible: Sequence[NodeSpec]
) -> dict[str, int]:
    """Return the score of each feasible node by preferred terms, the pod's own and those of placed pods."""
    own = affinity_of(pod).preferred or anti_affinity_of(pod).preferred
    if args.get("ignorePreferredTermsOfExistingPods", False) and not own:
        return {}
    raw = dict.fromkeys((node.name for node in feasible), 0)
    sums = Counter[tuple[str, str]]()
    for other, on in around.pods:
        for key, weight in pulls(pod, other, args.get("hardPodAffinityWeight", 1), around):
            if key in on.labels:
                sums[key, on.labels[key]] += weight
    for node in feasible:
        raw[node.name] = sum(sums[domain] for domain in node.labels.items())
    high, low = max(raw.values(), default=0), min(raw.values(), default=0)
    if high == low:
        return dict.fromkeys(raw, 0)
    return {name: int(100.0 * (float(value - low) / float(high - low))) for name, value in raw.items()}


def pulls(pod: PodSpec, other: PodSpec, hard_weight: int, around: Around) -> Iterable[tuple[str, int]]:
    """Return by how much a placed pod draws the incoming one into its domains, by topology key."""
    for sign, own in ((1, affinity_of(pod)), (-1, anti_affinity_of(pod))):
        for each in own.preferred:
            if selects_pod(each.term, other, around):
                yield each.term.topology_key, sign * each.weight
    for sign, theirs in ((1, affinity_of(other)), (-1, anti_affinity_of(other))):
        for each in theirs.preferred:
            if selects_incoming(each.term, pod, around):
                yield each.term.topology_key, sign * each.weight
    for term in affinity_of(other).required:
        if selects_incoming(term, pod, around):
            yield term.topology_key, hard_weight
