"""What can a producer with write access do to others through the content of events?

Everything here goes the way of a record: decode, fold, place, and the rows of the ledger, in memory.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from domain.engine.evaluate import evaluate
from domain.manifests.objects import pod_from_manifest
from domain.model.limits import (
    pods_per_node_max,
    resource_names_max,
    resource_value_max,
    usage_ahead_seconds_max,
)
from domain.state.cluster import ClusterState
from domain.state.resources import NOWHERE
from services.adapters.memory.database import MemoryDatabase
from services.codec.decode import Decoder
from services.codec.envelope import Rejected
from services.ports.journal import positions_of
from services.ports.ledger import CommitBatch, Committed, DeadLetter, NodeRow, NotCommitted
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, Record
from tests.builders import (
    Json,
    event_bytes,
    node_manifest,
    pod_manifest,
    priority_class_manifest,
    profile_manifest,
    record,
    usage_manifest,
)
from tests.property.site import Site, audit, kept

HUGE = 2**63 - 1
NOW_MS = 1_700_000_000_000


@pytest.fixture
def site() -> Site:
    """A worker that offers one node of 8 CPUs."""
    site = Site()
    site.tell("ADDED", node_manifest("n1", cpu=8))
    return site


def letters(site: Site) -> list[DeadLetter]:
    return [letter for rows in site.database.dead_letters.values() for letter in rows]


def refusals(site: Site) -> list[tuple[str, str]]:
    """Return code and field of each dead letter."""
    return [(letter.code, letter.path) for letter in letters(site)]


def counted(site: Site) -> dict[str, str]:
    """Return the pods that count on a node, and where."""
    return {p.spec.key: p.node for p in site.planner.scheduler.state.pods.values() if p.node}


def row(site: Site, node: str) -> NodeRow:
    """Return what the ledger has of a node."""
    return next(each for each in site.database.nodes.values() if each.name == node)


def rejected(topic: str, raw: bytes, key: bytes | None = None) -> Rejected | None:
    return Decoder().decode(record(topic, raw, key=key)).rejected


def same_after_restart(site: Site) -> None:
    """Check that what the ledger holds makes the same state again."""
    audit(site)
    assert kept(site.restarted()) == kept(site.planner)


# ---------------------------------------------------------------------------------------- uids and deletions


def test_a_deletion_reaches_no_pod_but_the_one_of_its_namespace_and_name(site: Site) -> None:
    site.tell("ADDED", pod_manifest("web", "victim", cpu=1, uid="u1"), pod_manifest("bare", "victim", cpu=1))
    before = counted(site)
    attacks = [
        pod_manifest("web", "evil"),
        pod_manifest("web", "evil", uid="u1", resource_version=HUGE),
        pod_manifest("x", "evil", uid="victim.bare"),
        pod_manifest("web", "victim", uid="another"),
    ]
    site.tell("DELETED", *attacks)
    assert counted(site) == before == {"victim/web": "n1", "victim/bare": "n1"}
    same_after_restart(site)


@pytest.mark.parametrize("attack_uid", ["u1", "victim/web"])
@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED"])
@pytest.mark.parametrize("node", [None, "n1"])
def test_a_uid_in_use_is_taken_from_nobody(site: Site, kind: str, node: str | None, attack_uid: str) -> None:
    uid = None if attack_uid == "victim/web" else attack_uid
    site.tell("ADDED", pod_manifest("web", "victim", cpu=1, uid=uid, resource_version=5))
    site.tell("ADDED", pod_manifest("mine", "evil", cpu=1, uid="own"))
    attack = [
        pod_manifest("x", "evil", cpu=2, uid=attack_uid, node_name=node, resource_version=HUGE),
        pod_manifest("mine", "evil", cpu=2, uid=attack_uid, node_name=node, resource_version=HUGE),
        pod_manifest("y", "evil", uid=attack_uid, phase="Succeeded", resource_version=HUGE),
    ]
    site.tell(kind, *attack)
    code = "invalid-field" if uid is None else "uid-taken"
    assert refusals(site) == [(code, "object.metadata.uid")] * 3
    assert counted(site) == {"victim/web": "n1", "evil/mine": "n1"}, "a refused event changes nothing at all"
    site.tell("DELETED", pod_manifest("web", "victim", uid=uid, resource_version=6))
    assert counted(site) == {"evil/mine": "n1"}
    same_after_restart(site)


def test_the_uid_of_a_pod_without_one_cannot_be_occupied_beforehand(site: Site) -> None:
    site.tell("ADDED", pod_manifest("x", "evil", cpu=1, uid="victim/web"))
    assert refusals(site) == [("invalid-field", "object.metadata.uid")]
    site.tell("ADDED", pod_manifest("web", "victim", cpu=1))
    assert counted(site) == {"victim/web": "n1"}


def test_who_holds_a_uid_first_keeps_it_and_the_other_learns_the_namespace_only(site: Site) -> None:
    site.tell("ADDED", pod_manifest("secret-name", "evil", cpu=1, uid="guessed"))
    site.tell("ADDED", pod_manifest("web", "victim", cpu=1, uid="guessed"))
    (letter,) = letters(site)
    assert (letter.code, letter.path) == ("uid-taken", "object.metadata.uid")
    assert "namespace evil" in letter.message
    assert "secret-name" not in letter.message
    site.tell("DELETED", pod_manifest("secret-name", "evil", uid="guessed", resource_version=HUGE))
    site.tell("ADDED", pod_manifest("web", "victim", cpu=1, uid="guessed", resource_version=3))
    assert counted(site) == {"victim/web": "n1"}, "what is remembered of a pod that is gone is its name's"
    same_after_restart(site)


def test_what_stands_for_a_missing_uid_may_be_written_out(site: Site) -> None:
    site.tell("ADDED", pod_manifest("web", "a", cpu=1))
    site.tell("MODIFIED", pod_manifest("web", "a", cpu=2, uid="a/web"))
    site.tell("DELETED", pod_manifest("web", "a", uid="a/web"))
    assert (letters(site), counted(site)) == ([], {})


# ------------------------------------------------------------------------------------------ resource versions


@pytest.mark.parametrize("waits", [False, True])
def test_a_deletion_of_the_pods_own_uid_holds_whatever_versions_were_seen(site: Site, *, waits: bool) -> None:
    cpu = 99 if waits else 1
    site.tell("ADDED", pod_manifest("web", "a", cpu=cpu, uid="u1", resource_version=5))
    site.tell("MODIFIED", pod_manifest("web", "a", cpu=cpu, uid="u1", resource_version=HUGE))
    site.tell("DELETED", pod_manifest("web", "a", uid="u1", resource_version=6))
    assert site.planner.scheduler.state.pods == {}
    site.tell("MODIFIED", pod_manifest("web", "a", cpu=cpu, uid="u1", resource_version=5))
    assert site.planner.scheduler.state.pods == {}, "a late event does not bring it back"
    same_after_restart(site)


def test_what_is_remembered_of_one_pod_keeps_no_later_pod_of_the_name_out(site: Site) -> None:
    site.tell("ADDED", pod_manifest("web", "a", cpu=1, uid="u1", resource_version=HUGE))
    site.tell("DELETED", pod_manifest("web", "a", uid="u1", resource_version=HUGE))
    site.planner = site.restarted()
    site.tell("ADDED", pod_manifest("web", "a", cpu=1, uid="u2", resource_version=7))
    assert counted(site) == {"a/web": "n1"}
    site.tell("DELETED", pod_manifest("web", "a", uid="u2", resource_version=8))
    late = [pod_manifest("web", "a", uid=uid, resource_version=7) for uid in ("u1", "u2")]
    site.tell("ADDED", *late)
    assert counted(site) == {}, "late events of each of them stay late"
    same_after_restart(site)


def test_a_late_event_of_a_pod_that_is_gone_replaces_no_later_one(site: Site) -> None:
    site.tell("ADDED", pod_manifest("web", "a", cpu=1, uid="u1", resource_version=HUGE))
    site.tell("DELETED", pod_manifest("web", "a", uid="u1", resource_version=6))
    site.tell("ADDED", pod_manifest("web", "a", cpu=1, uid="u2", resource_version=7))
    site.tell("ADDED", pod_manifest("web", "a", cpu=1, uid="u1", resource_version=HUGE))
    assert [pod.spec.uid for pod in site.planner.scheduler.state.pods.values()] == ["u2"]
    same_after_restart(site)


def test_events_that_are_dropped_as_older_are_counted(site: Site) -> None:
    site.tell("ADDED", pod_manifest("web", "a", cpu=1, resource_version=HUGE))
    batch = plan(site, "MODIFIED", pod_manifest("web", "a", cpu=2, resource_version=6))
    assert batch.decisions.skipped == {"older": 1}
    assert plan(site, "DELETED", pod_manifest("web", "a", resource_version=7)).decisions.skipped == {
        "older": 1
    }
    assert plan(site, "DELETED", pod_manifest("web", "a", uid="u")).decisions.skipped == {"other-uid": 1}
    assert plan(site, "DELETED", pod_manifest("web", "b")).decisions.skipped == {"known": 1}


def plan(site: Site, kind: str, manifest: Json) -> CommitBatch:
    """Plan one event, commit the batch, and return it."""
    batches: list[CommitBatch] = []
    apply = MemoryDatabase.apply

    def noted(database: MemoryDatabase, batch: CommitBatch) -> Committed | NotCommitted:
        batches.append(batch)
        return apply(database, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryDatabase, "apply", noted)
        site.tell(kind, manifest)
    return batches[0]


@pytest.mark.parametrize("uid", [None, "u1"])
def test_a_node_has_a_way_out_of_a_version_that_is_too_high(site: Site, uid: str | None) -> None:
    site.tell("ADDED", node_manifest("n2", cpu=4, uid=uid, resource_version=HUGE))
    way_out = node_manifest("n2", uid=uid, resource_version=6 if uid else None)
    site.tell("DELETED", way_out)
    assert row(site, "n2").deleted
    site.planner = site.restarted()
    site.tell("ADDED", node_manifest("n2", cpu=16, uid="u2", resource_version=7))
    site.tell("MODIFIED", node_manifest("n2", cpu=32, uid="u2", resource_version=8))
    spec = site.planner.scheduler.state.nodes["n2"].spec
    assert spec is not None
    assert spec.allocatable["cpu"] == 32_000
    same_after_restart(site)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (profile_manifest("p"), profile_manifest("p", "LeastAllocated")),
        (priority_class_manifest("p", 1), priority_class_manifest("p", 2)),
    ],
    ids=["profile", "priority class"],
)
def test_configuration_has_a_way_out_of_a_version_that_is_too_high(
    site: Site, wrong: Json, right: Json
) -> None:
    site.tell("ADDED", versioned(wrong, HUGE))
    before = configuration(site)
    site.tell("MODIFIED", versioned(right, 7))
    assert configuration(site) == before, "it is older"
    site.tell("DELETED", right)
    site.planner = site.restarted()
    site.tell("ADDED", versioned(right, 8))
    assert configuration(site) != before
    site.tell("MODIFIED", versioned(wrong, 7))
    assert letters(site) == []
    same_after_restart(site)


def versioned(manifest: Json, version: int) -> Json:
    return manifest | {"metadata": manifest["metadata"] | {"resourceVersion": str(version)}}


def configuration(site: Site) -> Any:
    """Return the profile and the class that are called p."""
    profiles = site.planner.scheduler.profiles.plans
    config = site.planner.scheduler.state.config.known
    plan = profiles.get("p")
    return plan and plan.profile.scores, [(thing.name, thing.content) for thing in config.values()]


# ------------------------------------------------------------------------------------- sums, and what is used


def test_a_pod_that_the_log_puts_on_a_node_counts_there_and_says_what_it_did(site: Site) -> None:
    site.tell("ADDED", pod_manifest("x", "evil", cpu=2_000, node_name="n1"), pod_manifest("web", "victim"))
    by_name = {decision["pod"]["name"]: decision for decision in site.decided()}
    assert by_name["x"]["outcome"] == "adopted"
    assert by_name["x"]["reasons"] == {"overcommitted:cpu": 1}
    assert row(site, "n1").requested["cpu"] == 2_000_000


def test_no_sum_of_limits_leaves_what_a_column_can_hold(site: Site) -> None:
    """The limits of one pod's containers may add up to no more than one resource may be."""
    resources = {"requests": {"memory": "1"}, "limits": {"memory": str(resource_value_max)}}
    containers = [{"name": f"c{i}", "resources": resources} for i in range(256)]
    site.tell("ADDED", pod_manifest("x", "evil", node_name="n1", spec={"containers": containers}))
    assert refusals(site) == [("invalid-field", "object.spec.containers")]


