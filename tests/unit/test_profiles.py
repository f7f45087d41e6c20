"""Do events about profiles change decisions from the next cycle on, and never by halves?"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest

from domain.cycle.schedule import Scheduler
from domain.engine import profiles as profiles_module
from domain.engine.profiles import Profiles
from domain.engine.verdicts import CycleResult, Failure, Placement
from domain.manifests.profile import profile_from_manifest, profile_from_spec, profile_to_spec
from domain.model.decisions import Attempt
from domain.model.errors import FieldError
from domain.model.events import (
    Event,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    ProfileDeleted,
    ProfileEvent,
    ProfileUpserted,
)
from domain.model.profiles import BUILT_IN_PROFILES, PluginUse, Profile, ProfileRevision
from domain.state.changes import Change, ProfileChanged, Refused, Skipped
from services.codec.decode import Decoded, Decoder
from services.ports.log import CONFIG_TOPIC
from tests.builders import Json, event_bytes, profile_manifest, record
from tests.values import node, pod, template

KEY = b"SchedulingProfile/batch"


def decode(value: bytes | None, key: bytes | None = KEY) -> Decoded:
    return Decoder().decode(record(CONFIG_TOPIC, value, key))


def of(name: str, strategy: str = "MostAllocated") -> Profile:
    return profile_from_manifest(profile_manifest(name, strategy))


# --------------------------------------------------------------------------------------------- decoding


def test_an_event_brings_a_profile() -> None:
    thing = profile_manifest("batch", resource_version=7, schedulerName="batch")
    decoded = decode(event_bytes("MODIFIED", thing))
    assert decoded.event == ProfileUpserted(of("batch"), 7)
    assert decode(event_bytes("ADDED", thing), None).event == decoded.event


@pytest.mark.parametrize("value", [None, event_bytes("DELETED", profile_manifest("batch", spec=0))])
def test_a_deletion_and_a_tombstone_need_no_more_than_the_name(value: bytes | None) -> None:
    assert decode(value).event == ProfileDeleted("batch")


def score(**use: Any) -> Json:
    return profile_manifest("batch", scores=[{"name": "NodeResourcesFit", **use}])


BAD: dict[str, tuple[Json, str, str]] = {
    "argument": (
        score(args={"scoringStrategy": {"type": "Most"}}),
        "object.spec.scores[0].args.scoringStrategy.type",
        "'Most' is not allowed; allowed are LeastAllocated, MostAllocated, RequestedToCapacityRatio",
    ),
    "weight": (score(weight=0), "object.spec.scores[0].weight", "out of range"),
    "plugin": (profile_manifest("batch", filters=["No"]), "object.spec.filters[0].name", "allowed: Node"),
    "twice": (
        profile_manifest("batch", filters=["NodeResourcesFit", "NodeResourcesFit"]),
        "object.spec.filters[1].name",
        "a filter counts once",
    ),
    "field": (profile_manifest("batch", plugins={}), "object.spec.plugins", "unknown; allowed are"),
    "revision": (profile_manifest("batch", revision=5), "object.spec.revision", "unknown"),
    "no filters": (profile_manifest("batch", filters=None), "object.spec.filters", "is missing"),
    "no room": (profile_manifest("batch", filters=["NodeName"]), "object.spec.filters", "NodeResourcesFit"),
    "other name": (profile_manifest("batch", schedulerName="x"), "object.spec.schedulerName", "allowed is"),
    "no spec": (profile_manifest("batch") | {"spec": None}, "object.spec", "is missing"),
    "text": (profile_manifest("batch") | {"spec": "x"}, "object.spec", "expected an object"),
    "no name": (profile_manifest("batch") | {"metadata": None}, "object.metadata.name", "is missing"),
    "name": (profile_manifest("No Name"), "object.metadata.name", "DNS-1123"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_profile_is_refused_with_the_path_and_what_is_allowed(case: str) -> None:
    thing, path, said = BAD[case]
    decoded = decode(event_bytes("ADDED", thing), None)
    assert decoded.event is None
    assert decoded.rejected is not None
    assert (decoded.rejected.code, decoded.rejected.path) == ("invalid-field", path)
    assert said in decoded.rejected.message


@pytest.mark.parametrize(
    ("number", "path"),
    [
        (b"9" * 400, "object.spec.scores[0].weight"),
        (b"9" * 5000, "object.spec"),
        (b"1e999", "object.spec"),
        (b"-" + b"9" * 19, "object.spec.scores[0].weight"),
    ],
)
def test_a_number_that_nothing_can_hold_is_refused(number: bytes, path: str) -> None:
    manifest = profile_manifest("batch", scores=[{"name": "FirstFit", "weight": 4711}])
    rejected = decode(event_bytes("ADDED", manifest).replace(b"4711", number)).rejected
    assert rejected is not None
    assert (rejected.code, rejected.path) == ("invalid-field", path)
    assert "out of range" in rejected.message


def test_a_profile_may_be_keyed_by_its_name_alone() -> None:
    assert isinstance(
        decode(event_bytes("ADDED", profile_manifest("batch")), b"batch").event, ProfileUpserted
    )


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        (b"other", event_bytes("ADDED", profile_manifest("batch")), "key-mismatch"),
        (b"batch", None, "not-an-event"),
        (b"SchedulingProfile/No Name", None, "invalid-field"),
    ],
)
def test_a_key_names_kind_and_name(key: bytes, value: bytes | None, code: str) -> None:
    rejected = decode(value, key).rejected
    assert rejected is not None
    assert (rejected.code, rejected.path) == (code, "key")


# ------------------------------------------------------------------------------------------ written form


def test_what_is_written_is_read_back() -> None:
    uses = (PluginUse(name="A", weight=2.0, args={"x": [1, {"y": None}]}), PluginUse(name="B", weight=0.5))
    profile = Profile(name="batch", filters=(PluginUse(name="F", args={"z": "ä"}),), scores=uses)
    spec = profile_to_spec(profile)
    assert (
        orjson.dumps(spec)
        == (
            '{"filters":[{"name":"F","args":{"z":"ä"}}],"scores":['
            '{"name":"A","weight":2,"args":{"x":[1,{"y":null}]}},{"name":"B","weight":0.5}]}'
        ).encode()
    )
    assert profile_from_spec(orjson.loads(orjson.dumps(spec)), name="batch", path="spec") == profile


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        ({"kind": "Pod"}, "kind"),
        ({"kind": "SchedulingProfile", "apiVersion": "v1"}, "apiVersion"),
        ({"kind": "SchedulingProfile", "metadata": {"name": 5}}, "metadata.name"),
        ({"kind": "SchedulingProfile", "metadata": {"name": "a"}, "spec": {}}, "spec.filters"),
    ],
)
def test_a_manifest_that_is_no_profile_says_where(manifest: Json, path: str) -> None:
    with pytest.raises(FieldError) as wrong:
        profile_from_manifest(manifest)
    assert wrong.value.path == path


# -------------------------------------------------------------------------------------------- revisions


def revision(change: Change) -> int:
    assert isinstance(change, ProfileChanged)
    return change.revision.revision


def test_every_change_counts_one_up_and_the_same_again_none() -> None:
    profiles = Profiles({})
    assert revision(profiles.apply(ProfileUpserted(of("a")))) == 1
    assert profiles.apply(ProfileUpserted(of("a"))) == Skipped()
    assert revision(profiles.apply(ProfileUpserted(of("a", "LeastAllocated")))) == 2
    assert revision(profiles.apply(ProfileUpserted(of("b")))) == 1
    assert revision(profiles.apply(ProfileDeleted("a"))) == 3
    assert profiles.apply(ProfileDeleted("a")) == Skipped()
    assert profiles.apply(ProfileDeleted("never")) == Skipped()
    assert list(profiles.plans) == ["b"]
    assert revision(profiles.apply(ProfileUpserted(of("a")))) == 4
    assert profiles.plans["a"].profile.revision == 4


def test_a_built_in_profile_is_replaced_and_comes_back() -> None:
    profiles, name = Profiles(BUILT_IN_PROFILES), "first-fit"
    assert profiles.apply(ProfileUpserted(BUILT_IN_PROFILES[name])) == Skipped()
    assert profiles.apply(ProfileDeleted(name)) == Skipped()
    assert revision(profiles.apply(ProfileUpserted(of(name)))) == 2
    assert profiles.plans[name].profile.scores == of(name).scores
    assert revision(profiles.apply(ProfileDeleted(name))) == 3
    assert profiles.plans[name].profile == msgspec.structs.replace(BUILT_IN_PROFILES[name], revision=3)


def test_an_older_version_changes_nothing_also_after_one_that_says_the_same() -> None:
    profiles = Profiles({})
    profiles.apply(ProfileUpserted(of("a"), 5))
    assert profiles.apply(ProfileUpserted(of("a", "LeastAllocated"), 5)) == Skipped()
    same = profiles.apply(ProfileUpserted(of("a"), 9))
    assert same == ProfileChanged(ProfileRevision(name="a", revision=1, profile=of("a"), resource_version=9))
    assert profiles.apply(ProfileUpserted(of("a", "LeastAllocated"), 7)) == Skipped("older")
    assert profiles.apply(ProfileDeleted("a", 8)) == Skipped("older")
    assert revision(profiles.apply(ProfileDeleted("a", 9))) == 2
    assert profiles.apply(ProfileUpserted(of("a"), 9)) == Skipped()
    assert revision(profiles.apply(ProfileUpserted(of("a"), 10))) == 3


def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles_module, "profiles_max", 2)
    profiles = Profiles({})
    for name in ("a", "b"):
        profiles.apply(ProfileUpserted(of(name)))
    refused = profiles.apply(ProfileUpserted(of("c")))
    assert isinstance(refused, Refused)
    assert "profiles_max" in refused.message
    assert revision(profiles.apply(ProfileUpserted(of("a", "LeastAllocated")))) == 2
    profiles.apply(ProfileDeleted("b"))
    assert revision(profiles.apply(ProfileUpserted(of("c")))) == 1


def test_a_profile_that_cannot_be_restored_leaves_all_as_it_was() -> None:
    profiles = Profiles({})
    profiles.apply(ProfileUpserted(of("a")))
    before = profiles.plans["a"]
    bad = Profile(name="a", scores=(PluginUse(name="No"),))
    with pytest.raises(FieldError):
        profiles.restore(ProfileRevision(name="a", revision=2, profile=bad))
    assert profiles.plans == {"a": before}


# ------------------------------------------------------------------------------------- the pods that wait


@pytest.fixture
def scheduler() -> Scheduler:
    """Return a scheduler with an empty node and one that is half full."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    for event in (NodeUpserted(node("empty")), NodeUpserted(node("half"))):
        scheduler.fold(event)
    scheduler.fold(PodUpserted(pod("there", template(2_000), on="half")))
    scheduler.cycle()
    return scheduler


