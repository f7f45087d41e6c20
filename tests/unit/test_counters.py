"""Do counters cost only what changed, and do groups that wait for them wake only when it matters?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.slots import GroupSlots
from domain.model.config import NAMESPACE, SERVICE, Content, Namespace, Selecting
from domain.model.events import ConfigUpserted, NodeDeleted, NodeUpserted, PodDeleted, PodUpserted
from domain.model.limits import counted_weight_max
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.selectors import (
    AffinityTerm,
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    SpreadConstraint,
    WeightedAffinityTerm,
)
from domain.plugins.counting import Eligible
from domain.plugins.weighers import Weigher
from tests import values

NODES = 4


@pytest.fixture
def scheduler() -> Scheduler:
    """Four small nodes in two zones."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    for n in range(NODES):
        labels = {"zone": f"z{n % 2}", "host": f"n{n}"}
        scheduler.fold(NodeUpserted(values.node(f"n{n}", cpu=64_000, pods=1_000, labels=labels)))
    return scheduler


def selecting(app: str) -> LabelSelector:
    return LabelSelector((LabelRequirement("app", "In", (app,)),))


def add(scheduler: Scheduler, name: str, app: str, key: str = "host", namespace: str = "default") -> None:
    """Add a pod that shuns pods of its own app in its domain."""
    term = AffinityTerm(topology_key=key, namespaces=(namespace,), selector=selecting(app))
    shape = values.template(100, pod_anti_affinity=PodAffinity(required=(term,)))
    pod = values.pod(name, shape, labels={"app": app}, namespace=namespace)
    scheduler.fold(PodUpserted(pod))


def put(scheduler: Scheduler, kind: str, namespace: str, name: str, content: Content) -> None:
    scheduler.fold(ConfigUpserted(kind=kind, namespace=namespace, name=name, content=content))


def placed_count(scheduler: Scheduler) -> int:
    return sum(bool(entry.node) for entry in scheduler.state.pods.values())