def test_columns_hold_the_sums_of_a_node_that_is_full_of_the_largest_pods(site: Site) -> None:
    big, cores = str(resource_value_max), "1000000"
    resources = {
        "requests": {"memory": big, "cpu": "1m", "ephemeral-storage": big},
        "limits": {"memory": big, "cpu": cores, "ephemeral-storage": big},
    }
    spec = {"containers": [{"name": "c", "resources": resources}]}
    pods = [pod_manifest(f"p{i}", "evil", node_name="n1", spec=spec) for i in range(pods_per_node_max + 1)]
    site.tell("ADDED", *pods)
    assert refusals(site) == [("conflict", "object.spec.nodeName")]
    table = site.planner.scheduler.state.table
    assert (table.requested[:, 0] >= 0).all()
    assert row(site, "n1").requested["memory"] == resource_value_max * pods_per_node_max
    site.tell("ADDED", node_manifest("n2", cpu=2), pod_manifest("web", "victim", cpu=1))
    assert counted(site)["victim/web"] == "n2"
    same_after_restart(site)


SCORES: dict[str, list[Json]] = {
    "least": [{"name": "NodeResourcesFit"}],
    "most": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}],
    "balanced": [{"name": "NodeResourcesBalancedAllocation"}],
    "risk": [{"name": "LowRiskOverCommitment"}],
    "target": [{"name": "TargetLoadPacking"}],
    "variance": [{"name": "GlobalVariance"}],
    "offer": [{"name": "NodeResourcesAllocatable"}],
}


