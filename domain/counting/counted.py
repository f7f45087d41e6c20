"""What a group asks of other pods: the rules and values of its plugins, written for the placing kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import and_, itemgetter
from typing import NamedTuple

import msgspec

from domain.kernels import arrays as kernel
from domain.model.limits import rules_per_pod_max, values_per_pod_max
from domain.model.marks import MasterMark, terms_of
from domain.model.pods import PodTemplate, is_master
from domain.plugins.base import Reason
from domain.plugins.counting import CounterSpec, Incoming, Rule, Value
from domain.plugins.registry import ProfilePlan
from domain.plugins.weighers import NamespaceLabels, Weigher
from domain.state.cluster import ClusterState
from domain.state.pod_classes import PodClass

assert 2 * rules_per_pod_max == kernel.RULES_MAX  # each once more where pods with nominated nodes count
assert values_per_pod_max == kernel.VALUES_MAX

_TOO_MANY = Reason("too-many-rules", unresolvable=True)
PROMISED = ", counting pods to which a node is promised"
"""Ends the text of a rule that counts pods with nominated nodes, too."""

_NO_KEY = "berth.io/none"
_TOO_WIDE = Reason("too-many-wide-terms", unresolvable=True)


class PodsKnown:
    """What plugins may ask of all pods and of the objects that select them: see ``PodsSeen``."""

    def __init__(self, state: ClusterState) -> None:
        self._index = state.index
        self.terms_near = state.index.terms_near
        self.pods_with = state.index.pods_with
        self.admits = state.index.admits
        self.services = state.config.selectors.services
        self.owner = state.config.selectors.owner

    @property
    def version(self) -> int:
        """See ``PodsSeen``."""
        return self._index.version

    def version_for(self, template: PodTemplate, pod_class: PodClass) -> tuple[int, int]:
        """Return what moves when a pod's rules may be others: those of masters depend on how many exist."""
        masters = self.pods_with(MasterMark(template.cluster)) if is_master(template) else 0
        return self._index.version_for(pod_class), masters

    @property
    def namespaces(self) -> NamespaceLabels:
        """Labels of Namespace objects."""
        return self._index.namespaces


class Counted(NamedTuple):
    """The rules of a group, each with the position of its filter, and the values per score by counts."""

    rules: list[tuple[int, Rule]]
    scores: list[list[Value]]
    is_cut: bool = False  # what is left of too much, as far as nodes have the topology keys now

    @property
    def counts_nominated(self) -> bool:
        """Whether a rule counts pods with nominated nodes."""
        return any(rule.counter.nominated for _, rule in self.rules)

    @property
    def placed(self) -> list[Rule]:
        """The rules over placed pods alone, in order."""
        return [rule for _, rule in self.rules if not rule.counter.nominated]

    def specs(self) -> Iterator[CounterSpec]:
        """Yield the counter of each rule, then of each value."""
        yield from (rule.counter for _, rule in self.rules)
        yield from (value.counter for values in self.scores for value in values)


NOTHING = Counted([], [])
"""What most pods ask of others."""


def counted_of(plan: ProfilePlan, pod: Incoming, is_known: Callable[[str], bool] | None = None) -> Counted:
    """Ask the plugins of a profile what a pod asks of others.

    Where that is more than the kernel takes, nothing is left out that could matter to a hard demand: rules
    that refuse nothing, as no node has their topology key (``is_known`` says which keys nodes have), and
    values that only other pods ask for. A pod that still asks for too much is refused everywhere: to leave
    more out would place it where it must not be.
    """
    if not all(pod.pods.admits(pod.namespace, mark) for mark in terms_of(pod.template)):
        return _nowhere(_TOO_WIDE)
    rules = [(position, rule) for position, plugin in plan.count_filters for rule in plugin.rules(pod)]
    scores = [use.plugin.values(pod) for use in plan.count_scores]
    if not any(scores):
        scores = []
    if not rules and not scores:
        return NOTHING
    found = Counted(rules, scores)
    if not _is_too_much(found):
        return found
    found = _cut(found, is_known or (lambda _: True))
    if _is_too_much(found):
        return _nowhere(_TOO_MANY)
    return found