def run(scheduler: Scheduler, *events: Event | ProfileEvent) -> CycleResult:
    for event in events:
        scheduler.fold(event)
    return scheduler.cycle()


def bound(result: CycleResult) -> dict[str, tuple[str, int]]:
    """Return where pods went, by which revision."""
    return {
        v.pod.name: (v.node, result.attempts[v.attempt].profile_revision)
        for v in result.verdicts
        if isinstance(v, Placement)
    }


def waits(result: CycleResult) -> dict[str, Attempt]:
    return {v.pod.name: result.attempts[v.attempt] for v in result.verdicts if isinstance(v, Failure)}


MINE = template(100, profile="mine")


def test_pods_of_one_group_go_elsewhere_after_a_change(scheduler: Scheduler) -> None:
    first = run(scheduler, ProfileUpserted(of("mine", "LeastAllocated")), PodUpserted(pod("p", MINE)))
    assert bound(first) == {"p": ("empty", 1)}
    second = run(scheduler, ProfileUpserted(of("mine", "MostAllocated")), PodUpserted(pod("q", MINE)))
    assert bound(second) == {"q": ("half", 2)}
    third = run(scheduler, ProfileUpserted(of("mine", "LeastAllocated")), PodUpserted(pod("r", MINE)))
    assert bound(third) == {"r": ("empty", 3)}