def test_no_score_overflows_on_a_node_full_of_the_largest_pods(site: Site) -> None:
    big, extended = str(resource_value_max), {"x.io/a": str(resource_value_max)}
    offers: dict[str, Any] = extended | {"ephemeral-storage": big}
    site.tell("ADDED", node_manifest("full", cpu=1_000_000, memory=big, pods=pods_per_node_max, **offers))
    requests = {"memory": big, "cpu": "1000000", **offers}
    limits = {"memory": big, "cpu": "1000000"}
    for i, resources in enumerate(({"requests": requests}, {"requests": {"cpu": "1m"}, "limits": limits})):
        spec = {"containers": [{"name": "c", "resources": resources}]}
        pods = [pod_manifest(f"p{i}-{j}", "evil", node_name="full", spec=spec) for j in range(2_000)]
        site.tell("ADDED", *pods)
    scheduler = site.planner.scheduler
    for name, scores in SCORES.items():
        site.tell("ADDED", profile_manifest(name, scores=scores))
        pod = pod_manifest(name, "victim", scheduler_name=name)
        verdict = evaluate(scheduler.state, scheduler.profiles.plans[name], pod_from_manifest(pod))
        site.tell("ADDED", pod)
        assert counted(site)[f"victim/{name}"] == verdict.node, name
        parts = [part for each in verdict.score_parts.values() for part in each.values()]
        assert len(parts) == 2, "a pod that asks for nothing fits both nodes"
        assert all(0 <= part <= 100 for part in parts), name


