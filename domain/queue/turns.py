"""Turns: which waiting pods a cycle tries, so that one namespace does not hold up the others.

Work is counted in units of about a microsecond, estimated from what pods ask for, from the number of nodes
and of nominations. It does not depend on a clock, nor on what happens to be cached, so a restart changes
no order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from domain.model.anchors import anchors_of_selector, anchors_of_term
from domain.model.limits import gang_pairs_max, signatures_cached_max
from domain.model.marks import terms_of
from domain.model.nodes import TAINT_EFFECTS
from domain.model.pods import NodeSelectorTerm, PodTemplate
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.queue.groups import TOLD, Candidate, Gang, GangLine, Line, WaitingGroup
from domain.state.cluster import ClusterState
from domain.state.pod_index import PodIndex
from domain.state.table import NodeTable

# Measured with ``python -m benchmarks.hostile --work``, which prints for every shape of load what a pod took
# and what it was estimated at: a cost for each, and how many nodes cost one more.
_POD, _POD_NODES = 5, 200  # the nodes count once per score that looks at all of them for every pod
_TERM_NODES = 400  # and once per constraint and term over other pods
_GROUP, _GROUP_NODES = 80, 180
_COUNTER, _COUNTER_NODES = 20, 400  # once per term, twice per constraint: what it counts may be new
_RESOURCE, _RESOURCE_NODES = 12, 400  # once per resource beyond cpu and memory
_STATIC, _STATIC_NODES = 100, 10  # what static plugins say of all nodes
_REQUIREMENT, _REQUIREMENT_NODES = 5, 300
_PORT, _PORTS_NODES = 30, 16  # the nodes once for all ports: a counter by node is new for each port
_VALUES = 5
_PLAN, _PLAN_NODES = 300, 1  # a plan of evictions: so much, and for each node
_NOMINATED = 2  # and for each pod that has a nominated node, or leaves for one that has
_TERM_NOMINATED = 7  # of a group, for each of its terms and pods with a nominated node: do they match?
_NEAR = 5  # of a group, for each different term of any pod that may mean its pods
_MET = 2  # of a group, for each of its terms and each class of pods that this may mean; a constraint has two


def group_work(template: PodTemplate, table: NodeTable) -> int:
    """Return about how much work it is to look at all nodes for a group that was not seen before.

    What static plugins say comes on top where no group before had the same answer: see ``static_work``.
    """
    nodes = table.count
    work = _GROUP + nodes // _GROUP_NODES
    work += (_terms_count(template) + len(template.spread)) * (_COUNTER + nodes // _COUNTER_NODES)
    work += max(0, len(template.requests) - 2) * (_RESOURCE + nodes // _RESOURCE_NODES)
    if template.host_ports:
        work += len(template.host_ports) * _PORT + nodes // _PORTS_NODES
    return work


def static_work(template: PodTemplate, table: NodeTable) -> int:
    """Return about how much work it is to ask the static plugins about all nodes."""
    nodes = table.count
    requirements, values = len(template.node_selector), 0
    if template.node_affinity is not None:
        preferred = [each.term for each in template.node_affinity.preferred]
        for term in (*(template.node_affinity.required or ()), *preferred):
            requirements += 1 + len(term.match_expressions) + len(term.match_fields)
            values += _values_of(term)
    if template.tolerations and any(table.taint_totals):
        for each in template.tolerations:
            effects = (each.effect,) if each.effect else TAINT_EFFECTS
            requirements += any((each.key, effect, 0) in table.taints for effect in effects)
        values += len(template.tolerations)
    work = _STATIC + nodes // _STATIC_NODES + values // _VALUES
    return work + requirements * (_REQUIREMENT + nodes // _REQUIREMENT_NODES)


def _values_of(term: NodeSelectorTerm) -> int:
    return sum(len(each.values) for each in (*term.match_expressions, *term.match_fields))


def _terms_count(template: PodTemplate) -> int:
    return len(template.spread) + sum(1 for _ in terms_of(template))


def pod_work(template: PodTemplate, plan: ProfilePlan, table: NodeTable) -> int:
    """Return about how much work it is to place one more pod of a group."""
    nodes = table.count
    variances = plan.metrics_count * nodes // _POD_NODES
    return _POD + variances + _terms_count(template) * nodes // _TERM_NODES


def trial_work(gang: Gang, state: ClusterState) -> int:
    """Return about how much work it is to try a gang in one more domain: each is asked about anew."""
    templates, table = [group.template for group in gang.ready], state.table
    work = sum(group_work(each, table) + static_work(each, table) for each in templates)
    return work + _NEAR * pairs_count(gang.ready, state.index, gang_pairs_max)


def met_count(group: WaitingGroup, index: PodIndex) -> int:
    """Return with how many classes of pods the terms and constraints of a group are compared."""
    if group.pod_class is None:
        return 0
    template, here = group.template, (group.pod_class.namespace,)
    met = sum(index.crowd(anchors_of_term(each.term)) for each in terms_of(template))
    selectors = [each.selector for each in template.spread if each.selector is not None]
    return met + 2 * sum(index.crowd(anchors_of_selector(here, each)) for each in selectors)


def near_count(group: WaitingGroup, index: PodIndex) -> int:
    """Return how many different terms of any pods may mean those of a group."""
    known = group.pod_class
    return 0 if known is None else len(index.terms_near(known.namespace, known.labels))


def pairs_count(groups: Iterable[WaitingGroup], index: PodIndex, most: int) -> int:
    """Return how many comparisons with other pods some groups take; counting ends beyond ``most``."""
    pairs = 0
    for group in groups:
        pairs += near_count(group, index) + met_count(group, index)
        if pairs > most:
            break
    return pairs


def nominated_work(template: PodTemplate, state: ClusterState) -> int:
    """Return about how much work it is to find out which pods with nominated nodes count for a group."""
    nominated = len(state.nominations.entries)
    return _TERM_NOMINATED * nominated * _terms_count(template) if nominated else 0


def plan_work(template: PodTemplate, state: ClusterState) -> int:
    """Return about how much work it is to plan evictions for a group."""
    nominated = len(state.nominations.entries) + len(state.nominations.evicted)
    work = _PLAN + _PLAN_NODES * state.table.count + nominated * _NOMINATED
    return work + nominated_work(template, state)


def _shape(group: WaitingGroup) -> object:
    """Return what the work of a group follows from: its signature, and the nodes that are excluded for it."""
    return group.signature if group.key[1] >= 0 else group.key


class Works:
    """The work of groups and pods, by signature: classes of pods cost nothing by themselves.

    Each is computed when it is first asked for, and again when nodes changed or ``forget`` was called, as
    after a change of profiles. A group that is held for want of a profile costs as little as a plain pod.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state, self._table, self._view = state, state.table, NodeView(state)
        self._seen = (-1, -1)
        self._of_pod: dict[object, int] = {}
        self._of_group: dict[object, int] = {}
        self._of_static: dict[object, tuple[bytes, int]] = {}

    def forget(self) -> None:
        """Compute all of it anew."""
        self._of_pod.clear()
        self._of_group.clear()
        self._of_static.clear()

    def forget_outdated(self) -> None:
        """Forget what was computed for other nodes, and make room where that is too much."""
        seen = (self._table.count, self._table.last_spec_generation)
        if seen != self._seen or len(self._of_pod) > signatures_cached_max:
            self._seen = seen
            self.forget()

    def of_pod(self, group: WaitingGroup) -> int:
        """Return the work of one more pod of a group."""
        work = self._of_pod.get(_shape(group))
        if work is None:
            work = _POD if group.plan is None else pod_work(group.template, group.plan, self._table)
            self._of_pod[_shape(group)] = work
        return work

    def of_group(self, group: WaitingGroup) -> int:
        """Return the work of a group that was not seen before, or of one that waits for a plan."""
        work = self._of_group.get(_shape(group))
        if work is None:
            work = 0 if group.plan is None else group_work(group.template, self._table)
            self._of_group[_shape(group)] = work
        work += _NEAR * near_count(group, self._state.index)
        more = plan_work if group.owes_plan else nominated_work
        return work + more(group.template, self._state)

    def of_met(self, group: WaitingGroup) -> tuple[object, int]:
        """Return what is equal where groups have the same counters, and the work of beginning these."""
        template = group.template
        if not (template.spread or template.pod_affinity or template.pod_anti_affinity):
            return None, 0
        counts = template.spread, template.pod_affinity, template.pod_anti_affinity
        return (self.of_static(group)[0], counts), _MET * met_count(group, self._state.index)

    def of_static(self, group: WaitingGroup) -> tuple[bytes, int]:
        """Return what is equal where static plugins answer alike, and the work of asking them."""
        found = self._of_static.get(_shape(group))
        if found is None:
            found = b"", 0
            if group.plan is not None:
                key = group.plan.static_key(group.template, self._view)
                found = key, static_work(group.template, self._table)
            self._of_static[_shape(group)] = found
        return found


