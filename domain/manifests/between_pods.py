"""Read what a pod asks of other pods: topology spread, pod affinity and anti-affinity.

Sources: the types, defaults and validation of pods in Kubernetes 1.36, and how its API server puts
``matchLabelKeys`` and ``mismatchLabelKeys`` into selectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from domain.manifests.codes import TOO_MANY_ANTI_AFFINITY_KEYS
from domain.manifests.label_selectors import WireLabelSelector, read_label_selector, selector_of
from domain.model.errors import FieldError
from domain.model.limits import (
    anti_affinity_keys_per_pod_max,
    namespaces_per_term_max,
    pod_affinity_terms_max,
    requirements_per_selector_max,
    spread_constraints_per_pod_max,
)
from domain.model.pods import PodTemplate
from domain.model.selectors import (
    AffinityTerm,
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    SpreadConstraint,
    WeightedAffinityTerm,
)
from domain.model.validation import (
    check_choice,
    check_count,
    check_dns_label,
    check_label_key,
    check_range,
    shown,
)

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")
_INT32_MAX = 2**31 - 1


class WireAffinityTerm(msgspec.Struct, rename="camel", omit_defaults=True):
    """A term of pod affinity or anti-affinity as it is written."""

    label_selector: WireLabelSelector | None = None
    topology_key: str | None = None
    namespaces: list[str] | None = None
    namespace_selector: WireLabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WireWeightedTerm(msgspec.Struct, rename="camel", omit_defaults=True):
    """A preferred term of pod affinity or anti-affinity as it is written."""

    weight: int | None = None
    pod_affinity_term: WireAffinityTerm | None = None


class WirePodAffinity(msgspec.Struct, omit_defaults=True):
    """Pod affinity or anti-affinity as it is written."""

    required: list[WireAffinityTerm] | None = msgspec.field(default=None, name=_REQUIRED)
    preferred: list[WireWeightedTerm] | None = msgspec.field(default=None, name=_PREFERRED)


class WireSpread(msgspec.Struct, rename="camel", omit_defaults=True):
    """A topology spread constraint as it is written."""

    max_skew: int | None = None
    topology_key: str | None = None
    when_unsatisfiable: str | None = None
    label_selector: WireLabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class BetweenPods(msgspec.Struct, frozen=True, kw_only=True):
    """What the pods of one spec ask of other pods, until the labels and the namespace of each are known.

    ``label_keys`` are the keys of those labels that it depends on.
    """

    spreads: Sequence[WireSpread]
    affinity: WirePodAffinity
    anti_affinity: WirePodAffinity
    label_keys: tuple[str, ...]

    def complete_template(
        self, template: PodTemplate, labels: Mapping[str, str], namespace: str, path: str
    ) -> PodTemplate:
        """Return the template of a pod with these labels in this namespace; ``path`` is the spec's."""
        terms = (self.affinity.required, self.affinity.preferred)
        anti_terms = (self.anti_affinity.required, self.anti_affinity.preferred)
        count = sum(len(each or ()) for each in (*terms, *anti_terms))
        check_count(count, pod_affinity_terms_max, "pod_affinity_terms_max", f"{path}.affinity")
        pod = _Pod(labels, namespace)
        anti_affinity = _affinity(self.anti_affinity, pod, f"{path}.affinity.podAntiAffinity")
        unsupported = template.unsupported
        if anti_affinity is not None:
            keys = {term.topology_key for term in anti_affinity.required}
            if len(keys) > anti_affinity_keys_per_pod_max:  # each would be a rule for all pods it means
                unsupported = (*unsupported, TOO_MANY_ANTI_AFFINITY_KEYS)
                anti_affinity = msgspec.structs.replace(anti_affinity, required=())
        return msgspec.structs.replace(
            template,
            unsupported=unsupported,
            spread=read_spreads(self.spreads, labels, f"{path}.topologySpreadConstraints"),
            pod_affinity=_affinity(self.affinity, pod, f"{path}.affinity.podAffinity"),
            pod_anti_affinity=anti_affinity,
        )


def between_pods(
    spreads: Sequence[WireSpread] | None,
    affinity: WirePodAffinity | None,
    anti_affinity: WirePodAffinity | None,
) -> BetweenPods | None:
    """Return what a spec asks of other pods, None where it asks nothing, as most do."""
    if not spreads and affinity is None and anti_affinity is None:
        return None
    spreads, affinity, anti_affinity = (
        spreads or (),
        affinity or WirePodAffinity(),
        anti_affinity or WirePodAffinity(),
    )
    keys = {key for each in spreads for key in each.match_label_keys or ()}
    for term in (*_terms(affinity), *_terms(anti_affinity)):
        keys.update(term.match_label_keys or (), term.mismatch_label_keys or ())
    return BetweenPods(
        spreads=spreads, affinity=affinity, anti_affinity=anti_affinity, label_keys=tuple(sorted(keys))
    )


def _terms(affinity: WirePodAffinity) -> Iterator[WireAffinityTerm]:
    yield from affinity.required or ()
    for each in affinity.preferred or ():
        if each.pod_affinity_term is not None:
            yield each.pod_affinity_term


class _Pod(msgspec.Struct, frozen=True):
    """The pod that asks."""

    labels: Mapping[str, str]
    namespace: str


