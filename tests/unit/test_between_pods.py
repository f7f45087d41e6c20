"""Is what a pod asks of other pods read as the Kubernetes API reads it, and every wrong field named?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from domain.manifests.objects import pod_from_manifest
from domain.model.errors import FieldError
from domain.model.events import PodUpserted
from domain.model.pods import Controller, PodSpec
from domain.model.selectors import (
    AffinityTerm,
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    SpreadConstraint,
    WeightedAffinityTerm,
)
from services.codec.decode import Decoder
from services.codec.gateway import Gateway
from services.ports.log import PODS_TOPIC
from tests.builders import Json, event, event_bytes, pod_manifest, record

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = {"matchLabels": {"app": "web"}}
IS_WEB = LabelRequirement("app", "In", ("web",))
SPREAD: Json = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": WEB,
}
TERM: Json = {"topologyKey": "zone", "labelSelector": WEB}


def every_way(manifest: Json) -> PodSpec:
    """Return a pod, read as ``plan`` and as a worker reads it, whatever of it the gateway keeps."""
    sent = Gateway().prepare(event("ADDED", manifest))
    decoder = Decoder()
    key, value = sent.entry.key, sent.entry.value
    assert value is not None
    read = [pod_from_manifest(manifest)]
    for _ in range(2):  # by what the decoder remembers, the second time
        decoded = decoder.decode(record(PODS_TOPIC, value, key)).event
        assert isinstance(decoded, PodUpserted)
        read.append(decoded.pod)
    assert read[0] == read[1] == read[2]
    assert len({pod.signature for pod in read}) == 1
    return read[0]


def pod(
    labels: Mapping[str, str] | None = None, namespace: str = "shop", *, name: str = "p", **spec: Any
) -> PodSpec:
    return every_way(pod_manifest(name, namespace, labels=labels, spec=spec))


def spread_of(labels: Mapping[str, str] | None = None, **fields: Any) -> SpreadConstraint:
    return pod(labels, topologySpreadConstraints=[SPREAD | fields]).template.spread[0]


def term_of(
    labels: Mapping[str, str] | None = None, in_namespace: str = "shop", **fields: Any
) -> AffinityTerm:
    affinity = pod(
        labels, in_namespace, affinity={"podAffinity": {REQUIRED: [TERM | fields]}}
    ).template.pod_affinity
    assert affinity is not None
    return affinity.required[0]


def test_a_spread_constraint_has_the_defaults_of_the_api() -> None:
    assert spread_of() == SpreadConstraint(
        topology_key="zone",
        max_skew=1,
        hard=True,
        selector=LabelSelector((IS_WEB,)),
        min_domains=1,
        honours_affinity=True,
        honours_taints=False,
    )


def test_every_field_of_a_spread_constraint_is_read() -> None:
    fields = {"maxSkew": 3, "minDomains": 2, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
    read = spread_of(None, **fields)
    assert (read.max_skew, read.min_domains, read.honours_affinity, read.honours_taints) == (
        3,
        2,
        False,
        True,
    )
    assert not spread_of(whenUnsatisfiable="ScheduleAnyway").hard


def test_constraints_keep_their_order() -> None:
    other = SPREAD | {"topologyKey": "rack"}
    keys = [each.topology_key for each in pod(topologySpreadConstraints=[SPREAD, other]).template.spread]
    assert keys == ["zone", "rack"]


@pytest.mark.parametrize(
    ("selector", "read"),
    [
        (None, None),
        ({}, LabelSelector()),
        (WEB, LabelSelector((IS_WEB,))),
        (
            {
                "matchLabels": {"app": "web"},
                "matchExpressions": [
                    {"key": "tier", "operator": "NotIn", "values": ["b", "a", "b"]},
                    {"key": "app", "operator": "In", "values": ["web"]},
                    {"key": "app", "operator": "Exists"},
                ],
            },
            LabelSelector(
                (LabelRequirement("app", "Exists"), IS_WEB, LabelRequirement("tier", "NotIn", ("a", "b")))
            ),
        ),
    ],
    ids=str,
)
def test_selectors(selector: Json | None, read: LabelSelector | None) -> None:
    assert spread_of(labelSelector=selector).selector == read
    assert term_of(labelSelector=selector).selector == read
    assert term_of(namespaceSelector=selector).namespace_selector == read


def test_match_label_keys_are_put_into_the_selector_by_the_labels_of_the_pod_itself() -> None:
    keys: Json = {"matchLabelKeys": ["hash", "absent"]}
    merged = LabelSelector((IS_WEB, LabelRequirement("hash", "In", ("x",))))
    assert spread_of({"hash": "x", "other": "y"}, **keys).selector == merged
    assert term_of({"hash": "x", "other": "y"}, **keys).selector == merged
    assert spread_of({}, **keys).selector == term_of(None, **keys).selector == LabelSelector((IS_WEB,))
    mismatch = term_of({"hash": "x"}, mismatchLabelKeys=["hash", "absent"]).selector
    assert mismatch == LabelSelector((IS_WEB, LabelRequirement("hash", "NotIn", ("x",))))


def test_an_empty_value_of_a_label_is_a_value() -> None:
    assert spread_of({"hash": ""}, matchLabelKeys=["hash"]).selector == LabelSelector(
        (IS_WEB, LabelRequirement("hash", "In", ("",)))
    )


def test_what_an_api_server_has_merged_is_not_merged_again() -> None:
    done = WEB | {
        "matchExpressions": [
            {"key": "hash", "operator": "In", "values": ["x"]},
            {"key": "shop", "operator": "NotIn", "values": ["s"]},
        ]
    }
    keys: Json = {"matchLabelKeys": ["hash"], "mismatchLabelKeys": ["shop"]}
    merged = LabelSelector(
        (IS_WEB, LabelRequirement("hash", "In", ("x",)), LabelRequirement("shop", "NotIn", ("s",)))
    )
    for labels in ({"hash": "x", "shop": "s"}, {"hash": "later", "shop": "later"}):
        assert term_of(labels, labelSelector=done, **keys).selector == merged
    # The scheduler itself adds those of spread, by what the labels are now.
    assert spread_of(
        {"hash": "later"}, labelSelector=done, matchLabelKeys=["hash"]
    ).selector == LabelSelector(
        tuple(sorted((*merged.requirements, LabelRequirement("hash", "In", ("later",)))))
    )


def test_pods_of_one_spec_differ_by_the_labels_that_it_names_and_by_no_other() -> None:
    decoder = Decoder()

    def read(name: str, **labels: str) -> PodSpec:
        spec = {"topologySpreadConstraints": [SPREAD | {"matchLabelKeys": ["hash"]}]}
        value = event("ADDED", pod_manifest(name, labels=labels, spec=spec))
        decoded = decoder.decode(record(PODS_TOPIC, Gateway().prepare(value).entry.value)).event
        assert isinstance(decoded, PodUpserted)
        return decoded.pod

    first, same, other = read("a", hash="x", i="1"), read("b", hash="x", i="2"), read("c", hash="y")
    assert first.template is same.template
    assert first.signature != other.signature
    assert other.template.spread[0].selector != first.template.spread[0].selector


def test_a_term_without_namespaces_means_the_pods_own() -> None:
    assert term_of(None, "shop").namespaces == ("shop",)
    assert term_of(None, "desk").namespaces == ("desk",)
    assert term_of(namespaces=["b", "a", "b"]).namespaces == ("a", "b")
    everywhere = term_of(namespaceSelector={})
    assert (everywhere.namespaces, everywhere.namespace_selector) == ((), LabelSelector())
    both = term_of(namespaces=["a"], namespaceSelector=WEB)
    assert (both.namespaces, both.namespace_selector) == (("a",), LabelSelector((IS_WEB,)))


def test_affinity_and_anti_affinity_required_and_preferred() -> None:
    own = AffinityTerm(topology_key="zone", selector=LabelSelector((IS_WEB,)), namespaces=("shop",))
    weighted = {"weight": 7, "podAffinityTerm": TERM}
    read = pod(
        affinity={"podAffinity": {REQUIRED: [TERM]}, "podAntiAffinity": {PREFERRED: [weighted]}}
    ).template
    assert read.pod_affinity == PodAffinity(required=(own,))
    assert read.pod_anti_affinity == PodAffinity(preferred=(WeightedAffinityTerm(weight=7, term=own),))
    nothing = pod(
        affinity={"podAffinity": {REQUIRED: []}, "podAntiAffinity": {}}, topologySpreadConstraints=[]
    )
    assert nothing.template == pod().template


ON = "spec.affinity.podAffinity"
SPREADS = "spec.topologySpreadConstraints"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"maxSkew": 0}, "maxSkew"),
        ({"maxSkew": None}, "maxSkew"),
        ({"maxSkew": 2**31}, "maxSkew"),
        ({"topologyKey": None}, "topologyKey"),
        ({"topologyKey": "a b"}, "topologyKey"),
        ({"whenUnsatisfiable": "Maybe"}, "whenUnsatisfiable"),
        ({"whenUnsatisfiable": None}, "whenUnsatisfiable"),
        ({"minDomains": 0}, "minDomains"),
        ({"minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway"}, "minDomains"),
        ({"nodeAffinityPolicy": "honor"}, "nodeAffinityPolicy"),
        ({"nodeTaintsPolicy": "Never"}, "nodeTaintsPolicy"),
        ({"matchLabelKeys": ["a b"]}, "matchLabelKeys[0]"),
        ({"matchLabelKeys": ["a"], "labelSelector": None}, "matchLabelKeys"),
        ({"labelSelector": {"matchLabels": {"a": "b c"}}}, "labelSelector.matchLabels.a"),
        ({"labelSelector": {"matchLabels": {"a b": "c"}}}, "labelSelector.matchLabels[a b]"),
        (
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}},
            "labelSelector.matchExpressions[0].operator",
        ),
        (
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "labelSelector.matchExpressions[0].values",
        ),
        (
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
            "labelSelector.matchExpressions[0].values",
        ),
        (
            {"labelSelector": {"matchExpressions": [{"operator": "Exists"}]}},
            "labelSelector.matchExpressions[0].key",
        ),
        ({"labelSelector": {"matchLabels": {f"k{i}": "" for i in range(65)}}}, "labelSelector"),
    ],
    ids=str,
)
def test_a_wrong_field_of_a_spread_constraint_is_named(fields: Json, path: str) -> None:
    manifest = pod_manifest("p", spec={"topologySpreadConstraints": [SPREAD | fields]})
    with pytest.raises(FieldError) as refused:
        pod_from_manifest(manifest)
    assert refused.value.path == f"object.{SPREADS}[0].{path}"
    rejected = Decoder().decode(record(PODS_TOPIC, event_bytes("ADDED", manifest))).rejected
    assert rejected is not None
    assert (rejected.path, rejected.message) == (refused.value.path, refused.value.message)


def test_a_second_constraint_with_key_and_action_of_another_is_refused() -> None:
    with pytest.raises(FieldError, match=r"topologySpreadConstraints\[1\].*second with topologyKey zone"):
        pod(topologySpreadConstraints=[SPREAD, SPREAD | {"maxSkew": 2}])
    soft = SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}
    assert len(pod(topologySpreadConstraints=[SPREAD, soft]).template.spread) == 2


@pytest.mark.parametrize(
    ("affinity", "path"),
    [
        ({REQUIRED: [TERM | {"topologyKey": ""}]}, f"{REQUIRED}[0].topologyKey"),
        ({REQUIRED: [TERM | {"namespaces": ["A"]}]}, f"{REQUIRED}[0].namespaces[0]"),
        (
            {REQUIRED: [TERM | {"matchLabelKeys": ["a"], "mismatchLabelKeys": ["b", "a"]}]},
            f"{REQUIRED}[0].mismatchLabelKeys[1]",
        ),
        ({REQUIRED: [{"topologyKey": "z", "mismatchLabelKeys": ["a"]}]}, f"{REQUIRED}[0].mismatchLabelKeys"),
        ({PREFERRED: [{"weight": 0, "podAffinityTerm": TERM}]}, f"{PREFERRED}[0].weight"),
        ({PREFERRED: [{"weight": 101, "podAffinityTerm": TERM}]}, f"{PREFERRED}[0].weight"),
        ({PREFERRED: [{"weight": 1}]}, f"{PREFERRED}[0].podAffinityTerm.topologyKey"),
        (
            {REQUIRED: [TERM | {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "x"}]}}]},
            f"{REQUIRED}[0].namespaceSelector.matchExpressions[0].operator",
        ),
        ({REQUIRED: [7]}, f"{REQUIRED}[0]"),
    ],
    ids=str,
)
def test_a_wrong_field_of_a_term_is_named(affinity: Json, path: str) -> None:
    with pytest.raises(FieldError) as refused:
        pod_from_manifest(pod_manifest("p", affinity={"podAffinity": affinity}))
    assert refused.value.path == f"object.{ON}.{path}"


def test_constraints_and_terms_are_bounded_by_name() -> None:
    many = [SPREAD | {"topologyKey": f"k{i}"} for i in range(17)]
    with pytest.raises(FieldError, match="spread_constraints_per_pod_max"):
        pod(topologySpreadConstraints=many)
    assert len(pod(topologySpreadConstraints=many[:16]).template.spread) == 16
    terms = {"podAffinity": {REQUIRED: [TERM] * 32}}
    assert pod(affinity=terms).template.pod_affinity is not None
    with pytest.raises(FieldError, match="pod_affinity_terms_max"):
        pod(affinity=terms | {"podAntiAffinity": {REQUIRED: [TERM]}})
    with pytest.raises(FieldError, match="namespaces_per_term_max"):
        term_of(namespaces=["a"] * 257)
    with pytest.raises(FieldError, match="values_per_selector_max"):
        term_of(labelSelector={"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"] * 1001}]})


def owned(*owners: Json, **metadata: Any) -> Json:
    manifest = pod_manifest("p", node_name="n")
    manifest["metadata"] |= {"ownerReferences": list(owners)} | metadata
    return manifest


REPLICA_SET = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web-7f",
    "uid": "u-1",
    "controller": True,
}


@pytest.mark.parametrize(
    ("owner", "read"),
    [
        (REPLICA_SET, Controller("ReplicaSet", "web-7f", "u-1")),
        (REPLICA_SET | {"kind": "StatefulSet"}, Controller("StatefulSet", "web-7f", "u-1")),
        (
            REPLICA_SET | {"kind": "ReplicationController", "apiVersion": "v1"},
            Controller("ReplicationController", "web-7f", "u-1"),
        ),
        (REPLICA_SET | {"apiVersion": "extensions/v1beta1"}, None),
        (REPLICA_SET | {"kind": "Job", "apiVersion": "batch/v1"}, None),
        (REPLICA_SET | {"controller": False}, None),
        ({"name": "web-7f"}, None),
    ],
    ids=str,
)
def test_the_controller_of_a_pod_is_read_where_its_selector_could_matter(
    owner: Json, read: Controller | None
) -> None:
    other = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}
    assert every_way(owned(other, owner)).controller == read


def test_a_wrong_controller_is_named() -> None:
    refs = "object.metadata.ownerReferences"
    for owners, path in (
        ([REPLICA_SET, REPLICA_SET | {"uid": "u-2"}], f"{refs}[1].controller"),
        ([REPLICA_SET | {"name": ""}], f"{refs}[0].name"),
        ([REPLICA_SET | {"uid": None}], f"{refs}[0].uid"),
    ):
        with pytest.raises(FieldError) as refused:
            pod_from_manifest(owned(*owners))
        assert refused.value.path == path


def test_a_bound_pod_with_a_deletion_timestamp_terminates_and_a_waiting_one_is_over() -> None:
    at = {"deletionTimestamp": "2024-05-01T12:00:00Z"}
    bound = every_way(owned(**at))
    assert (bound.terminating, bound.finished) == (True, False)
    manifest = owned(**at)
    del manifest["spec"]["nodeName"]
    waiting = every_way(manifest)
    assert (waiting.terminating, waiting.finished) == (False, True)
    assert not every_way(owned()).terminating