def merged(heads: Iterable[Candidate], opened: list[Line]) -> Iterator[Candidate]:
    """Yield the pods of some lines in one order: a k-way merge.

    ``heads`` are the first pods of the lines, in order. A line is looked at when its first pod has its turn,
    and is added to ``opened`` then. Cost: O(log lines opened) per pod.
    """
    unopened = iter(heads)
    ahead = next(unopened, None)
    rest: list[tuple[int, int, str, Line, Iterator[tuple[str, int]]]] = []  # a heap
    while ahead is not None or rest:
        if ahead is not None and (not rest or ahead < rest[0]):
            line = ahead[3]
            opened.append(line)
            pods = line.drawable()
            next(pods)
            yield ahead
            if (following := next(pods, None)) is not None:
                heapq.heappush(rest, (ahead[0], following[1], following[0], line, pods))
            ahead = next(unopened, None)
        else:
            minus_priority, arrival, key, line, pods = rest[0]
            yield minus_priority, arrival, key, line
            if (following := next(pods, None)) is None:
                heapq.heappop(rest)
            else:
                heapq.heapreplace(rest, (minus_priority, following[1], following[0], line, pods))


class Budget(NamedTuple):
    """What a lane may do in a cycle: work in units of about a microsecond, and pods with a turn.

    An eighth of the pods is kept for those that are only told why they wait, and another one for a second
    draw, behind pods of the first that turned out to have no node.
    """

    work_max: int
    pods_max: int

    @property
    def tried_max(self) -> int:
        """How many pods may be tried, of both draws."""
        return self.pods_max - self.pods_max // 8

    @property
    def first_max(self) -> int:
        """How many may be drawn at first."""
        return self.tried_max - self.pods_max // 8