def test_a_measurement_lies_no_further_ahead_than_clocks_differ(site: Site) -> None:
    def measured(at: str, percent: int) -> Record:
        raw = event_bytes("ADDED", usage_manifest("n1", percent={"cpu": percent}), at=at)
        return Record(USAGE_TOPIC, 0, positions_of(site.planner.offsets())[USAGE_TP], b"n1", raw, NOW_MS)

    site.take([measured("2023-11-15T21:13:20Z", 100)])  # 23 hours ahead
    assert refusals(site) == [("invalid-field", "at")]
    site.take([measured("2023-11-14T22:13:21Z", 40)])
    assert site.planner.scheduler.state.usage.measured["n1"]["cpu"].latest == 40
    assert usage_ahead_seconds_max <= 60


USAGE_TP = next(at for at in positions_of(Site().planner.offsets()) if at.topic == USAGE_TOPIC)


@pytest.mark.parametrize("number", ["-1", "1e308", "10001", "1" + "0" * 400, "-1" + "0" * 400, "true", '"9"'])
@pytest.mark.parametrize("field", ['"percent":{"cpu":%s}', '"window":{"cpu":{"avg":%s}}'])
def test_a_measurement_is_a_number_in_its_range(field: str, number: str) -> None:
    """A whole number of 400 digits ended the worker, again and again: no float holds it."""
    head = '{"type":"ADDED","object":{"kind":"NodeUsage","apiVersion":"berth/v1","metadata":{"name":"n1"},'
    refused = rejected(USAGE_TOPIC, (head + field % number + "}}").encode())
    assert refused is not None
    assert refused.path.startswith("object.")


