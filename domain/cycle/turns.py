"""Whose turn it is: which waiting pods a cycle tries, so that one namespace does not hold up the others.

Work is counted in units of about a microsecond, estimated from what pods ask for and from the number of
nodes. It does not depend on a clock, nor on what happens to be cached, so a restart changes no order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from domain.model.limits import signatures_cached_max
from domain.model.marks import terms_of
from domain.model.nodes import TAINT_EFFECTS
from domain.model.pods import NodeSelectorTerm, PodTemplate
from domain.plugins.registry import ProfilePlan
from domain.state.table import NodeTable

if TYPE_CHECKING:
    from domain.cycle.queue import WaitingGroup

# Measured with benchmarks/hostile.py: a cost for each, and how many nodes cost one more.
_POD, _POD_NODES = 5, 200  # the nodes count once per score that looks at all of them for every pod
_TERM_NODES = 400  # and once per constraint and term over other pods
_GROUP, _GROUP_NODES = 60, 400
_REQUIREMENT, _REQUIREMENT_NODES = 5, 600
_PORT, _PORTS_NODES = 30, 16  # the nodes once for all ports: a counter by node is new for each port
_VALUES = 5
_IMAGES_NODES = 4

Candidate = tuple[int, int, str, "WaitingGroup"]
"""A pod that is worth an attempt: minus its priority, its arrival, its key and its group."""


def group_work(template: PodTemplate, plan: ProfilePlan, table: NodeTable) -> int:
    """Return about how much work it is to look at all nodes for a group that was not seen before."""
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
    work = _GROUP + nodes // _GROUP_NODES + values // _VALUES
    work += requirements * (_REQUIREMENT + nodes // _REQUIREMENT_NODES)
    if template.host_ports:
        work += len(template.host_ports) * _PORT + nodes // _PORTS_NODES
    # Less than it takes: most groups of such a profile find what was computed for the one before.
    return work + (nodes // _IMAGES_NODES if plan.reads_images and table.image_nodes else 0)


def _values_of(term: NodeSelectorTerm) -> int:
    return sum(len(each.values) for each in (*term.match_expressions, *term.match_fields))


def pod_work(template: PodTemplate, plan: ProfilePlan, table: NodeTable) -> int:
    """Return about how much work it is to place one more pod of a group."""
    terms_count = len(template.spread) + sum(1 for _ in terms_of(template))
    nodes = table.count
    return _POD + len(plan.variance_scores) * nodes // _POD_NODES + terms_count * nodes // _TERM_NODES


def in_turn(candidates: Sequence[Candidate], works: Works, work_max: int) -> Sequence[Candidate]:
    """Return the candidates whose turn it is, in their order: all of them where the work is not too much.

    Otherwise half of the work goes by priority and age alone. The other half goes to the namespaces that had
    least, one pod after another, each by priority and age: none can take it all, whatever it asks for. At
    least one candidate is returned, and each has its turn in the end.
    """
    groups = {candidate[3].signature: candidate[3] for candidate in candidates}.values()
    works.renew()
    most = max(map(works.of_pod, groups), default=0) * len(candidates)
    for group in groups:
        if most > work_max:  # a long queue is not looked at whole, group by group, in each cycle
            break
        most += works.of_group(group)
    return candidates if most <= work_max else sorted(_shared(candidates, works, work_max))


class Works:
    """The work of groups and pods, by signature: classes of pods cost nothing by themselves.

    Each is computed when it is first asked for, and again when nodes changed or ``forget`` was called, as
    after a change of profiles.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._seen = (-1, -1)
        self._of_pod: dict[bytes, int] = {}
        self._of_group: dict[bytes, int] = {}

    def forget(self) -> None:
        """Compute all of it anew."""
        self._of_pod.clear()
        self._of_group.clear()

    def renew(self) -> None:
        """Forget what was computed for other nodes, and make room where that is too much."""
        seen = (self._table.count, self._table.last_spec_generation)
        if seen != self._seen or len(self._of_pod) > signatures_cached_max:
            self._seen = seen
            self.forget()

    def of_pod(self, group: WaitingGroup) -> int:
        """Return the work of one more pod of a group."""
        assert group.plan is not None
        work = self._of_pod.get(group.signature)
        if work is None:
            work = self._of_pod[group.signature] = pod_work(group.template, group.plan, self._table)
        return work

    def of_group(self, group: WaitingGroup) -> int:
        """Return the work of a group that was not seen before."""
        assert group.plan is not None
        work = self._of_group.get(group.signature)
        if work is None:
            work = self._of_group[group.signature] = group_work(group.template, group.plan, self._table)
        return work


def _shared(candidates: Sequence[Candidate], works: Works, work_max: int) -> Iterator[Candidate]:
    used: dict[str, int] = {}  # by namespace; each pays for the groups of its pods, shared or not
    paid: set[tuple[str, bytes]] = set()
    spent = 0

    def pay(namespace: str, group: WaitingGroup) -> int:
        work = works.of_pod(group)
        if (namespace, group.signature) not in paid:
            work += works.of_group(group)
            paid.add((namespace, group.signature))
        used[namespace] = used.get(namespace, 0) + work
        return work

    rest: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        namespace = candidate[2].partition("/")[0]
        if spent < work_max // 2:
            spent += pay(namespace, candidate[3])
            yield candidate
        else:
            rest.setdefault(namespace, []).append(candidate)
    for waiting in rest.values():
        waiting.reverse()
    turns = [(used.get(namespace, 0), waiting[-1][:2], namespace) for namespace, waiting in rest.items()]
    heapq.heapify(turns)
    while turns and spent < work_max:
        namespace = turns[0][2]
        waiting = rest[namespace]
        candidate = waiting.pop()
        spent += pay(namespace, candidate[3])
        yield candidate
        if waiting:
            heapq.heapreplace(turns, (used[namespace], waiting[-1][:2], namespace))
        else:
            heapq.heappop(turns)