def with_nominated(counted: Counted, weighs: Callable[[Weigher], bool]) -> Counted:
    """Add to the rules of a group the same rules as if pods were on their nominated nodes.

    ``weighs`` says whether any of those pods counts for a weigher; rules that count none are not doubled. A
    node has to pass both: a nomination may end, and is not relied upon. Of a need only the exception
    for the first of its kind can differ, and it looks at all needs of a pod.
    Source: kube-scheduler, RunFilterPluginsWithNominatedPods.
    """
    doubled = [weighs(rule.counter.weigher) for _, rule in counted.rules]
    if not any(doubled):
        return counted
    needs = [rule.kind == kernel.NEEDED and rule.bootstraps for _, rule in counted.rules]
    is_needed = any(map(and_, doubled, needs))
    more = [
        (position, _for_nominated(rule))
        for (position, rule), is_doubled, needs_any in zip(counted.rules, doubled, needs, strict=True)
        if (is_needed if needs_any else is_doubled and rule.kind != kernel.NEEDED)
    ]
    rules = sorted([*counted.rules, *more], key=itemgetter(0))  # of one filter those over placed pods first
    return counted._replace(rules=rules) if more else counted


def _for_nominated(rule: Rule) -> Rule:
    counter = msgspec.structs.replace(rule.counter, nominated=True)
    kind = kernel.NEEDED_NOMINATED if rule.kind == kernel.NEEDED else rule.kind
    return rule._replace(kind=kind, counter=counter, text=f"{rule.text}{PROMISED}")


def _nowhere(reason: Reason) -> Counted:
    """Return a rule that refuses every node. It counts nothing; its pods are tried again as rules change."""
    rule = Rule(kernel.AT_MOST, CounterSpec(_NO_KEY, Weigher()), -1, reason, missing=reason)
    return Counted([(0, rule)], [], True)


def _is_too_much(counted: Counted) -> bool:
    values_count = sum(map(len, counted.scores))
    return len(counted.rules) > rules_per_pod_max or values_count > values_per_pod_max


def _cut(counted: Counted, is_known: Callable[[str], bool]) -> Counted:
    """Leave out what no node can show, and values of other pods' terms for which there is no room.

    A node without the key passes such a rule, and such a value is 0 on it.
    """
    rules = [
        (position, rule)
        for position, rule in counted.rules
        if rule.kind != kernel.AT_MOST
        or rule.missing is not None
        or not rule.counter.topology_key
        or is_known(rule.counter.topology_key)
    ]
    scores = [
        [value for value in values if value.sized or is_known(value.counter.topology_key)]
        for values in counted.scores
    ]
    room = values_per_pod_max - sum(_is_own(value) for values in scores for value in values)
    kept: list[list[Value]] = []
    for values in scores:
        kept.append([])
        for value in values:
            is_own = _is_own(value)
            if is_own or room > 0:
                kept[-1].append(value)
            room -= not is_own
    return Counted(rules, kept, True)


def _is_own(value: Value) -> bool:
    return value.sized or bool(value.counter.weigher.matches)


def write_counted(
    counted: Counted,
    plan: ProfilePlan,
    slot: int,
    groups: kernel.Groups,
    number_of: Callable[[CounterSpec], int],
) -> list[int]:
    """Write rules and values into a slot; return the numbers of their counters, in order of ``specs``.

    ``number_of`` gives the number of a counter.
    """
    numbers = [number_of(spec) for spec in counted.specs()]
    groups.rule_count[slot] = len(counted.rules)
    for r, (position, rule) in enumerate(counted.rules):
        groups.rule_kind[slot, r] = rule.kind
        groups.rule_position[slot, r] = position
        groups.rule_counter[slot, r] = numbers[r]
        groups.rule_bound[slot, r] = rule.bound
        groups.rule_min_domains[slot, r] = rule.min_domains
        groups.rule_bootstraps[slot, r] = rule.bootstraps
        groups.rule_missing[slot, r] = rule.missing is not None
    groups.counted_count[slot] = len(counted.scores)
    v = 0
    for s, values in enumerate(counted.scores):
        use = plan.count_scores[s]
        # A score without values is 0 everywhere, as one of affinity is that counts nothing.
        groups.counted_kind[slot, s] = use.plugin.kind if values else kernel.AFFINITY_SCORE
        groups.counted_weight[slot, s] = use.weight
        for value in values:
            groups.value_counter[slot, v] = numbers[len(counted.rules) + v]
            groups.value_extra[slot, v] = value.max_skew - 1
            groups.value_flags[slot, v] = (
                kernel.REQUIRED * value.is_required
                | kernel.SIZED * value.sized
                | kernel.BY_ROW * value.counter.by_row
            )
            v += 1
        groups.counted_first[slot, s + 1] = v
    return numbers