def test_nobody_counts_among_the_masters_of_another_namespaces_cluster() -> None:
    site = Site()
    site.tell("ADDED", profile_manifest("shared", filters=["NodeResourcesFit", "MasterShare"]))
    labels = {"berth.io/cluster": "db", "berth.io/role": "master"}
    site.tell("ADDED", node_manifest("n1", cpu=8))
    attack = [pod_manifest(f"x{i}", "evil", node_name="n1", labels=labels) for i in range(3)]
    site.tell("ADDED", *attack)
    site.tell("ADDED", pod_manifest("db", "victim", labels=labels, scheduler_name="shared"))
    assert counted(site)["victim/db"] == "n1", "its share of the node was used up by others"
    site.tell("ADDED", pod_manifest("db-2", "victim", labels=labels, scheduler_name="shared"))
    assert "victim/db-2" not in counted(site), "the masters of others let no more of them share a node"
    same_after_restart(site)


# ---------------------------------------------------------------------------------------- what records may be


@pytest.mark.parametrize(
    "number", ["1e400", "9" * 400, "-" + "9" * 5000, '"1e60"', '"' + "9" * 64 + '"', "NaN"]
)
@pytest.mark.parametrize(
    ("topic", "thing"),
    [
        (PODS_TOPIC, '"kind":"Pod","spec":{"containers":[{"resources":{"requests":{"cpu":%s}}}]}'),
        (PODS_TOPIC, '"kind":"Pod","spec":{"priority":%s,"containers":[{}]}'),
        (PODS_TOPIC, '"kind":"Pod","spec":{"containers":[{"ports":[{"hostPort":%s}]}]}'),
        (NODES_TOPIC, '"kind":"Node","status":{"allocatable":{"cpu":%s}}'),
        (CONFIG_TOPIC, '"kind":"PriorityClass","apiVersion":"scheduling.k8s.io/v1","value":%s'),
        (
            CONFIG_TOPIC,
            '"kind":"SchedulingProfile","apiVersion":"berth/v1","spec":{"filters":["NodeResourcesFit"],'
            '"scores":[{"name":"NodeResourcesFit","weight":%s}]}',
        ),
    ],
)
def test_no_number_ends_the_worker(topic: str, thing: str, number: str) -> None:
    raw = '{"type":"ADDED","object":{"metadata":{"name":"x"},' + thing % number + "}}"
    assert rejected(topic, raw.encode()) is not None


def test_the_key_of_a_record_is_its_objects(site: Site) -> None:
    """The key decides the partition, and with it the order: another's key would reorder another's events."""
    for kind in ("ADDED", "DELETED"):
        refused = rejected(PODS_TOPIC, event_bytes(kind, pod_manifest("y", "team-b")), b"team-a/x")
        assert refused is not None
        assert (refused.code, refused.path) == ("key-mismatch", "key")
    for topic, thing in (
        (NODES_TOPIC, node_manifest("n")),
        (USAGE_TOPIC, usage_manifest("n", percent={"cpu": 1})),
    ):
        refused = rejected(topic, event_bytes("ADDED", thing), b"m")
        assert refused is not None
        assert refused.code == "key-mismatch"


