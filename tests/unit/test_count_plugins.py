"""Do topology spread and affinity between pods follow the rules that are most often missed?"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from domain.model.anchors import anchors_of_pod
from domain.model.errors import FieldError
from domain.model.nodes import NodeSpec, Taint
from domain.model.pods import Controller, NodeAffinity, NodeSelectorTerm, PodSpec, Requirement, Toleration
from domain.model.selectors import (
    AffinityTerm,
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    SpreadConstraint,
    WeightedAffinityTerm,
)
from domain.plugins.filters.inter_pod_affinity import InterPodAffinity
from domain.plugins.filters.pod_topology_spread import PodTopologySpread
from domain.plugins.scores.inter_pod_affinity import InterPodAffinity as AffinityScore
from domain.plugins.scores.pod_topology_spread import PodTopologySpread as SpreadScore
from domain.plugins.spread_constraints import HOSTNAME, ZONE
from tests.plain_counting import World, counted
from tests.values import node, pod, template

WEB = {"app": "web"}
UNEVEN, NO_LABEL = ("topology-spread", False), ("topology-spread-missing-label", True)
FAR, NEAR_OWN, NEAR_OTHERS = (
    ("pod-affinity", True), ("pod-anti-affinity", False), ("existing-pod-anti-affinity", False),
)  # fmt: skip


def sel(**labels: str) -> LabelSelector:
    return LabelSelector(tuple(LabelRequirement(key, "In", (value,)) for key, value in labels.items()))


def in_zones(**zones: str) -> list[NodeSpec]:
    """Return nodes by name, each with its zone ("-": none) and its own hostname."""
    return [
        node(name, labels={HOSTNAME: name} | ({} if zone == "-" else {ZONE: zone}))
        for name, zone in zones.items()
    ]


def web(name: str = "p", labels: dict[str, str] = WEB, **fields: Any) -> PodSpec:
    """Return a pod; ``fields`` are those of its template."""
    namespace, controller = fields.pop("namespace", "default"), fields.pop("controller", None)
    made = pod(name, template(**fields), labels=labels, namespace=namespace)
    return msgspec.structs.replace(made, controller=controller)


def spread(key: str = ZONE, **fields: Any) -> SpreadConstraint:
    return SpreadConstraint(**{"topology_key": key, "selector": sel(app="web"), **fields})


def near(key: str = ZONE, **fields: Any) -> AffinityTerm:
    return AffinityTerm(
        **{"topology_key": key, "selector": sel(app="web"), "namespaces": ("default",), **fields}
    )


def required(*terms: AffinityTerm) -> PodAffinity:
    return PodAffinity(required=terms)


def preferred(*terms: tuple[int, AffinityTerm]) -> PodAffinity:
    return PodAffinity(preferred=tuple(WeightedAffinityTerm(weight=w, term=t) for w, t in terms))


def place(world: World, *where: str, **fields: Any) -> World:
    world.placed += [(web(f"q{len(world.placed)}-{i}", **fields), on) for i, on in enumerate(where)]
    return world


def spread_refusals(world: World, each: PodSpec, **args: Any) -> dict[str, tuple[str, bool]]:
    rules = PodTopologySpread(args, "args").rules(world.incoming(each))
    return {name: (reason.code, reason.unresolvable) for name, reason in world.refusals(rules).items()}


def spread_scores(world: World, each: PodSpec, *feasible: str, **args: Any) -> dict[str, int]:
    values = SpreadScore(args, "args").values(world.incoming(each))
    return world.spread_scores(values, feasible or [n.name for n in world.nodes])


def refusals(world: World, each: PodSpec) -> dict[str, tuple[str, bool]]:
    rules = InterPodAffinity({}, "args").rules(world.incoming(each))
    return {name: (reason.code, reason.unresolvable) for name, reason in world.refusals(rules).items()}


def affinity_scores(world: World, each: PodSpec, *feasible: str, **args: Any) -> dict[str, int]:
    values = AffinityScore(args, "args").values(world.incoming(each))
    return world.affinity_scores(values, feasible or [n.name for n in world.nodes])


# ------------------------------------------------------------------------------- spread: filter


def test_a_domain_may_hold_max_skew_more_than_the_emptiest() -> None:
    world = place(World(in_zones(a="1", b="1", c="2")), "a", "b", "c")
    assert spread_refusals(world, web(spread=(spread(),))) == {"a": UNEVEN, "b": UNEVEN}
    assert spread_refusals(world, web(spread=(spread(max_skew=2),))) == {}
    assert spread_refusals(world, web(labels={}, spread=(spread(),))) == {}, "it does not count itself"


def test_a_node_without_a_key_cannot_be_cured_and_its_pods_do_not_count() -> None:
    world = place(World(in_zones(a="1", b="2", c="-")), "a", "c", "c")
    assert spread_refusals(world, web(spread=(spread(),))) == {"a": UNEVEN, "c": NO_LABEL}
    both = (spread(HOSTNAME), spread())
    assert spread_refusals(world, web(spread=both)) == {"a": UNEVEN, "c": NO_LABEL}
    world.placed += [(web("r"), "b")]
    assert spread_refusals(world, web(spread=both)) == {"c": NO_LABEL}, "c is no domain of hostname either"
    soft = (spread("rack", hard=False), spread(HOSTNAME))
    assert spread_refusals(place(world, "a"), web(spread=soft)) == {"a": UNEVEN, "c": UNEVEN}, (
        "soft keys do not count"
    )


def test_empty_domains_count_and_too_few_make_the_minimum_0() -> None:
    world = place(World(in_zones(a="1", b="2", c="3")), "a", "b")
    assert spread_refusals(world, web(spread=(spread(),))) == {"a": UNEVEN, "b": UNEVEN}
    place(world, "c")
    assert spread_refusals(world, web(spread=(spread(min_domains=3),))) == {}
    assert set(spread_refusals(world, web(spread=(spread(min_domains=4),)))) == {"a", "b", "c"}


def test_a_domain_without_an_eligible_node_counts_0_and_passes() -> None:
    world = place(World(in_zones(a="1", b="2")), "a", "b", "b", "b")
    in_1 = web(spread=(spread(),), node_selector={ZONE: "1"})
    assert spread_refusals(world, in_1) == {}, "zone 1 is the only domain; zone 2 has no eligible node"
    ignoring = web(spread=(spread(honours_affinity=False),), node_selector={ZONE: "1"})
    assert spread_refusals(world, ignoring) == {"b": UNEVEN}


@pytest.mark.parametrize("honours", [False, True])
def test_the_taint_policy_looks_at_the_pods_own_tolerations(honours: bool) -> None:
    nodes = in_zones(a="1", b="2")
    nodes[1] = msgspec.structs.replace(nodes[1], taints=(Taint("k"), Taint("soft", "", "PreferNoSchedule")))
    asking = (spread(honours_taints=honours),)
    world = place(World(nodes), "a")
    assert spread_refusals(world, web(spread=asking)) == ({} if honours else {"a": UNEVEN})
    tolerating = web(spread=asking, tolerations=(Toleration("k", "Exists"),))
    assert spread_refusals(world, tolerating) == {"a": UNEVEN}


def test_the_affinity_policy_looks_at_required_terms() -> None:
    term = NodeSelectorTerm((Requirement(ZONE, "In", ("1",)),))
    world = place(World(in_zones(a="1", b="2")), "a", "b")
    only = web(spread=(spread(min_domains=2),), node_affinity=NodeAffinity(required=(term,)))
    assert spread_refusals(world, only) == {"a": UNEVEN}, "one domain is left, so the minimum is 0"


def test_no_selector_matches_nothing_and_the_empty_one_only_the_pod_itself() -> None:
    world = place(World(in_zones(a="1", b="2")), "a", "a")
    none, empty = spread(selector=None), spread(selector=LabelSelector())
    for constraint in (none, empty):
        assert spread_refusals(world, web(spread=(constraint,))) == {}
        assert spread_refusals(world, web(spread=(spread("rack", selector=constraint.selector),))) == {
            "a": NO_LABEL, "b": NO_LABEL,
        }  # fmt: skip
    bounds = [
        PodTopologySpread({}, "args").rules(world.incoming(web(spread=(each,))))[0].bound
        for each in (none, empty)
    ]
    assert bounds == [1, 0]


def test_spread_leaves_out_other_namespaces_and_terminating_pods() -> None:
    world = place(World(in_zones(a="1", b="2")), "a", namespace="other")
    world.placed += [(msgspec.structs.replace(web("t"), terminating=True), "a")]
    assert spread_refusals(world, web(spread=(spread(),))) == {}
    assert spread_refusals(place(world, "a"), web(spread=(spread(),))) == {"a": UNEVEN}


# -------------------------------------------------------------------------------- spread: score


def test_the_raw_score_is_rounded_before_it_is_normalised() -> None:
    world = place(World(in_zones(a="1", b="2", c="3")), "a", "a", "b")
    by_zone = web(spread=(spread(hard=False),))
    raw = [round(n * math.log(5)) for n in (2, 1, 0)]
    assert spread_scores(world, by_zone) == {
        name: 100 * (3 - r) // 3 for name, r in zip("abc", raw, strict=True)
    }


def test_zone_counts_come_from_all_eligible_nodes_and_hostname_counts_from_the_node_alone() -> None:
    world = place(World(in_zones(a="1", b="1", c="2")), "b", "b", "c")
    by_zone = spread(hard=False)
    assert spread_scores(world, web(spread=(by_zone,)), "a", "c") == {"a": 33, "c": 100}, "b is not feasible"
    by_host = spread(HOSTNAME, hard=False)
    elsewhere = web(spread=(by_host,), node_selector={ZONE: "1"})
    assert spread_scores(world, elsewhere, "a", "c") == {"a": 100, "c": 0}, "its policy does not leave c out"
    (value,) = SpreadScore({}, "args").values(world.incoming(elsewhere))
    assert (value.counter.by_row, value.counter.eligible) == (True, None)


def test_a_node_without_a_soft_key_scores_0_and_has_no_say() -> None:
    world = place(World(in_zones(a="1", b="2", c="-")), "a", "a", "a", "b")
    assert spread_scores(world, web(spread=(spread(hard=False),))) == {"a": 25, "b": 100, "c": 0}
    hard_too = (spread("rack"), spread(hard=False))
    assert spread_scores(world, web(spread=hard_too))["b"] == 100, (
        "keys of hard constraints are none of its own"
    )


def test_own_constraints_switch_the_defaults_off() -> None:
    world = place(World(in_zones(a="1", b="2"), selected={"default": [sel(app="web")]}), "a")
    args = {
        "defaultingType": "List",
        "defaultConstraints": [
            {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
            {"topologyKey": HOSTNAME, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"},
        ],
    }
    assert spread_refusals(world, web(), **args) == {"a": UNEVEN}
    assert spread_scores(world, web(), **args) == {"a": 0, "b": 100}
    soft = web(spread=(spread("rack", hard=False),))
    assert spread_refusals(world, soft, **args) == {}
    hard = web(spread=(spread("rack"),))
    assert SpreadScore(args, "args").values(world.incoming(hard)) == []


def test_system_defaults_need_no_key_and_a_missing_zone_is_a_domain() -> None:
    world = place(World(in_zones(a="1", b="2", c="-"), selected={"default": [sel(app="web")]}), "a", "b", "c")
    host, zone = SpreadScore({}, "args").values(world.incoming(web()))
    assert (host.counter.topology_key, host.max_skew, zone.counter.topology_key, zone.max_skew) == (
        HOSTNAME,
        3,
        ZONE,
        5,
    )
    assert [each.is_required for each in (host, zone)] == [False, False]
    raw_ab, raw_c = round(math.log(5) + 2 + math.log(5) + 4), round(math.log(5) + 2)
    expected = {"a": 100 * raw_c // raw_ab, "b": 100 * raw_c // raw_ab, "c": 100}
    assert spread_scores(world, web()) == expected
    listed = [
        {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "ScheduleAnyway"}
        for key, skew in ((HOSTNAME, 3), (ZONE, 5))
    ]
    assert spread_scores(world, web(), defaultingType="List", defaultConstraints=listed)["c"] == 0


def test_with_system_defaults_nodes_without_a_zone_are_in_the_zone_of_the_empty_name() -> None:
    nodes = in_zones(a="1", b="", c="-")
    world = place(World(nodes, selected={"default": [sel(app="web")]}), "a", "b", "c", "c")
    size_of_hosts, size_of_zones = 3, 2  # zones 1 and ""
    host, zone = math.log(size_of_hosts + 2), math.log(size_of_zones + 2)
    raw = {
        "a": math.floor(host + 2 + zone + 4 + 0.5),
        "b": math.floor(host + 2 + 3 * zone + 4 + 0.5),
        "c": math.floor(2 * host + 2 + 0.5),
    }
    high, low = max(raw.values()), min(raw.values())
    assert spread_scores(world, web()) == {n: 100 * (high + low - r) // high for n, r in raw.items()}


def test_default_constraints_select_by_services_and_the_owner() -> None:
    services = [sel(app="web"), sel(tier="back"), sel(), sel(app="db")]
    world = World(in_zones(a="1"), selected={"default": services})
    labels = {"app": "web", "tier": "back"}

    def selects(controller: Controller | None, labels: dict[str, str] = labels) -> Any:
        values = SpreadScore({}, "args").values(world.incoming(web(labels=labels, controller=controller)))
        return [(str(m.selector), m.controller_uid) for v in values for (m,), _ in v.counter.weigher.matches][
            :1
        ]

    owners = {kind: Controller(kind, "r", "u1") for kind in ("ReplicaSet", "ReplicationController", "Job")}
    assert selects(None) == [("app=web,tier=back", "")]
    assert selects(None, {}) == [], "nothing selects the pod: no default constraint at all"
    assert selects(owners["Job"], {}) == []
    assert selects(owners["ReplicaSet"]) == [("app=web,tier=back", "u1")], "the object is not known"
    world.owners["ReplicaSet", "default", "r"] = sel(hash="1")
    world.owners["ReplicationController", "default", "r"] = sel(app="old")
    assert selects(owners["ReplicaSet"]) == [("app=web,hash=1,tier=back", "")]
    assert selects(owners["ReplicationController"]) == [("app=old,tier=back", "")]


def test_pods_of_an_unknown_owner_are_spread_from_each_other() -> None:
    mine, other = Controller("ReplicaSet", "r", "u1"), Controller("ReplicaSet", "s", "u2")
    world = place(World(in_zones(a="1", b="1")), "a", controller=mine)
    place(world, "b", controller=other)
    scores = spread_scores(world, web(controller=mine))
    assert scores["a"] < scores["b"] == 100


# ----------------------------------------------------------------------------- affinity: filter


def test_one_pod_must_match_all_terms_and_all_keys_must_be_there() -> None:
    world = World(in_zones(a="1", b="2", c="-"))
    place(world, "a", labels={"app": "web"})
    place(world, "b", labels={"app": "web", "tier": "back"})
    two = required(near(), near(HOSTNAME, selector=sel(tier="back")))
    assert refusals(world, web(pod_affinity=two)) == {"a": FAR, "c": FAR}
    place(world, "c", labels={"app": "web", "tier": "back"})
    assert refusals(world, web(pod_affinity=two)) == {"a": FAR, "c": FAR}, "c has no zone"
    assert refusals(world, web(pod_affinity=required(near(selector=None)))) == dict.fromkeys("abc", FAR)
    everyone = required(near(selector=LabelSelector()))
    assert refusals(world, web(pod_affinity=everyone)) == {"c": FAR}


def test_the_first_of_its_kind_passes_where_all_keys_are() -> None:
    world = World(in_zones(a="1", c="-"))
    first = web(pod_affinity=required(near()))
    assert refusals(world, first) == {"c": FAR}
    stranger = web(labels={}, pod_affinity=required(near()))
    assert refusals(world, stranger) == {"a": FAR, "c": FAR}
    place(world, "c")
    assert refusals(world, first) == {"c": FAR}, "a match on a node without the key does not count"
    place(world, "a", namespace="other")
    assert refusals(world, first) == {"c": FAR}
    with_host = web(pod_affinity=required(near(), near(HOSTNAME)))
    assert refusals(world, with_host) == {"a": FAR, "c": FAR}, "c has one of the keys, and a match"


def test_anti_affinity_passes_nodes_without_the_key_and_is_asked_in_order() -> None:
    world = place(World(in_zones(a="1", b="1", c="-", d="2")), "a", "c")
    avoiding = web(pod_anti_affinity=required(near()))
    assert refusals(world, avoiding) == {"a": NEAR_OWN, "b": NEAR_OWN}
    place(world, "d", labels={}, pod_anti_affinity=required(near()))
    assert refusals(world, avoiding) == {"a": NEAR_OWN, "b": NEAR_OWN, "d": NEAR_OTHERS}
    place(world, "a", labels={}, pod_anti_affinity=required(near()))
    all_three = web(pod_affinity=required(near(HOSTNAME)), pod_anti_affinity=required(near()))
    assert refusals(world, all_three) == {"a": NEAR_OWN, "b": FAR, "d": FAR}
    assert refusals(world, web(labels={"app": "db"})) == {}
    assert refusals(world, web()) == dict.fromkeys("abd", NEAR_OTHERS)


def test_each_term_of_anti_affinity_is_met_alone() -> None:
    world = place(World(in_zones(a="1", b="2")), "a", labels={"tier": "back"})
    either = required(near(), near(selector=sel(tier="back")), near("rack", selector=sel(tier="back")))
    assert refusals(world, web(pod_anti_affinity=either)) == {"a": NEAR_OWN}


def test_terminating_pods_count_for_affinity_on_both_sides() -> None:
    world = World(in_zones(a="1", b="2"))
    going = msgspec.structs.replace(web("t", pod_anti_affinity=required(near())), terminating=True)
    world.placed += [(going, "a")]
    assert refusals(world, web(labels={}, pod_affinity=required(near()))) == {"b": FAR}
    assert refusals(world, web()) == {"a": NEAR_OTHERS}


def not_in(key: str, value: str) -> LabelSelector:
    return LabelSelector((LabelRequirement(key, "NotIn", (value,)),))


@pytest.mark.parametrize(
    ("term", "seen"),
    [
        ({"namespaces": ("default",)}, {"default"}),
        ({"namespaces": (), "namespace_selector": LabelSelector()}, {"default", "red", "unknown"}),
        ({"namespaces": (), "namespace_selector": sel(team="red")}, {"red"}),
        ({"namespaces": (), "namespace_selector": not_in("team", "red")}, {"default", "red", "unknown"}),
        ({"namespaces": ("unknown",), "namespace_selector": sel(team="red")}, {"red", "unknown"}),
    ],
)
def test_own_terms_see_existing_namespaces_and_all_if_no_label_would_do(
    term: dict[str, Any], seen: set[str]
) -> None:
    """Upstream asks the selector about the labels of known namespaces, and about no labels."""
    for namespace in ("default", "red", "unknown"):
        world = World(in_zones(a="1"), namespaces={"default": {}, "red": {"team": "red"}})
        place(world, "a", namespace=namespace)
        found = refusals(world, web(pod_anti_affinity=required(near(**term))))
        assert found == ({"a": NEAR_OWN} if namespace in seen else {})


@pytest.mark.parametrize(
    ("term", "seen"),
    [
        ({"namespaces": (), "namespace_selector": LabelSelector()}, {"default", "red", "unknown"}),
        ({"namespaces": (), "namespace_selector": sel(team="red")}, {"red"}),
        ({"namespaces": (), "namespace_selector": not_in("team", "red")}, {"default", "unknown"}),
    ],
)
def test_terms_of_others_take_an_unknown_namespace_for_one_without_labels(
    term: dict[str, Any], seen: set[str]
) -> None:
    world = World(in_zones(a="1"), namespaces={"default": {}, "red": {"team": "red"}})
    place(world, "a", labels={}, pod_anti_affinity=required(near(**term)))
    for namespace in ("default", "red", "unknown"):
        assert refusals(world, web(namespace=namespace)) == ({"a": NEAR_OTHERS} if namespace in seen else {})


# ------------------------------------------------------------------------------ affinity: score


def test_preferred_terms_count_both_ways_and_extremes_have_no_baseline() -> None:
    world = World(in_zones(a="1", b="2", c="3"))
    place(world, "a", "a", labels={"app": "db"}, pod_affinity=preferred((3, near())))
    place(world, "b", labels={"app": "db"}, pod_anti_affinity=preferred((4, near())))
    place(world, "c", labels={"app": "mq"})
    assert affinity_scores(world, web()) == {"a": 100, "b": 0, "c": 40}
    assert affinity_scores(world, web(), "a", "c") == {"a": 100, "c": 0}
    liking = web(labels={}, pod_affinity=preferred((10, near(selector=sel(app="db")))))
    assert affinity_scores(world, liking) == {"a": 100, "b": 50, "c": 0}
    shunning = web(labels={}, pod_anti_affinity=preferred((10, near(selector=sel(app="db")))))
    assert affinity_scores(world, shunning) == {"a": 0, "b": 50, "c": 100}
    assert affinity_scores(world, web(), "a") == {"a": 0}


def test_required_affinity_of_others_has_the_hard_weight_and_required_anti_affinity_none() -> None:
    world = World(in_zones(a="1", b="2", c="3"))
    place(world, "a", labels={}, pod_affinity=required(near()))
    place(world, "b", labels={}, pod_affinity=preferred((2, near())))
    place(world, "c", labels={}, pod_anti_affinity=required(near()))
    assert affinity_scores(world, web()) == {"a": 50, "b": 100, "c": 0}
    assert affinity_scores(world, web(), hardPodAffinityWeight=4) == {"a": 100, "b": 50, "c": 0}
    assert affinity_scores(world, web(), hardPodAffinityWeight=0) == {"a": 0, "b": 100, "c": 0}


def test_preferred_terms_of_others_can_be_ignored_for_pods_without_their_own() -> None:
    world = place(World(in_zones(a="1", b="2")), "a", labels={}, pod_affinity=preferred((2, near())))
    ignoring = {"ignorePreferredTermsOfExistingPods": True}
    assert affinity_scores(world, web(), **ignoring) == {"a": 0, "b": 0}
    nowhere = preferred((1, near(selector=sel(app="nobody"))))
    assert affinity_scores(world, web(pod_affinity=nowhere), **ignoring) == {"a": 100, "b": 0}


# ------------------------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    ("plugin", "args", "error"),
    [
        (PodTopologySpread, {"defaultingType": "Both"}, "args.defaultingType"),
        (SpreadScore, {"defaultConstraints": [{}]}, "args.defaultingType"),
        (SpreadScore, {"defaultingType": "List", "defaultConstraints": [{}]}, "whenUnsatisfiable"),
        (PodTopologySpread, {"defaultingType": "List", "defaultConstraints": [{"labelSelector": {}}]},
         "args.defaultConstraints[0].labelSelector"),
        (InterPodAffinity, {"hardPodAffinityWeight": 101}, "args.hardPodAffinityWeight"),
        (AffinityScore, {"hardPodAffinityWeight": 0.5}, "args.hardPodAffinityWeight"),
        (AffinityScore, {"ignorePreferredTermsOfExistingPods": "yes"}, "args.ignorePreferred"),
        (AffinityScore, {"weight": 1}, "args.weight"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_named(plugin: Any, args: dict[str, Any], error: str) -> None:
    with pytest.raises(FieldError) as found:
        plugin(args, "args")
    assert error in f"{found.value}"


def test_a_pod_that_weighs_anything_has_an_anchor_of_the_weigher() -> None:
    """Counters find the pods that concern them by anchors: one that is missed would never count."""
    exists = LabelSelector((LabelRequirement("app", "Exists"),))
    terms = [
        near(), near(selector=exists), near(selector=LabelSelector()), near(namespaces=("a", "b")),
        near(namespaces=(), namespace_selector=LabelSelector()),
        near(namespaces=(), namespace_selector=sel(t="r")),
    ]  # fmt: skip
    placed = [
        web(f"{namespace}-{app}", labels={"app": app}, namespace=namespace, pod_anti_affinity=required(term))
        for namespace in ("default", "a", "c")
        for app in ("web", "db")
        for term in terms
    ]
    world = World(in_zones(a="1"), [(each, "a") for each in placed], namespaces={"c": {"t": "r"}})
    weighed = 0
    for term in terms:
        asking = world.incoming(web(pod_affinity=required(term), pod_anti_affinity=required(term)))
        for rule in InterPodAffinity({}, "args").rules(asking):
            for each in placed:
                if rule.counter.weigher.weigh(counted(each), world.namespaces):
                    weighed += 1
                    anchors = {*counted(each).marks, *anchors_of_pod(each.namespace, each.labels)}
                    assert not anchors.isdisjoint(rule.counter.weigher.anchors())
    assert weighed > 50