def test_a_pod_waits_for_its_profile(scheduler: Scheduler) -> None:
    result = run(scheduler, PodUpserted(pod("p", MINE)))
    (attempt,) = waits(result).values()
    assert attempt.reasons_at_failure == {"unknown-profile:mine": 2}
    assert attempt.profile_revision == 0
    assert bound(run(scheduler, ProfileUpserted(of("other")))) == {}
    assert bound(run(scheduler, ProfileUpserted(of("mine")))) == {"p": ("half", 1)}


def test_what_waits_is_held_when_its_profile_goes_and_released_when_it_comes(scheduler: Scheduler) -> None:
    large = template(9_000, profile="mine")
    result = run(scheduler, ProfileUpserted(of("mine")), PodUpserted(pod("p", large)))
    assert waits(result)["p"].reasons_at_failure == {"insufficient:cpu": 2}
    gone = run(scheduler, ProfileDeleted("mine"))
    assert [a.reasons_at_failure for a in gone.attempts] == [{"unknown-profile:mine": 2}]
    assert gone.verdicts == [], "it is no news that the pod waits"
    assert not scheduler.has_work
    later = run(scheduler, PodUpserted(pod("q", large)), NodeUpserted(node("huge", cpu=20_000)))
    assert waits(later)["q"].reasons_at_failure == {"unknown-profile:mine": 3}
    back = run(scheduler, ProfileUpserted(of("mine")))
    assert bound(back) == {"p": ("huge", 3), "q": ("huge", 3)}