class Turns(NamedTuple):
    """The pods that have their turn, in order, and the lines that were opened for it.

    ``pods_count`` counts the members of gangs, of which ``drawn`` has one candidate each. ``is_cut``: others
    would have a turn, too, were there more work or pods to spend.
    """

    drawn: Sequence[Candidate] = ()
    opened: Sequence[Line] = ()
    work: int = 0
    pods_count: int = 0
    is_cut: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether pods of these lines are to be tried still: none that comes behind them is tried before."""
        return any(line.stands_in < TOLD and line.first() is not None for line in self.opened)


def draw(
    waiting: Mapping[str, Iterable[Candidate]],
    works: Works,
    *,
    work_max: int,
    pods_max: int,
    is_told: bool = False,
) -> Turns:
    """Return the pods that have their turn; those that are only told why they wait cost a pod's work each.

    ``waiting`` holds per namespace the first pods of its lines, in order. Half of the work and of the pods go
    by priority and age alone. The other half goes to the namespaces that had least, one pod after another,
    each by priority and age: one cannot take it all, whatever it asks for, nor what its own pod took beyond
    the first half. Several that each ask for more than a cycle can: what a pod asks for is known when it is
    drawn. Each pod has its turn in the end. What is not drawn is not looked at.
    """
    works.forget_outdated()
    opened: list[Line] = []
    pods = {namespace: merged(heads, opened) for namespace, heads in waiting.items()}
    purse = _Purse(works, is_told=is_told)
    drawn: list[Candidate] = []  # a gang is one of them
    ahead = [next(each) for each in pods.values()]
    heapq.heapify(ahead)
    half = work_max // 2
    while ahead and purse.spent < half and len(drawn) + purse.more < pods_max // 2:
        candidate = ahead[0]
        line = candidate[3]
        purse.pay(line)
        drawn.append(candidate)
        following = next(pods[line.namespace], None)
        if following is None:
            heapq.heappop(ahead)
        elif len(ahead) == 1:
            ahead[0] = following
        else:
            heapq.heapreplace(ahead, following)
    turns = [(purse.used.get(each[3].namespace, 0), each) for each in ahead]
    heapq.heapify(turns)
    until = max(work_max, purse.spent + half)  # one pod may have cost more than all that a cycle may do
    while turns and len(drawn) + purse.more < pods_max:
        if purse.spent >= (until if turns[0][0] < half else work_max):
            break
        candidate = turns[0][1]
        line = candidate[3]
        used = purse.pay(line)
        drawn.append(candidate)
        following = next(pods[line.namespace], None)
        if following is None:
            heapq.heappop(turns)
        else:
            heapq.heapreplace(turns, (used, following))
    drawn.sort()
    return Turns(drawn, opened, purse.spent, len(drawn) + purse.more, bool(turns))


def _turn_work(line: Line, works: Works) -> int:
    """Return about how much work a turn is, once its groups were looked at.

    What is tried of a gang is taken back where it is too little, and its groups are looked at again.
    """
    if isinstance(line, GangLine):
        return sum(works.of_group(each) + works.of_pod(each) * each.pods_count for each in line.groups)
    return works.of_pod(line.group)


class _Purse:
    """What the namespaces have had of a cycle's work. Each pays for the groups of its pods, shared or not.

    ``more`` is how many pods have their turn with another one, as those of a gang have.
    """

    def __init__(self, works: Works, *, is_told: bool = False) -> None:
        self.spent = self.more = 0
        self._is_told = is_told
        self.used: dict[str, int] = {}
        self._works = works
        self._of_pod: dict[Line, int] = {}
        self._paid: set[tuple[str, object]] = set()  # by namespace: what is paid once

    def pay(self, line: Line) -> int:
        """Pay for one pod of a line; return what its namespace has had."""
        work = _POD if self._is_told else self._of_pod.get(line)
        if work is None:
            work = self._of_pod[line] = _turn_work(line, self._works)
            self.more += line.size - 1
            work += sum(self._first(line.namespace, group) for group in line.groups)
        self.spent += work
        used = self.used[line.namespace] = self.used.get(line.namespace, 0) + work
        return used

    def _first(self, namespace: str, group: WaitingGroup) -> int:
        """Return the work of a group in a namespace, 0 if that was paid."""
        if (namespace, group.signature) in self._paid:
            return 0
        self._paid.add((namespace, group.signature))
        work = self._works.of_group(group)
        for shared, more in (self._works.of_static(group), self._works.of_met(group)):
            if (namespace, shared) not in self._paid:
                self._paid.add((namespace, shared))
                work += more
        return work