def read_spreads(
    wires: Sequence[WireSpread], labels: Mapping[str, str], path: str
) -> tuple[SpreadConstraint, ...]:
    """Return the constraints of a pod with these labels, or of any pod where none has ``matchLabelKeys``."""
    pod = _Pod(labels, "")
    check_count(len(wires), spread_constraints_per_pod_max, "spread_constraints_per_pod_max", path)
    found: dict[tuple[str, bool], SpreadConstraint] = {}
    for index, wire in enumerate(wires):
        each = _spread(wire, pod, f"{path}[{index}]")
        if found.setdefault((each.topology_key, each.hard), each) is not each:
            raise FieldError(
                f"{path}[{index}]",
                f"is the second with topologyKey {each.topology_key} and the same whenUnsatisfiable; "
                "allowed is one",
            )
    return tuple(found.values())


def _spread(wire: WireSpread, pod: _Pod, path: str) -> SpreadConstraint:
    action = check_choice(wire.when_unsatisfiable or "", _ACTIONS, f"{path}.whenUnsatisfiable")
    hard = action == "DoNotSchedule"
    if wire.min_domains is not None and not hard:
        raise FieldError(f"{path}.minDomains", f"must be absent when whenUnsatisfiable is {action}")
    policies = [
        check_choice(policy or default, _POLICIES, f"{path}.{field}") == "Honor"
        for field, policy, default in (
            ("nodeAffinityPolicy", wire.node_affinity_policy, "Honor"),
            ("nodeTaintsPolicy", wire.node_taints_policy, "Ignore"),
        )
    ]
    selector = read_label_selector(wire.label_selector, f"{path}.labelSelector")
    keys = _keys(wire.match_label_keys, selector, f"{path}.matchLabelKeys")
    return SpreadConstraint(
        topology_key=_topology_key(wire.topology_key, path),
        max_skew=check_range(wire.max_skew or 0, 1, _INT32_MAX, f"{path}.maxSkew"),
        hard=hard,
        selector=_with_keys(selector, pod, path, ("In", keys)),
        min_domains=1
        if wire.min_domains is None
        else check_range(wire.min_domains, 1, _INT32_MAX, f"{path}.minDomains"),
        honours_affinity=policies[0],
        honours_taints=policies[1],
    )


def _affinity(wire: WirePodAffinity, pod: _Pod, path: str) -> PodAffinity | None:
    if not wire.required and not wire.preferred:
        return None
    return PodAffinity(
        required=tuple(
            _term(each, pod, f"{path}.{_REQUIRED}[{index}]") for index, each in enumerate(wire.required or ())
        ),
        preferred=tuple(
            WeightedAffinityTerm(
                weight=check_range(each.weight or 0, 1, 100, f"{path}.{_PREFERRED}[{index}].weight"),
                term=_term(
                    each.pod_affinity_term or WireAffinityTerm(),
                    pod,
                    f"{path}.{_PREFERRED}[{index}].podAffinityTerm",
                ),
            )
            for index, each in enumerate(wire.preferred or ())
        ),
    )


def _term(wire: WireAffinityTerm, pod: _Pod, path: str) -> AffinityTerm:
    selector = read_label_selector(wire.label_selector, f"{path}.labelSelector")
    keys = _keys(wire.match_label_keys, selector, f"{path}.matchLabelKeys")
    other_keys = _keys(wire.mismatch_label_keys, selector, f"{path}.mismatchLabelKeys")
    for index, key in enumerate(other_keys):
        if key in keys:
            raise FieldError(f"{path}.mismatchLabelKeys[{index}]", f"{shown(key)} is in matchLabelKeys too")
    # An API server has put the keys in already when the pod was made, by the labels of then.
    done = {(each.operator, each.key) for each in (() if selector is None else selector.requirements)}
    asked = (("In", keys), ("NotIn", other_keys))
    left = [(operator, [key for key in of if (operator, key) not in done]) for operator, of in asked]
    names, at = wire.namespaces or [], f"{path}.namespaces"
    check_count(len(names), namespaces_per_term_max, "namespaces_per_term_max", at)
    namespaces = {check_dns_label(name, f"{at}[{index}]") for index, name in enumerate(names)}
    namespace_selector = read_label_selector(wire.namespace_selector, f"{path}.namespaceSelector")
    if not namespaces and namespace_selector is None:
        namespaces = {pod.namespace}
    return AffinityTerm(
        topology_key=_topology_key(wire.topology_key, path),
        selector=_with_keys(selector, pod, path, *left),
        namespaces=tuple(sorted(namespaces)),
        namespace_selector=namespace_selector,
    )


def _topology_key(key: str | None, path: str) -> str:
    if not key:
        raise FieldError(f"{path}.topologyKey", "is missing; allowed is the key of a node's label")
    return check_label_key(key, f"{path}.topologyKey")


def _keys(keys: list[str] | None, selector: LabelSelector | None, path: str) -> list[str]:
    if not keys:
        return []
    if selector is None:
        raise FieldError(path, "must be absent when labelSelector is")
    check_count(len(keys), requirements_per_selector_max, "requirements_per_selector_max", path)
    return [check_label_key(key, f"{path}[{index}]") for index, key in enumerate(keys)]


def _with_keys(
    selector: LabelSelector | None, pod: _Pod, path: str, *asked: tuple[str, Iterable[str]]
) -> LabelSelector | None:
    """Return a selector with what the pod's own labels add to it: nothing for a label that it lacks."""
    if selector is None:
        return None
    more = [
        LabelRequirement(key, operator, (pod.labels[key],))
        for operator, keys in asked
        for key in keys
        if key in pod.labels
    ]
    return selector_of(*selector.requirements, *more) if more else selector
