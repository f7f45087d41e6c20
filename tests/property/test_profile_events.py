"""Can a profile that is accepted still break the worker that takes it, or the ledger that keeps it?"""

from __future__ import annotations

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domain.cycle.schedule import Scheduler
from domain.manifests.profile import profile_from_spec, profile_to_spec
from domain.model.events import NodeUpserted, PodUpserted, ProfileUpserted
from domain.model.profiles import BUILT_IN_PROFILES, ProfileRevision
from domain.plugins.registry import FILTERS, SCORES
from services.adapters.postgres.rows import profile_columns
from services.codec.decode import Decoder
from services.ports.log import CONFIG_TOPIC
from services.worker.ledger_rows import profile_row as row_of
from tests.builders import Json, event_bytes, profile_manifest, record
from tests.depth import examples
from tests.values import node, pod, template

PATIENT = settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])

names = st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "pods", "x.io/a", "", "\0"])
numbers = st.sampled_from([0, 1, 2, 50, 100, 101, -1, 2**63, 1.5, 1e300, True, None, "1"])
resources = st.lists(st.fixed_dictionaries({"name": names}, optional={"weight": numbers}), max_size=6)
strategies = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio", "x"]),
        "resources": resources,
        "requestedToCapacityRatio": st.fixed_dictionaries(
            {},
            optional={"shape": st.lists(st.dictionaries(st.sampled_from(["utilization", "score"]), numbers))},
        ),
    },
)
arguments: st.SearchStrategy[Json] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({}, optional={"scoringStrategy": strategies, "ignoredResources": st.lists(names)}),
    st.dictionaries(st.sampled_from(["resource", "resources", "variant", "mode", "addedAffinity"]), numbers),
)
filters = st.lists(
    st.sampled_from(list(FILTERS)) | st.fixed_dictionaries({"name": st.sampled_from(list(FILTERS))}),
    unique_by=str,
    max_size=8,
)
scores = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from([*SCORES, "NodeResourcesFit"])},
        optional={"weight": numbers, "args": arguments},
    ),
    max_size=8,
)


def accepted(manifest: Json) -> ProfileUpserted | None:
    decoded = Decoder().decode(record(CONFIG_TOPIC, event_bytes("ADDED", manifest)))
    if decoded.event is None:
        assert decoded.rejected is not None
        assert decoded.rejected.code == "invalid-field"
        assert decoded.rejected.path.startswith("object.spec")
        return None
    assert isinstance(decoded.event, ProfileUpserted)
    return decoded.event


def place(event: ProfileUpserted) -> None:
    """Take a profile and place pods of two kinds by it."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    for name, gpus in (("a", {"nvidia.com/gpu": 2}), ("b", {})):
        scheduler.fold(NodeUpserted(node(name, extended=gpus)))
    scheduler.fold(event)
    for name, requests in (("p", {"cpu": 100}), ("q", {"nvidia.com/gpu": 1})):
        scheduler.fold(PodUpserted(pod(name, template(100, requests=requests, profile="mine"))))
    assert len(scheduler.cycle().verdicts) == 2


@PATIENT
@given(filters=filters, scores=scores)
def test_what_is_accepted_places_pods_and_is_kept_as_it_is(filters: list[Json], scores: list[Json]) -> None:
    event = accepted(profile_manifest("mine", filters=[*filters, "NodeResourcesFit"], scores=scores))
    if event is None:
        event = accepted(profile_manifest("mine", filters=["NodeResourcesFit"], scores=scores))
    if event is None:
        return
    place(event)
    kept = row_of(ProfileRevision(name="mine", revision=1, profile=event.profile), 0, "key:ops")
    again = orjson.loads(profile_columns(kept)[2])
    assert again == profile_to_spec(event.profile)
    assert profile_from_spec(again, name="mine", path="spec") == event.profile
