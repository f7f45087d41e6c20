"""Is a CoLocationPolicy read or refused as it should be, and does the right one hold on each node?"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
import yaml

from docs.build import policy_page
from domain.manifests.colocation_policy import BELOW, FIELDS, TREE, policy_from_spec, policy_to_spec, value_of
from domain.model.colocation import (
    DEFAULT_POLICY,
    OF_ALL_NODES,
    Amounts,
    CoLocationPolicy,
    EstimateRule,
    EvictionRule,
    LendingForm,
    Portion,
    Prices,
    SuppressionRule,
    ViewRule,
)
from domain.model.errors import FieldError
from domain.model.events import ConfigDeleted, ConfigUpserted
from domain.model.limits import policies_max
from domain.state.changes import ConfigChanged, Refused, Skipped
from domain.state.cluster import ClusterState
from domain.state.policies import NO_POLICY, Policies
from services.codec.decode import Decoder
from services.codec.gateway import Gateway
from services.ports.log import CONFIG_TOPIC
from services.worker.ledger_rows import config_object, config_row
from services.worker.read_ahead import changes_plans
from tests.builders import Json, event, event_bytes, record


def manifest(name: str, spec: Any, version: int | None = None) -> Json:
    metadata = {"name": name} | ({} if version is None else {"resourceVersion": str(version)})
    return {"apiVersion": "berth/v1", "kind": "CoLocationPolicy", "metadata": metadata, "spec": spec}


def read(name: str, spec: Any, version: int | None = None) -> ConfigUpserted:
    """Return what a worker reads of a policy that was sent."""
    sent = Gateway().prepare(event("ADDED", manifest(name, spec, version))).entry
    found = Decoder().decode(record(CONFIG_TOPIC, sent.value, sent.key)).event
    assert isinstance(found, ConfigUpserted)
    return found


def nested(name: str, value: Any) -> Json:
    """Return the spec that gives one field."""
    for each in reversed(name.split(".")):
        value = {each: value}
    assert isinstance(value, dict)
    return value


def merged(*specs: Json) -> Json:
    """Return one spec of several."""
    found: Json = {}
    for spec in specs:
        for key, value in spec.items():
            found[key] = merged(found.get(key, {}), value) if isinstance(value, dict) else value
    return found


def wrong(spec: Any) -> FieldError:
    with pytest.raises(FieldError) as error:
        policy_from_spec(spec, "object.spec")
    return error.value


# ------------------------------------------------------------------------------------------------- fields


def leaves(value: Any, path: str = "") -> set[str]:
    """Return the attributes of a policy that hold a number, a choice or a portion."""
    if isinstance(value, Portion) or not isinstance(value, msgspec.Struct | Amounts):
        return {path.removeprefix(".")}
    names = value._fields if isinstance(value, Amounts) else value.__struct_fields__
    return set().union(*(leaves(getattr(value, name), f"{path}.{name}") for name in names))


def test_each_number_of_a_policy_has_one_field() -> None:
    attributes = [field.attribute for field in FIELDS]
    assert len(attributes) == len(set(attributes)) == len({field.name for field in FIELDS})
    assert {*attributes, "node_selector"} == leaves(DEFAULT_POLICY)


def test_an_empty_policy_is_the_defaults_and_the_defaults_are_valid() -> None:
    assert policy_from_spec({}, "spec") == DEFAULT_POLICY
    written = policy_to_spec(DEFAULT_POLICY)
    assert policy_from_spec(written, "spec") == DEFAULT_POLICY
    assert written.keys() == TREE.keys()
    assert "cap" not in written["view"], "it has no default"
    nulls = merged(*(nested(field.name, None) for field in FIELDS), {"nodeSelector": None})
    assert policy_from_spec(nulls, "spec") == DEFAULT_POLICY


def test_values_are_read_in_their_units() -> None:
    spec = {
        "estimate": {"cpuFactor": "200%", "cpu": "500m", "memory": 1 << 20},
        "view": {
            "margin": {"cpu": "12.5%", "memory": "4Gi"},
            "reserved": {"cpu": 2},
            "cap": "60%",
            "midForm": "reclaimable",
            "lowForm": "request",
            "settle": "1m30s",
            "maxAge": 120,
        },
        "suppression": {"floor": "2500us", "period": "50ms"},
        "eviction": {"node": "85%", "after": "1h"},
        "prices": {"coreHour": 2, "low": 0.05},
    }
    assert policy_from_spec(spec, "spec") == CoLocationPolicy(
        estimate=EstimateRule(cpu_percent=200, cpu_milli=500, memory_bytes=1 << 20),
        view=ViewRule(
            margin_cpu=Portion(percent=12.5),
            margin_memory=Portion(amount=4 << 30),
            reserved=Amounts(2_000, 0),
            cap_percent=60.0,
            mid_form=LendingForm.RECLAIMABLE,
            low_form=LendingForm.REQUEST,
            settle_seconds=90,
            age_seconds_max=120,
        ),
        suppression=SuppressionRule(floor_us=2_500, period_us=50_000),
        eviction=EvictionRule(node_percent=85.0, after_seconds=3_600),
        prices=Prices(core_hour=2.0, low=0.05),
    )


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_what_no_field_takes_is_refused_by_its_name(field: Any) -> None:
    value: Any
    for value in ({}, [], True, "x", "", -1, "-1%", "1e400", f"{'9' * 20}%", f"{'9' * 8}h", float("nan")):
        error = wrong(nested(field.name, value))
        assert error.path == f"object.spec.{field.name}", value
    extra = wrong(merged(nested(field.name, value_of(DEFAULT_POLICY, field)), nested(f"{field.name}x", 1)))
    assert extra.path == f"object.spec.{field.name}x"
    assert field.name.rpartition(".")[2] in extra.message


@pytest.mark.parametrize(
    ("name", "lowest", "below", "highest", "above"),
    [
        ("estimate.cpuFactor", "1%", "0%", "1000%", "1001%"),
        ("estimate.cpu", "1m", "0", "1000000", "1000001"),
        ("estimate.memory", 1, 0, "1Pi", "2Pi"),
        ("view.margin.cpu", "0%", "-1m", "100%", "100.1%"),
        ("view.cap", "0%", "-1%", "100%", "101%"),
        ("view.settle", 0, -1, "24h", "24h1s"),
        ("view.maxAge", "1s", "0s", 86_400, 86_401),
        ("suppression.grow", "0.1%", "0%", "100%", "200%"),
        ("suppression.floor", "1ms", "999us", "1000s", "1001s"),
        ("suppression.period", "1ms", "999us", "1s", "1001ms"),
        ("eviction.node", "3%", "2%", "100%", "101%"),
        ("hotSpot.use", "71%", "0%", "100%", "101%"),
        ("hotSpot.badCount", 1, 0, 1_000, 1_001),
        ("hotSpot.latencyFactor", 1, 0.99, 1_000, 1_000.5),
        ("prices.coreHour", 0, -0.1, 1_000_000, 1_000_001),
        ("reporting.pods", "1s", 0, "24h", "25h"),
    ],
)
def test_bounds_may_be_met_and_not_passed(
    name: str, lowest: Any, below: Any, highest: Any, above: Any
) -> None:
    for value in (lowest, highest):
        policy_from_spec(nested(name, value), "spec")
    for value in (below, above):
        error = wrong(nested(name, value))
        assert error.path == f"object.spec.{name}"


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (None, ""),
        ([], ""),
        ({"views": {}}, ".views"),
        ({"view": []}, ".view"),
        ({"view": {"margin": "10%"}}, ".view.margin"),
        ({"view": {"margin": {"gpu": "10%"}}}, ".view.margin.gpu"),
        ({"view": {"a b": 1}}, ".view[a b]"),
        ({"nodeSelector": ["pool"]}, ".nodeSelector"),
        ({"nodeSelector": {"a b": "c"}}, ".nodeSelector[a b]"),
        ({"nodeSelector": {"a": "b c"}}, ".nodeSelector.a"),
        ({"nodeSelector": {"a": 1}}, ".nodeSelector.a"),
        ({"view": {"lowForm": "reclaimable"}}, ".view.lowForm"),
        ({"view": {"settle": "500ms"}}, ".view.settle"),
        ({"view": {"settle": 1.5}}, ".view.settle"),
        ({"view": {"settle": "s"}}, ".view.settle"),
        ({"view": {"cap": 0.6}}, ".view.cap"),
        ({"view": {"cap": 60}}, ".view.cap"),
        ({"estimate": {"cpuFactor": "150.5%"}}, ".estimate.cpuFactor"),
        ({"hotSpot": {"badCount": 2.0}}, ".hotSpot.badCount"),
        ({"eviction": {"nodeLower": "60%"}}, ".eviction.nodeLower"),
        ({"eviction": {"node": "80%", "nodeLower": "80%"}}, ".eviction.nodeLower"),
        *(({"nodeSelector": {"a": "b"}, section: {}}, f".{section}") for section in OF_ALL_NODES),
    ],
    ids=str,
)
def test_a_wrong_spec_is_refused_by_its_field(spec: Any, path: str) -> None:
    assert wrong(spec).path == f"object.spec{path}"
    refused = Decoder().decode(record(CONFIG_TOPIC, event_bytes("ADDED", manifest("a", spec)))).rejected
    assert refused is not None
    assert refused.path == f"object.spec{path}"
    with pytest.raises(FieldError) as error:  # the gateway must not drop what the decoder would refuse
        Gateway().prepare(event("ADDED", manifest("a", spec)))
    assert error.value.path == f"object.spec{path}"


@pytest.mark.parametrize(("lower", "upper"), BELOW)
def test_what_must_be_below_names_the_field_that_was_given(lower: str, upper: str) -> None:
    is_percent = "percent" in next(field.form.allowed for field in FIELDS if field.name == lower)
    high, low = ("90%", "10%") if is_percent else ("90s", "1s")
    policy_from_spec(merged(nested(lower, low), nested(upper, high)), "spec")
    both = wrong(merged(nested(lower, high), nested(upper, low)))
    assert both.path == f"object.spec.{lower}"
    assert both.message == f"{high} is not below {upper}, which is {low}"
    if lower != "eviction.nodeLower":  # it has no default
        alone = wrong(nested(upper, low))
        assert alone.path == f"object.spec.{upper}"
        assert f"is not above {lower}" in alone.message


def test_the_page_is_what_the_table_says_and_its_example_is_valid() -> None:
    """Whoever changes the table runs ``python -m docs.build.policy_page``."""
    assert policy_page.main(["--check"]) == 0
    (example,) = re.findall(r"```yaml\n(.*?)```", policy_page.PAGE.read_text(), re.DOTALL)
    found = yaml.safe_load(example)
    assert read(found["metadata"]["name"], found["spec"]).content != DEFAULT_POLICY


# ------------------------------------------------------------------------------------- which one is in force


def state_of(*policies: tuple[str, Json]) -> ClusterState:
    state = ClusterState(seed=1)
    for name, spec in policies:
        state.apply(read(name, spec, 1))
    return state


def holds(state: ClusterState, **labels: str) -> str:
    return state.config.policies.of(labels).name


def test_the_most_labels_hold_and_of_equals_the_first_by_name() -> None:
    state = ClusterState(seed=1)
    assert state.config.policies.of({"pool": "a"}) is NO_POLICY
    assert NO_POLICY == ("", None, DEFAULT_POLICY)
    for name, selector in (
        ("z-zone", {"zone": "1"}),
        ("pool", {"pool": "a"}),
        ("both", {"pool": "a", "zone": "1"}),
        ("all", {}),
        ("a-later-name", {}),
    ):
        state.apply(read(name, {"nodeSelector": selector}))
    assert holds(state, pool="a", zone="1", more="x") == "both"
    assert holds(state, pool="a", zone="2") == "pool"
    assert holds(state, pool="b", zone="1") == "z-zone"
    assert holds(state, pool="b") == "a-later-name"
    state.apply(ConfigDeleted("CoLocationPolicy", "", "both"))
    assert holds(state, pool="a", zone="1") == "pool", "of equals the first by name"
    state.apply(ConfigDeleted("CoLocationPolicy", "", "a-later-name"))
    assert holds(state) == "all"


def test_what_is_the_same_for_all_nodes_is_taken_from_the_policy_without_selector() -> None:
    own = {"nodeSelector": {"pool": "a"}, "view": {"cap": "50%"}}
    state = state_of(("own", own))
    assert state.config.policies.of({"pool": "a"}).policy.prices == Prices()
    state.apply(read("base", {"prices": {"low": 0.2}, "view": {"cap": "80%"}}, 7))
    policies = state.config.policies
    assert (policies.of_all.name, policies.of_all.resource_version) == ("base", 7)
    found = policies.of({"pool": "a"})
    assert (found.name, found.resource_version) == ("own", 1)
    assert found.policy.prices == Prices(low=0.2)
    assert found.policy.view == ViewRule(cap_percent=50.0), "policies are not merged otherwise"
    state.apply(read("a-first", {"prices": {"low": 0.3}}))
    assert policies.of({"pool": "a"}).policy.prices == Prices(low=0.3)
    assert policies.of_all.name == "a-first"


def test_the_version_moves_with_each_change_and_with_nothing_else() -> None:
    state = state_of(("a", {"view": {"cap": "50%"}}))
    policies = state.config.policies
    version = policies.version
    assert state.apply(read("a", {"view": {"cap": "50%"}}, 1)) == (Skipped("known"),)
    assert policies.version == version
    assert state.apply(read("a", {"view": {"cap": "90%"}}, 0)) == (Skipped("older"),)
    assert policies.version == version
    (changed,) = state.apply(read("a", {"view": {"cap": "50%"}}, 2))
    assert isinstance(changed, ConfigChanged)
    assert policies.version > version
    assert policies.of({}).resource_version == 2
    version = policies.version
    state.apply(ConfigDeleted("CoLocationPolicy", "", "a", 3))
    assert policies.version > version
    assert policies.of({}) is NO_POLICY


def test_a_bad_policy_leaves_the_old_one_in_force() -> None:
    state = state_of(("a", {"view": {"cap": "50%"}}))
    bad = manifest("a", {"view": {"cap": "500%"}}, 2)
    decoded = Decoder().decode(record(CONFIG_TOPIC, event_bytes("MODIFIED", bad)))
    assert decoded.event is None
    assert decoded.rejected is not None
    assert decoded.rejected.path == "object.spec.view.cap"
    found = state.config.policies.of({})
    assert (found.resource_version, found.policy.view.cap_percent) == (1, 50.0)


def test_a_policy_is_no_batch_of_its_own() -> None:
    assert not changes_plans(read("a", {}))


def test_rows_of_the_ledger_restore_what_holds() -> None:
    state = state_of(("a", {"nodeSelector": {"x": "1"}, "view": {"reserved": {"cpu": "3"}}}), ("b", {}))
    state.apply(ConfigDeleted("CoLocationPolicy", "", "b", 9))
    rows = [config_row(thing, 0, "ops") for thing in state.config.known.values()]
    stored = [msgspec.json.decode(msgspec.json.encode(row.object)) for row in rows]
    again = ClusterState(seed=1)
    for row, thing in zip(rows, stored, strict=True):
        again.config.put(config_object(msgspec.structs.replace(row, object=thing)))
    for labels in ({}, {"x": "1"}):
        assert again.config.policies.of(labels) == state.config.policies.of(labels)


def test_only_so_many_are_in_force() -> None:
    state = state_of(*((f"p{i}", {"nodeSelector": {"n": str(i)}}) for i in range(policies_max)))
    (refused,) = state.apply(read("more", {}))
    assert isinstance(refused, Refused)
    assert "policies_max" in refused.message
    assert holds(state) == ""
    assert holds(state, n="7") == "p7"


def test_policies_are_the_same_in_any_order() -> None:
    sent = [read(name, spec) for name, spec in (("b", {}), ("a", {}), ("c", {"nodeSelector": {"x": "1"}}))]
    found = []
    for order in (sent, sent[::-1]):
        state = ClusterState(seed=1)
        for each in order:
            state.apply(each)
        policies = state.config.policies
        found.append((policies.of({}), policies.of({"x": "1"}), policies.of_all))
    assert found[0] == found[1]
    assert isinstance(policies, Policies)