def counting(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[object]:
    """Note each call of a method."""
    calls: list[object] = []
    method: Callable[..., object] = getattr(owner, name)

    def noted(self: object, *args: object, **kwargs: object) -> object:
        calls.append(args)
        return method(self, *args, **kwargs)

    monkeypatch.setattr(owner, name, noted)
    return calls


def test_groups_that_wait_do_not_wake_each_other_for_ever_where_counters_do_not_fit(
    scheduler: Scheduler,
) -> None:
    scheduler._slots.counters._cells_max = 1
    for app in "abc":
        for i in range(NODES + 1):
            add(scheduler, f"{app}{i}", app)
    for _ in range(6):
        scheduler.cycle()
    assert placed_count(scheduler) == 3 * NODES
    attempts = [len(scheduler.cycle().attempts) for _ in range(3)]
    assert attempts == [0, 0, 0]
    assert not scheduler.has_work
    scheduler.fold(PodDeleted("default", "a0"))
    for _ in range(2):
        scheduler.cycle()
    assert placed_count(scheduler) == 3 * NODES, "the last of its app took the place"


def test_a_service_asks_again_only_for_pods_of_its_namespace(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for namespace in ("ours", "theirs"):
        for i in range(3):
            add(scheduler, f"{namespace}{i}", "web", "zone", namespace)
    scheduler.cycle()
    assert placed_count(scheduler) == 4
    asked = counting(monkeypatch, GroupSlots, "_refresh_counted")
    put(scheduler, SERVICE, "ours", "s", Selecting(selector=selecting("web")))
    result = scheduler.cycle()
    assert len(asked) == 1
    assert len(result.attempts) == 1, "the group of the other namespace stays parked"


def test_a_new_term_asks_again_only_for_pods_that_it_could_mean(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for app in "ab":
        add(scheduler, f"{app}0", app)
    scheduler.cycle()
    asked = counting(monkeypatch, GroupSlots, "_refresh_counted")
    for app in "ab":
        add(scheduler, f"{app}1", app)
    add(scheduler, "c0", "c")
    scheduler.cycle()
    assert placed_count(scheduler) == 5
    assert len(asked) == 1, "nobody carried a term like that of c"


def test_labels_of_a_namespace_weigh_only_its_own_pods_anew(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = LabelSelector((LabelRequirement("team", "In", ("blue",)),))
    term = AffinityTerm(topology_key="zone", namespace_selector=team, selector=selecting("web"))
    shape = values.template(100, pod_anti_affinity=PodAffinity(required=(term,)))
    for n in range(50):
        plain = values.pod(f"p{n}", namespace=f"ns{n}", labels={"app": "web"}, on="n0")
        scheduler.fold(PodUpserted(plain))
    scheduler.fold(PodUpserted(values.pod("shy0", shape)))
    scheduler.cycle()
    weighed = counting(monkeypatch, Weigher, "weigh")
    put(scheduler, NAMESPACE, "", "ns7", Namespace(labels={"team": "blue"}))
    scheduler.fold(PodUpserted(values.pod("shy1", shape)))
    scheduler.cycle()
    assert scheduler.state.pods["default/shy1"].node in ("n1", "n3"), "n0 is where the blue pod runs"
    assert len(weighed) < 10


def test_a_class_that_is_gone_is_taken_out_as_it_was_counted(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last pod went, the labels of its namespace changed and another class came before the same cycle."""
    monkeypatch.setattr("domain.counting.effects.GONE_MAX", -1_000)
    for n in range(1, NODES):
        scheduler.fold(NodeDeleted(f"n{n}"))
    scheduler.fold(ConfigUpserted(NAMESPACE, "", "ns", Namespace(labels={"team": "x"})))
    team = LabelSelector((LabelRequirement("team", "In", ("x",)),))
    term = AffinityTerm(topology_key="host", namespaces=(), namespace_selector=team, selector=selecting("a"))
    labels, plain = {"app": "a"}, values.template(100)
    scheduler.fold(PodUpserted(values.pod("gone", plain, labels=labels, namespace="ns")))
    scheduler.cycle()
    shy = values.template(100, pod_anti_affinity=PodAffinity(required=(term,)))
    scheduler.fold(PodUpserted(values.pod("shy", shy, labels={"app": "shy"})))
    scheduler.cycle()
    assert scheduler.state.pods["default/shy"].node == ""
    scheduler.fold(PodUpserted(values.pod("other", plain, labels=labels, namespace="other", on="n0")))
    scheduler.fold(ConfigUpserted(NAMESPACE, "", "ns", Namespace(labels={"team": "y"})))
    scheduler.fold(PodDeleted("ns", "gone"))
    scheduler.cycle()
    assert scheduler.state.pods["default/shy"].node == "n0"


def test_counters_with_many_domains_give_up_their_cells_and_count_right(scheduler: Scheduler) -> None:
    counters = scheduler._slots.counters
    counters._paged_from = 1
    for i in range(NODES):
        for app in range(40):
            add(scheduler, f"a{app}-{i}", f"a{app}")
        counters._cells_max = 5 * counters._domains.capacity_max
        scheduler.cycle()
        assert counters._pages_cells <= 40 * counters._domains.capacity_max
    scheduler.cycle()
    for app in range(40):
        nodes = {scheduler.state.pods[f"default/a{app}-{i}"].node for i in range(NODES)}
        assert nodes == {f"n{n}" for n in range(NODES)}


def test_spread_counts_by_zone_where_hosts_are_paged(scheduler: Scheduler) -> None:
    scheduler._slots.counters._paged_from = 1
    scheduler._slots.counters._cells_max = 1
    zone = SpreadConstraint(topology_key="zone", selector=selecting("web"))
    shape = values.template(100, spread=(zone,))
    for i in range(6):
        scheduler.fold(PodUpserted(values.pod(f"p{i}", shape, labels={"app": "web"})))
        scheduler.cycle()
    zones = [int(entry.node[1]) % 2 for entry in scheduler.state.pods.values()]
    assert sum(zones) == 3


def test_a_node_that_only_offers_something_else_is_no_reason_to_look_at_eligible_nodes(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = SpreadConstraint(topology_key="zone", selector=selecting("web"))
    for i in range(5):
        shape = values.template(100, node_selector={"host": f"n{i}"}, spread=(zone,))
        scheduler.fold(PodUpserted(values.pod(f"p{i}", shape, labels={"app": "web"})))
    scheduler.cycle()
    evaluated = counting(monkeypatch, Eligible, "among")
    labels = {"zone": "z0", "host": "n0"}
    scheduler.fold(NodeUpserted(values.node("n0", cpu=1_000, version=2, labels=labels)))
    scheduler.cycle()
    assert len(evaluated) == 0
    scheduler.fold(NodeUpserted(values.node("n0", cpu=1_000, version=3, labels={**labels, "zone": "z1"})))
    scheduler.cycle()
    assert len(evaluated) == 5


def test_pods_whose_host_ports_collide_count_port_by_port(scheduler: Scheduler) -> None:
    for i in range(30):
        scheduler.fold(PodUpserted(values.pod(f"p{i}", values.template(100, 0, 80, 1_000 + i))))
    scheduler.cycle()
    assert placed_count(scheduler) == NODES
    counters = scheduler._slots.counters
    assert len(counters._by_spec) == 31
    assert {len(counters.effects.of(each)) for each in scheduler.state.index} == {2}


def test_sums_do_not_wrap_however_much_pods_weigh(scheduler: Scheduler) -> None:
    terms = [
        WeightedAffinityTerm(
            weight=100,
            term=AffinityTerm(topology_key="zone", namespaces=("default",), selector=LabelSelector(each)),
        )
        for each in (tuple(LabelRequirement(f"k{j}", "DoesNotExist") for j in range(i)) for i in range(32))
    ]
    shape = values.template(100, pod_affinity=PodAffinity(preferred=tuple(terms)))
    for i in range(2):
        scheduler.fold(PodUpserted(values.pod(f"p{i}", shape)))
        scheduler.cycle()
    effects = [scheduler._slots.counters.effects.of(each) for each in scheduler.state.index]
    weights = {weight for of_class in effects for weight in of_class.values()}
    assert max(weights) == counted_weight_max
    zones = {int(entry.node[1]) % 2 for entry in scheduler.state.pods.values()}
    assert len(zones) == 1


def test_a_node_that_comes_back_has_a_domain_of_its_own() -> None:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)

    def show(name: str, version: int, **labels: str) -> None:
        node = values.node(name, labels=labels, version=version, unschedulable=not labels)
        scheduler.fold(NodeUpserted(node))

    show("plain", 1)
    show("n0", 1, host="n0")
    add(scheduler, "a0", "a")
    scheduler.cycle()
    assert scheduler.state.pods["default/a0"].node == "n0"
    scheduler.fold(NodeDeleted("n0", "", 2))
    scheduler.fold(NodeDeleted("plain", "", 2))
    show("n1", 3, host="n1")  # the table gives its label the number that the label of n0 had
    show("n0", 3, host="n0")
    add(scheduler, "a1", "a")
    scheduler.cycle()
    assert scheduler.state.pods["default/a1"].node == "n1"


def test_a_node_that_goes_while_the_table_gets_columns_is_missed(scheduler: Scheduler) -> None:
    """The last node takes its row, and must not be known in two."""
    add(scheduler, "a", "a")
    scheduler.cycle()
    scheduler.fold(NodeDeleted("n0", "", 2))
    many = {f"example.com/odd-{i}": 1 for i in range(len(scheduler.state.table.allocatable))}
    scheduler.fold(NodeUpserted(values.node("n1", version=2, labels={"host": "n1"}, extended=many)))
    scheduler.cycle()
    scheduler.fold(NodeUpserted(values.node("n4", labels={"host": "n4"})))
    scheduler.cycle()
    scheduler.fold(NodeDeleted(f"n{NODES - 1}", "", 4))
    add(scheduler, "b", "a")
    scheduler.cycle()
    assert scheduler.state.pods["default/b"].node


@pytest.mark.parametrize("key", ["host", "zone"])
def test_a_node_that_only_gets_another_row_wakes_nobody(scheduler: Scheduler, key: str) -> None:
    """Which node is in the last row depends on what came and went before."""
    counters = scheduler._slots.counters
    shun = AffinityTerm(topology_key=key, namespaces=("default",), selector=selecting("a"))
    shape = values.template(
        100, pod_anti_affinity=PodAffinity(required=(shun,)), node_selector={"host": "n3"}
    )
    for name in ("a0", "a1"):
        scheduler.fold(PodUpserted(values.pod(name, shape, labels={"app": "a"})))
    scheduler.cycle()
    assert placed_count(scheduler) == 1
    before = counters.arrays.version.copy()
    scheduler.fold(NodeDeleted("n1", "", 2))
    scheduler.cycle()
    assert scheduler.state.table.names[1] == "n3"
    moved = counters.arrays.version - before
    assert set(moved[:4].tolist()) <= ({0, 1} if key == "host" else {0})
    assert sum(moved) == (2 if key == "host" else 0), "the domain of n1 is gone where each node is one"
