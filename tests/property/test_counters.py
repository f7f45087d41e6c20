"""Do counters say what a recount over all pods says, whatever happened in between?"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.counting.counters import CounterTable
from domain.kernels.arrays import Counters
from domain.model.events import NodeDeleted, NodeUpserted
from domain.model.marks import PortMark, TermMark, marks_of
from domain.model.pods import Toleration
from domain.model.selectors import (
    LabelSelector,
)
from domain.plugins.counting import CounterSpec, Eligible
from domain.plugins.weighers import Match, Weigher
from domain.state.cluster import ClusterState
from domain.state.pod_classes import PodClass
from domain.state.snapshot import Snapshot
from domain.state.steps import Assumed, Reclassify
from tests import values
from tests.depth import examples
from tests.property.class_audit import audit_classes
from tests.property.drawn import NAMESPACES, Draw, next_event


def draw_spec(random: Draw) -> CounterSpec:
    term = random.term()
    match = Match(
        selector=term.selector or LabelSelector(),
        namespaces=term.namespaces,
        namespace_selector=term.namespace_selector,
        controller_uid=random.choice(("", "", "u")),
    )
    marks = frozenset({(PortMark(80, "TCP", "each"), 1), (PortMark(81, "TCP", "each"), 2)})
    tolerations = random.choice((None, (), (Toleration(operator="Exists"),)))
    matches = (((match,), random.choice((1, -2))),)
    eligible = Eligible(keys=random.choice(((), ("zone",))), tolerations=tolerations)
    key, by_row = random.choice(("zone", "host", "")), random.random() < 0.3
    return CounterSpec(
        key,
        random.choice(
            (Weigher(matches=matches, with_terminating=random.random() < 0.5), Weigher(marks=marks))
        ),
        random.choice((None, eligible)),
        by_row=by_row,
        missing_is_empty=bool(key) and not by_row and random.random() < 0.5,
    )


def is_eligible(state: ClusterState, spec: CounterSpec, row: int) -> bool:
    return spec.eligible is None or bool(spec.eligible.among(state.table, np.array([row]))[0])


def recount(state: ClusterState, spec: CounterSpec) -> dict[object, int]:
    """Count by hand: every pod, by its own labels, on the node where it runs. Domains are label values."""
    found: dict[object, int] = {}
    for entry in state.pods.values():
        row = state.table.rows.get(entry.node)
        if row is None:
            continue
        labels = state.table.specs[row].labels
        domain: object = labels.get(spec.topology_key)
        if not spec.topology_key or (spec.by_row and domain is not None):
            domain = row
        if domain is None and spec.missing_is_empty:
            domain = ""
        if domain is None or not is_eligible(state, spec, row):
            continue
        pod = entry.spec
        whole = PodClass(0, 0, pod.namespace, pod.labels, None, pod.terminating, pod.controller)
        weight = spec.weigher.weigh(whole, state.index.namespaces)
        weight += sum(marks_of(entry.spec.template).get(mark, 0) * each for mark, each in spec.weigher.marks)
        found[domain] = found.get(domain, 0) + weight
    return {domain: count for domain, count in found.items() if count}


def counted(state: ClusterState, counters: CounterTable, spec: CounterSpec, number: int) -> dict[object, int]:
    """Read what the kernel would: by row, then by the label value of the row."""
    arrays, found = counters.arrays, dict[object, int]()
    having, stood = dict[object, bool](), dict[object, bool]()
    domains = arrays.domain[arrays.topology[number]]
    for row in range(state.table.count):
        domain = int(domains[row])
        labels = state.table.specs[row].labels
        has_domain = not spec.topology_key or spec.topology_key in labels
        assert (domain >= 0) == has_domain
        assert has_domain or (domain < -1) == spec.missing_is_empty
        domain = domain if has_domain else -2 - domain
        if domain >= 0:
            is_row = spec.by_row or not spec.topology_key
            name: object = row if is_row else labels.get(spec.topology_key, "")
            count = int(arrays.sums[arrays.first[number] + domain])
            assert found.setdefault(name, count) == count
            having[name] = having.get(name, False) or (has_domain and is_eligible(state, spec, row))
            stood[name] = bool(arrays.has_nodes[arrays.first[number] + domain])
    assert stood == having
    assert (domains[state.table.count :] == -1).all()
    assert int(arrays.total[number]) == sum(found.values()) == _all(arrays, number)
    return {name: count for name, count in found.items() if count}


def _all(arrays: Counters, number: int) -> int:
    first, length = int(arrays.first[number]), int(arrays.length[number])
    return int(arrays.sums[first : first + length].sum())


def place(state: ClusterState, counters: CounterTable, random: Random) -> None:
    """Assume some pods as a cycle does: the kernel counts them in the arrays, the fold in its classes."""
    waiting = [key for key, entry in state.pods.items() if not entry.node]
    keys = random.sample(waiting, min(len(waiting), 3)) if state.table.count else []
    rows = [random.randrange(state.table.count) for _ in keys]
    classes = [(i, state.pods[key].pod_class) for i, key in enumerate(keys)]
    effects, arrays = counters.effects.arrays(classes, len(keys)), counters.arrays
    for i, row in enumerate(rows):
        for e in range(effects.first[i], effects.first[i + 1]):
            number = effects.counter[e]
            domain, mask = int(arrays.domain[arrays.topology[number], row]), arrays.mask[number]
            domain = domain if domain >= 0 else -2 - domain
            if domain >= 0 and (mask < 0 or arrays.eligible[mask, row]):
                arrays.sums[arrays.first[number] + domain] += effects.weight[e]
                arrays.total[number] += effects.weight[e]
    state.apply(Assumed(keys, np.array(rows, dtype=np.int64)))


def audit_counters(state: ClusterState, counters: CounterTable, taken: Mapping[CounterSpec, int]) -> None:
    """Compare counters with a recount: their totals always, their cells once they are asked for."""
    for spec, number in taken.items():
        assert int(counters.arrays.total[number]) == sum(recount(state, spec).values())
    for spec, number in taken.items():
        counters.start_call()
        counters.load([number], must=True)
        assert counted(state, counters, spec, number) == recount(state, spec)


@settings(deadline=None, max_examples=examples(40))
@given(st.integers(0, 1 << 32), st.integers(1, 150))
def test_counters_follow_whatever_happens(seed: int, steps: int) -> None:
    random, state = Draw(seed), ClusterState(seed=1)
    snapshot = Snapshot(state.table)
    counters = CounterTable(
        state,
        snapshot.rows_width,
        cells_max=random.choice((100, 1_000, 1 << 20)),
        paged_from=random.choice((1, 1 << 9)),
    )
    taken: dict[CounterSpec, int] = {}
    mentioned: set[tuple[str, LabelSelector]] = set()
    for step in range(steps):
        if random.random() < 0.1:
            namespace = random.choice(NAMESPACES)
            state.index.label_namespace(
                namespace, random.choice((None, {}, {"team": random.choice(("blue", "red"))}))
            )
        state.apply(next_event(random, step + 1))
        if random.random() < 0.5:
            continue
        state.apply(Reclassify())
        audit_classes(state, mentioned)
        snapshot.sync()
        counters.sync(snapshot.rows_width)
        if random.random() < 0.3 and len(taken) < 8:
            spec = draw_spec(random)
            mentioned |= _mention(state, spec)
            state.apply(Reclassify())
            counters.sync(snapshot.rows_width)
            taken[spec] = counters.acquire_counter(spec)
        if taken and random.random() < 0.1:
            counters.release_counter(taken.pop(random.choice(list(taken))))
        audit_counters(state, counters, taken)
        place(state, counters, random)
        audit_counters(state, counters, taken)


@settings(deadline=None, max_examples=examples(40))
@given(st.integers(0, 1 << 32), st.integers(1, 80))
def test_versions_do_not_depend_on_the_rows_that_nodes_have(seed: int, steps: int) -> None:
    """Who waits for a counter would wake otherwise, where the nodes were read anew."""
    random, states = Draw(seed), [ClusterState(seed=1), ClusterState(seed=1)]
    events = [next_event(random, step + 1) for step in range(40 + steps)]
    states[1].apply(NodeUpserted(values.node("first")))
    for state in states:
        for event in events[:40]:
            state.apply(event)
    states[1].apply(NodeDeleted("first", "", 2))  # the last node has its row from now on
    assert states[0].table.rows.keys() == states[1].table.rows.keys()
    specs = list({draw_spec(random): None for _ in range(6)})
    tables = [CounterTable(state, Snapshot(state.table).rows_width) for state in states]
    numbers: list[list[int]] = []
    for state, table in zip(states, tables, strict=True):
        for spec in specs:
            _mention(state, spec)
        state.apply(Reclassify())
        table.sync(state.table.rows_capacity)
        numbers.append([table.acquire_counter(spec) for spec in specs])
    assert tables[0].arrays.version[numbers[0]].tolist() == tables[1].arrays.version[numbers[1]].tolist()
    for event in events[40:]:
        for state in states:
            state.apply(event)
        if random.random() < 0.5:
            continue
        for state, table in zip(states, tables, strict=True):
            state.apply(Reclassify())
            table.sync(state.table.rows_capacity)
        assert tables[0].arrays.version[numbers[0]].tolist() == tables[1].arrays.version[numbers[1]].tolist()


def _mention(state: ClusterState, spec: CounterSpec) -> set[tuple[str, LabelSelector]]:
    """Watch what a counter selects, as the pod that asks for it would have it watched; for ever."""
    found = {
        (where, match.selector)
        for all_of, _ in spec.weigher.matches
        for match in all_of
        for where in (("*",) if match.namespace_selector is not None else match.namespaces)
    }
    for where, selector in sorted(found, key=str):
        state.index.watch(where, selector)
    return found


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 1 << 32))
def test_terms_that_mean_a_pod_are_found(seed: int) -> None:
    random, state = Draw(seed), ClusterState(seed=1)
    for step in range(60):
        state.apply(next_event(random, step + 1))
    state.apply(Reclassify())
    marks = {mark for entry in state.pods.values() for mark in marks_of(entry.spec.template)}
    carried = {mark for mark in marks if isinstance(mark, TermMark)}
    for entry in state.pods.values():
        spec = entry.spec
        found = set(state.index.terms_near(spec.namespace, spec.labels))
        assert found <= carried
        meant = {
            mark
            for mark in carried
            if mark.term.selector is not None
            and (spec.namespace in mark.term.namespaces or mark.term.namespace_selector is not None)
            and mark.term.selector.matches(spec.labels)
        }
        assert meant <= found