def test_what_a_filter_refused_is_tried_under_the_new_profile(scheduler: Scheduler) -> None:
    lonely = template(100, profile="mine", node_selector={"zone": "a"})
    strict = profile_manifest("mine", filters=["NodeResourcesFit", "NodeAffinity"])
    result = run(scheduler, ProfileUpserted(profile_from_manifest(strict)), PodUpserted(pod("p", lonely)))
    assert waits(result)["p"].reasons_at_failure == {"node-affinity": 2}
    assert run(scheduler, ProfileUpserted(of("other"))).attempts == []
    assert bound(run(scheduler, ProfileUpserted(of("mine")))) == {"p": ("half", 2)}


def test_a_gated_pod_stays_held_whatever_becomes_of_its_profile(scheduler: Scheduler) -> None:
    gated = template(100, profile="mine", gates=("wait",))
    result = run(scheduler, ProfileUpserted(of("mine")), PodUpserted(pod("p", gated)))
    assert waits(result)["p"].profile_revision == 1
    for event in (ProfileUpserted(of("mine", "LeastAllocated")), ProfileDeleted("mine")):
        assert run(scheduler, event).verdicts == []
    assert bound(run(scheduler, ProfileUpserted(of("mine")))) == {}


def test_a_group_that_left_is_not_told_of(scheduler: Scheduler) -> None:
    run(scheduler, ProfileUpserted(of("mine")), PodUpserted(pod("p", template(9_000, profile="mine"))))
    result = run(scheduler, ProfileDeleted("mine"), PodDeleted("default", "p"))
    assert (result.attempts, result.verdicts) == ([], [])
