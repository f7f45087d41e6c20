"""Would the random crowds notice a rule between pods that is read wrongly? Each wrong reading is tried."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from types import ModuleType

import pytest

from domain.model.selectors import (
    AffinityTerm,
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    WeightedAffinityTerm,
)
from tests.oracle import between_pods
from tests.oracle.between_pods import HOSTNAME, Around, affinity_scores
from tests.oracle.crowds import Crowd, Size
from tests.oracle.placing import Look, Oracle, OraclePod
from tests.values import node, pod, template

SEEDS = range(1, 500)

WRONG = {
    "minimum over all domains": (
        "has_keys(spreads, node) and is_counted(constraint, pod, node)",
        "has_keys(spreads, node)",
    ),
    "minimum over nodes without the other keys": (
        "if has_keys(spreads, node) and is_counted(c",
        "if constraint.topology_key in node.labels and is_counted(c",
    ),
    "minimum over domains with pods": (
        "min(counts.values()) if enough",
        "min(filter(None, counts.values()), default=0) if enough",
    ),
    "minDomains not asked": (
        "enough = counts and len(counts) >= constraint.min_domains",
        "enough = bool(counts)",
    ),
    "self not counted": (
        "counts.get(value, 0) + spread.matches(pod) - least",
        "counts.get(value, 0) - least",
    ),
    "self always counted": (
        "counts.get(value, 0) + spread.matches(pod) - least",
        "counts.get(value, 0) + 1 - least",
    ),
    "a missing key can be cured": (
        '("topology-spread-missing-label", True)',
        '("topology-spread-missing-label", False)',
    ),
    "a missing key passes": (
        'refused[node.name] = ("topology-spread-missing-label", True)\n                break',
        "continue",
    ),
    "spread over all namespaces": (
        "if other.namespace == pod.namespace and not other.terminating",
        "if not other.terminating",
    ),
    "spread counts terminating pods": ("and not other.terminating and", "and"),
    "spread counts pods by {}": ("if spread.selects_all():", "if False:"),
    "affinity policy ignored": ("if constraint.honours_affinity and", "if False and"),
    "affinity policy always honoured": ("if constraint.honours_affinity and", "if"),
    "taint policy ignored": ("return not constraint.honours_taints or", "return True or"),
    "taint policy always honoured": ("return not constraint.honours_taints or", "return"),
    "defaults beside own constraints": (
        "return [Spread(each, each.selector) for each in own if each.hard == hard]",
        "own = [Spread(each, each.selector) for each in own if each.hard == hard]\n    if own: return own",
    ),
    "services not looked at": ('("Service", pod.namespace)', '("Services", pod.namespace)'),
    "the owner not looked at": ("if owner is None or owner.kind not in OWNERS:", "if True:"),
    "the owner of every kind": ("if owner is None or owner.kind not in OWNERS:", "if owner is None:"),
    "an unknown owner selects nothing": (
        "return LabelSelector(tuple(requirements)), owner.uid",
        'return LabelSelector(tuple(requirements)), ""',
    ),
    "system defaults need all keys": (
        "bool(pod.template.spread) or args",
        "bool(pod.template.spread) or True or args",
    ),
    "listed defaults need no keys": (
        """bool(pod.template.spread) or args.get("defaultingType", "System") != "System\"""",
        "bool(pod.template.spread)",
    ),
    "a missing zone is no domain": (
        '{node.labels.get(key, "") for node in rated}',
        "{node.labels[key] for node in rated if key in node.labels}",
    ),
    "pods without a zone in no zone": (
        'by_value[node.labels.get(key, "")] +=',
        "by_value[node.labels.get(key)] +=",
    ),
    "a missing zone apart from the empty one": (
        '{node.labels.get(key, "") for node in rated}',
        "{node.labels.get(key) for node in rated}",
    ),
    "size of domains of all nodes": (
        'len({node.labels.get(key, "") for node in rated})',
        'len({node.labels.get(key, "") for node in around.nodes})',
    ),
    "hostnames counted as values": ("len(rated) if key == HOSTNAME else", ""),
    "ln(size + 1)": ("math.log(size + 2)", "math.log(size + 1)"),
    "hostname counts by the policies": (
        "count = on_nodes[node.name] if key == HOSTNAME else by_value[node.labels[key]]",
        "count = by_value[node.labels[key]]",
    ),
    "zone counts of feasible nodes only": (
        "counts = not requires_all or has_keys(spreads, node)",
        "counts = node in rated",
    ),
    "zone counts from nodes without all keys": (
        "counts = not requires_all or has_keys(spreads, node)",
        "counts = True",
    ),
    "maxSkew not in the score": ("(spread.constraint.max_skew - 1)", "0"),
    "raw spread cut off": ("return whole + (value - whole >= 0.5)", "return whole"),
    "raw spread not rounded": ("whole = {name: rounded(value)", "whole = {name: value"),
    "a node without a key in the extremes": (
        "whole = {name: rounded(value) for name, value in raw.items()}",
        "whole = {n.name: rounded(raw.get(n.name, 0)) for n in feasible}",
    ),
    "all zero scores 0": ("if high else 100", "if high else 0"),
    "own terms see known namespaces only": ("matched(of_namespace, {}) or ", ""),
    "own terms see no known namespace": (" or (labels is not None and matched(of_namespace, labels))", ""),
    "placed terms see known namespaces only": (
        "by_label = matched(term.namespace_selector, around.namespaces.get(pod",
        "by_label = pod.namespace in around.namespaces and matched(\n"
        "        term.namespace_selector, around.namespaces.get(pod",
    ),
    "own terms ignore namespaces": ("(by_label or other.namespace in term.namespaces) and", ""),
    "placed terms ignore namespaces": ("(by_label or pod.namespace in term.namespaces) and", ""),
    "affinity leaves terminating pods out": (
        "wanted = [on for o, on in around.pods if all(",
        "wanted = [on for o, on in around.pods if not o.terminating and all(",
    ),
    "anti-affinity of terminating pods left out": (
        "anti_affinity_of(other).required\n        if",
        "anti_affinity_of(other).required\n        if not other.terminating and",
    ),
    "each affinity term by another pod": (
        "if all(selects_pod(term, o, around) for term in terms)]",
        "if any(selects_pod(term, o, around) for term in terms)]",
    ),
    "no bootstrap": ("is_first = all(value is None for _, value in beside)", "is_first = False"),
    "bootstrap where a match is elsewhere": (
        "is_first = all(value is None for _, value in beside)",
        "is_first = True",
    ),
    "bootstrap only without any match": (
        "is_first = all(value is None for _, value in beside)",
        "is_first = not wanted",
    ),
    "bootstrap of a pod that is no match": (
        "is_first = is_first and all(selects_pod(term, pod, around) for term in terms)",
        "is_first = is_first and bool(terms)",
    ),
    "affinity can be cured": ('("pod-affinity", True)', '("pod-affinity", False)'),
    "own anti-affinity not asked": ("elif own & domains:", "elif False:"),
    "placed anti-affinity not asked": ("elif theirs & domains:", "elif False:"),
    "placed anti-affinity asked first": (
        "elif own & domains:",
        "elif own & domains and not theirs & domains:",
    ),
    "extremes with a baseline of 0": (
        "    if high == low:",
        "    high, low = max(high, 0), min(low, 0)\n    if high == low:",
    ),
    "equal sums score 100": ("return dict.fromkeys(raw, 0)", "return dict.fromkeys(raw, 100)"),
    "placed affinity weighs 1": ("yield term.topology_key, hard_weight", "yield term.topology_key, 1"),
    "placed affinity weighs nothing": ("yield term.topology_key, hard_weight", "yield term.topology_key, 0"),
    "preferred terms of placed pods ignored": (
        "for sign, theirs in ((1, affinity_of(other)), (-1, anti_affinity_of(other))):",
        "for sign, theirs in ():",
    ),
    "preferred terms of placed pods always": (
        'args.get("ignorePreferredTermsOfExistingPods", False) and not own',
        "False",
    ),
    "anti-affinity attracts": (
        "for sign, own in ((1, affinity_of(pod)), (-1, anti",
        "for sign, own in ((1, affinity_of(pod)), (1, anti",
    ),
    "NotIn needs the key": ("else not is_listed", "else not is_listed and requirement.key in labels"),
    "no selector matches everything": (
        "return selector is not None and all(",
        "return selector is None or all(",
    ),
}