def long_name(i: int) -> str:
    return f"{i}{'x' * 300_000}"


@pytest.mark.parametrize(
    "manifest",
    [
        lambda i: pod_manifest("p", labels={long_name(i): "a"}),
        lambda i: pod_manifest("p", labels={"a": long_name(i)}),
        lambda i: pod_manifest("p", long_name(i)),
        lambda i: pod_manifest("p", node_name=long_name(i)),
        lambda i: pod_manifest("p", cpu=long_name(i)),
        lambda i: pod_manifest("p", node_selector={long_name(i): "a"}),
        lambda i: pod_manifest("p") | {"status": {"nominatedNodeName": long_name(i)}},
    ],
    ids=["label", "value", "namespace", "node", "quantity", "selector", "nominated"],
)
def test_nothing_long_is_kept_of_what_is_refused(manifest: Callable[[int], Json]) -> None:
    """Names that were looked up were kept, 16,000 of them, each as long as a record may be: 14 GiB."""
    decoder = Decoder()
    raws = [event_bytes("ADDED", manifest(i)) for i in range(20)]
    decoder.decode(record(PODS_TOPIC, raws[0]))  # what is made once is none of it
    tracemalloc.start()
    try:
        assert None not in [decoder.decode(record(PODS_TOPIC, raw)).rejected for raw in raws]
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 2_000_000


EXISTS = {"key": "a", "operator": "Exists"}


