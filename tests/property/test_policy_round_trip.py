"""Does a CoLocationPolicy come back as it was: from a manifest, from the ledger, and from the feed?"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.manifests.colocation_policy import BELOW, FIELDS, policy_from_spec, policy_to_spec
from domain.model.colocation import (
    DEFAULT_POLICY,
    OF_ALL_NODES,
    Amounts,
    CoLocationPolicy,
    LendingForm,
    Portion,
)
from domain.model.config import ConfigObject
from domain.model.events import ConfigUpserted
from services.codec.decode import Decoder
from services.codec.feed import pack_feed, unpack_event, unpack_feed
from services.codec.gateway import Gateway
from services.ports.log import CONFIG_TOPIC
from services.worker.ledger_rows import config_object, config_row
from tests.batches import batch_of
from tests.builders import event, record
from tests.depth import examples

PERCENT = st.integers(3_000, 100_000).map(lambda thousandths: thousandths / 1_000)
NUMBER = st.floats(1, 1_000, allow_nan=False)
LABELS = st.dictionaries(st.sampled_from(["pool", "zone", "berth.dev/x"]), st.sampled_from(["", "a", "b-1"]))
OF_UNIT = {
    "percent": PERCENT,
    "seconds": st.integers(1, 86_400),
    "us": st.integers(1_000, 1_000_000),
    "milli": st.integers(1, 10**9),
    "bytes": st.integers(1, 2**50),
    "count": st.integers(1, 1_000),
}
OTHERWISE: dict[str, st.SearchStrategy[Any]] = {
    "estimate.cpu_percent": st.integers(1, 1_000),
    "estimate.memory_percent": st.integers(1, 1_000),
    "view.margin_cpu": PERCENT.map(lambda each: Portion(percent=each))
    | st.builds(Portion, amount=st.integers(0, 10**9)),
    "view.margin_memory": PERCENT.map(lambda each: Portion(percent=each))
    | st.builds(Portion, amount=st.integers(0, 2**50)),
    "view.mid_form": st.sampled_from(LendingForm),
    "view.low_form": st.sampled_from((LendingForm.USAGE, LendingForm.REQUEST)),
    "view.age_seconds_max": st.integers(1, 86_400),
    "hot_spot.moves_max": st.integers(0, 1_000),
    "hot_spot.latency_factor": NUMBER,
}
ATTRIBUTE = {field.name: field.attribute for field in FIELDS}


def values_of(attribute: str) -> st.SearchStrategy[Any]:
    """Return the values that an attribute of a policy may have, by its unit."""
    if attribute in OTHERWISE:
        return OTHERWISE[attribute]
    if attribute.startswith("prices."):
        return NUMBER
    return OF_UNIT[attribute.rpartition("_")[2]]


@st.composite
def policies(draw: st.DrawFn) -> CoLocationPolicy:
    """Return a policy that may be given: some of its fields differ from their defaults."""
    selector = draw(LABELS)
    drawn = {
        field.attribute: draw(values_of(field.attribute))
        for field in FIELDS
        if draw(st.booleans()) and not (selector and field.attribute.startswith(OF_ALL_NODES))
    }
    for lower, upper in BELOW:
        low, high = ATTRIBUTE[lower], ATTRIBUTE[upper]
        both = draw(st.lists(values_of(low), min_size=2, max_size=2, unique=True))
        if low in drawn or high in drawn:
            drawn[low], drawn[high] = sorted(both)
    sections: dict[str, Any] = {}
    reserved = DEFAULT_POLICY.view.reserved
    for attribute, value in drawn.items():
        section, _, name = attribute.partition(".")
        if name.startswith("reserved."):
            reserved = reserved._replace(**{name.removeprefix("reserved."): value})
            name, value = "reserved", reserved
        sections.setdefault(section, {})[name] = value
    changed = {
        name: msgspec.structs.replace(getattr(DEFAULT_POLICY, name), **fields)
        for name, fields in sections.items()
    }
    return CoLocationPolicy(node_selector=selector, **changed)


@given(policies())
@settings(max_examples=examples(300), deadline=None)
def test_a_policy_comes_back_from_its_manifest(policy: CoLocationPolicy) -> None:
    spec = policy_to_spec(policy)
    assert policy_from_spec(spec, "spec") == policy
    assert policy_to_spec(policy_from_spec(spec, "spec")) == spec
    thing = {
        "apiVersion": "berth/v1",
        "kind": "CoLocationPolicy",
        "metadata": {"name": "p", "resourceVersion": "3"},
        "spec": spec,
    }
    sent = Gateway().prepare(event("ADDED", thing)).entry
    read = Decoder().decode(record(CONFIG_TOPIC, sent.value, sent.key)).event
    assert read == ConfigUpserted("CoLocationPolicy", "", "p", policy, 3)


@given(policies())
@settings(max_examples=examples(300), deadline=None)
def test_a_policy_comes_back_from_the_ledger_and_the_feed(policy: CoLocationPolicy) -> None:
    thing = ConfigObject(kind="CoLocationPolicy", namespace="", name="p", content=policy, resource_version=3)
    row = config_row(thing, 0, "ops")
    stored = msgspec.json.decode(msgspec.json.encode(row.object))
    assert config_object(msgspec.structs.replace(row, object=stored)) == thing
    sent = ConfigUpserted("CoLocationPolicy", "", "p", policy, 3)
    ((_, kind, packed),) = unpack_feed(pack_feed(batch_of(advances=[]), [(0, sent)])).events
    assert unpack_event(kind, packed) == sent


def test_amounts_of_a_policy_keep_their_type() -> None:
    policy = policy_from_spec({"view": {"reserved": {"cpu": "2"}}}, "spec")
    assert isinstance(policy.view.reserved, Amounts)