def read_wrongly(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the rules between pods with one of them changed."""
    source = Path(between_pods.__file__).read_text()
    assert old in source, f"no rule says: {old}"
    module = ModuleType("tests.oracle.between_pods_wrong")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(source.replace(old, new), module.__dict__)
    return module


def seen(look: Look) -> tuple[object, ...]:
    """Return what the comparison with the scheduler compares of a look."""
    return look.node, look.score, look.candidates, look.reasons, look.unresolvable_count, look.hopeless


def small(seed: int) -> Size:
    """Return a crowd in which a few pods make a difference."""
    return Size(seed=seed, nodes=2 + seed % 9, shapes=1 + seed % 4, pods=14, cycles=2, changes=6)


class Doubting(Oracle):
    """Looks at each pod by all wrong readings too, and strikes out those that would have been noticed."""

    def __init__(self, crowd: Crowd, wrong: dict[str, ModuleType]) -> None:
        super().__init__(crowd.profiles, seed=crowd.size.seed)
        self.wrong = wrong

    def look(self, pod: OraclePod, among: Collection[str] | None = None) -> Look:
        found = super().look(pod, among)
        for name, module in list(self.wrong.items()):
            self.rules = module
            if seen(super().look(pod, among)) != seen(found):
                del self.wrong[name]
        self.rules = between_pods
        return found


@pytest.mark.wide
def test_every_wrong_reading_of_a_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {name: read_wrongly(*change, monkeypatch) for name, change in WRONG.items()}
    for seed in SEEDS:
        crowd = Crowd(small(seed))
        oracle = Doubting(crowd, wrong)
        for events in crowd.history():
            for event in events:
                oracle.take(event)
            for look in oracle.cycle():
                if look.node:
                    crowd.bind(look.pod.key, look.node)
        if not wrong:
            return
    assert not wrong


def test_a_score_is_divided_before_it_is_multiplied() -> None:
    """As kube-scheduler does: of 29 in 100 it makes 28, since 0.29 is a little less in binary."""
    nodes = [node(name, labels={HOSTNAME: name}) for name in ("a", "b", "c")]
    web = LabelSelector((LabelRequirement("app", "Exists"),))
    here = AffinityTerm(topology_key=HOSTNAME, selector=web, namespaces=("default",))
    drawing = [
        template(pod_affinity=PodAffinity(preferred=(WeightedAffinityTerm(weight=weight, term=here),)))
        for weight in (29, 100)
    ]
    placed = [(pod(f"p{i}", each), nodes[i]) for i, each in enumerate(drawing)]
    asked = pod("asked", labels={"app": "web"})
    assert affinity_scores(asked, {}, Around(nodes, placed), nodes) == {"a": 28, "b": 100, "c": 0}