@pytest.mark.parametrize(
    ("term", "bound"),
    [
        ([{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * 10_000, "terms_per_affinity_max"),
        (
            [{"matchExpressions": [{"key": "a", "operator": "Exists"}] * 10_000}],
            "requirements_per_affinity_max",
        ),
    ],
)
def test_affinity_is_bounded(term: list[Json], bound: str) -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": term}}
    pod = pod_manifest("p", affinity={"nodeAffinity": required})
    refused = rejected(PODS_TOPIC, event_bytes("ADDED", pod))
    assert refused is not None
    assert bound in refused.message


# --------------------------------------------------------------------------------------- names that are kept


def odd(i: int) -> dict[str, Any]:
    """Return requests of resources that nobody offers, each pod its own."""
    return dict.fromkeys([f"evil.example/r{i}-{j}" for j in range(8)], 1)


def test_what_pods_ask_for_takes_no_column_from_those_who_offer(site: Site) -> None:
    attack = [pod_manifest(f"w{i}", "evil", cpu=1, **odd(i)) for i in range(resource_names_max // 8)]
    bound = [
        pod_manifest(f"b{i}", "evil", cpu=0, node_name="n1", **odd(10_000 + i))
        for i in range(resource_names_max // 8)
    ]
    site.tell("ADDED", *attack, *bound)
    gpu: dict[str, Any] = {"example.com/gpu": 2}
    site.tell("ADDED", node_manifest("n2", cpu=8, **gpu), pod_manifest("train", "victim", cpu=1, **gpu))
    assert (refusals(site), counted(site)["victim/train"]) == ([], "n2")
    assert len(site.planner.scheduler.state.resources) < 20
    reason = next(d["reasons"] for d in site.decided() if d["pod"]["name"] == "w3")
    assert reason == {",".join(f"insufficient:evil.example/r3-{j}" for j in range(8)): 1}
    assert row(site, "n1").requested["evil.example/r10000-0"] == 1, "what runs there is told in full"
    same_after_restart(site)


def test_profiles_take_no_columns_either(site: Site) -> None:
    for i in range(40):
        resources = [{"name": f"evil.example/r{i}-{j}"} for j in range(30)]
        args = {"scoringStrategy": {"type": "LeastAllocated", "resources": resources}}
        profile = profile_manifest(f"p{i}", scores=[{"name": "NodeResourcesFit", "args": args}])
        site.tell("ADDED", profile)
        site.tell("ADDED", pod_manifest(f"w{i}", "evil", cpu="10m", scheduler_name=f"p{i}"))
    assert refusals(site) == []
    assert len(site.planner.scheduler.state.resources) < 20
    same_after_restart(site)


def test_a_resource_has_a_column_while_a_node_offers_it(site: Site) -> None:
    gpu: dict[str, Any] = {"example.com/gpu": 1}
    offers: dict[str, Any]
    site.tell("ADDED", pod_manifest("here", "a", node_name="n1", **gpu), pod_manifest("waits", "a", **gpu))
    first = {"overcommitted:example.com/gpu": 1}
    assert [d["reasons"] for d in site.decided() if d["pod"]["name"] == "here"] == [first]
    for round in range(3):
        offers = gpu | {f"x.io/{round}": 3}
        site.tell("ADDED", node_manifest(f"g{round}", cpu=1, **offers))
        assert counted(site)["a/waits"] == f"g{round}", "a node that brings what was missing wakes the pod"
        assert row(site, "n1").requested["example.com/gpu"] == 1
        same_after_restart(site)
        site.tell("DELETED", node_manifest(f"g{round}"), pod_manifest("waits", "a"))
        assert row(site, "n1").requested["example.com/gpu"] == 1
        same_after_restart(site)
        site.tell("ADDED", pod_manifest("waits", "a", **gpu))
    assert len(site.planner.scheduler.state.resources) < 20
    site.tell("DELETED", pod_manifest("here", "a"))
    assert "example.com/gpu" not in row(site, "n1").requested


def audit_columns(state: ClusterState) -> None:
    """Compare each column with what nodes offer and pods ask for."""
    table = state.table
    offered = {name for spec in table.specs for name in spec.allocatable}
    assert {name for _, name in state.resources.visible()} == offered | set(FIXED)
    for row, name in enumerate(table.names):
        pods = [pod.spec.template for pod in state.nodes[name].pods.values()]
        for column, resource in state.resources.visible():
            held = len(pods) if resource == "pods" else sum(p.requests.get(resource, 0) for p in pods)
            assert table.requested[column, row] == held
            assert table.allocatable[column, row] == table.specs[row].allocatable.get(resource, 0)
    assert not table.requested[NOWHERE].any()


FIXED = ("cpu", "memory", "ephemeral-storage", "pods")


@pytest.mark.parametrize("seed", range(12))
def test_columns_that_come_and_go_change_nothing_that_is_told(seed: int) -> None:
    """Play nodes and pods with few resource names, and start again from the ledger now and then."""
    random, site, straight = Random(seed), Site(), Site()
    names = [f"x.io/{i}" for i in range(4)]
    for version in range(1, 80):
        of: dict[str, Any] = dict.fromkeys(random.sample(names, random.randrange(3)), random.randrange(1, 4))
        kind = random.choice(("ADDED", "MODIFIED", "DELETED"))
        if random.random() < 0.4:
            thing = node_manifest(f"n{random.randrange(4)}", cpu=4, resource_version=version, **of)
        else:
            on = random.choice((None, None, "n0", "n1", "n9"))
            thing = pod_manifest(
                f"p{random.randrange(8)}", "a", cpu=1, node_name=on, resource_version=version, **of
            )
        for each in (site, straight):
            each.tell(kind, thing)
        same_after_restart(site)
        audit_columns(site.planner.scheduler.state)
        if random.random() < 0.2:
            site.planner = site.restarted()
    assert site.accepted() == straight.accepted()
    assert [d["outcome"] for d in site.decided()] == [d["outcome"] for d in straight.decided()]
    assert [d["reasons"] for d in site.decided()] == [d["reasons"] for d in straight.decided()]


def test_nodes_that_only_pods_name_leave_nothing_when_the_pods_are_gone(site: Site) -> None:
    pods = [pod_manifest(f"p{i}", "evil", node_name=f"invented-{i}") for i in range(50)]
    site.tell("ADDED", *pods)
    site.tell("DELETED", *pods)
    assert list(site.planner.scheduler.state.nodes) == ["n1"]
    same_after_restart(site)
