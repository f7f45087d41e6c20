"""Are actions of agents read as they are written, refused where they are wrong, and written once?"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from domain.manifests.actions import WireNodeAction, action_from_wire, action_to_wire
from domain.model.actions import ActionKind, NodeAction
from domain.model.errors import FieldError
from domain.model.events import NodeActed, NodeUsed
from services.codec.decode import Decoder
from services.ports.ledger import ActionRow
from services.ports.log import USAGE_TOPIC, Record
from tests.builders import node_manifest
from tests.property.site import Site

NOW_MS = 1_700_000_000_000


def manifest(**fields: Any) -> dict[str, Any]:
    """Return a NodeAction; fields that are None are left out."""
    thing = {
        "apiVersion": "berth/v1",
        "kind": "NodeAction",
        "metadata": {"name": "n1"},
        "action": "quota",
        "quality": "low",
        "amount": "1500m",
        "reason": "1.50 cores are left",
    }
    return {name: value for name, value in {**thing, **fields}.items() if value is not None}


EVICTION = {
    "action": "evict",
    "amount": None,
    "policy": "lend@7",
    "pod": {"namespace": "a", "name": "web", "uid": "u"},
}


def read(thing: dict[str, Any]) -> NodeAction:
    return action_from_wire(msgspec.convert(thing, WireNodeAction), NOW_MS, "object")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"amount": None},
        {"times": 9},
        {"action": "reclaim", "amount": "1Gi"},
        {"action": "idle", "amount": None, "quality": "mid"},
        EVICTION,
    ],
)
def test_an_action_is_written_as_it_was_read(fields: dict[str, Any]) -> None:
    thing = manifest(**fields)
    assert action_to_wire(read(thing)) == thing


def test_amounts_are_in_canonical_units() -> None:
    assert read(manifest()).amount == 1_500
    assert read(manifest(action="memory-high", amount="2Mi")).amount == 2 << 20


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"metadata": {}}, "object.metadata.name", "missing"),
        ({"action": "hit"}, "object.action", "'hit' is not allowed; allowed are idle, weight, quota"),
        ({"action": None}, "object.action", "not allowed"),
        ({"quality": "system"}, "object.quality", "allowed are high, mid, low"),
        ({"amount": "x"}, "object.amount", "is not a quantity"),
        ({"amount": "-1"}, "object.amount", "negative"),
        ({"action": "idle"}, "object.amount", "is of quota, memory-high, reclaim alone, not of idle"),
        ({"times": 0}, "object.times", "out of range"),
        ({"reason": None}, "object.reason", "missing"),
        ({"reason": "x" * 1_001}, "object.reason", "action_text_bytes_max"),
        ({"reason": "a\nb"}, "object.reason", "printable"),
        ({"policy": "a b"}, "object.policy", "not allowed"),
        ({"pod": {"name": "web"}}, "object.pod", "is of an eviction alone"),
        ({"action": "evict", "amount": None}, "object.pod.name", "missing"),
        ({**EVICTION, "pod": {"name": "web", "uid": "b/web"}}, "object.pod.uid", "contains '/'"),
    ],
)
def test_a_wrong_action_names_its_field(fields: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(FieldError) as refused:
        read(manifest(**fields))
    assert refused.value.path == path
    assert message in refused.value.message


def decoded(thing: dict[str, Any], at: str | None = None, key: bytes = b"n1", kind: str = "MODIFIED") -> Any:
    event = {"type": kind, "object": thing} | ({"at": at} if at else {})
    return Decoder().decode(Record(USAGE_TOPIC, 0, 0, key, json.dumps(event).encode(), NOW_MS))


def test_actions_and_usage_share_a_topic() -> None:
    assert decoded(manifest()).event == NodeActed(read(manifest()))
    usage = {"apiVersion": "berth/v1", "kind": "NodeUsage", "metadata": {"name": "n1"}}
    assert isinstance(decoded({**usage, "percent": {"x/NodeAction": 5}}).event, NodeUsed)
    assert decoded(manifest(), kind="DELETED").event is None


@pytest.mark.parametrize(
    ("more", "code", "path"),
    [
        ({"key": b"n2"}, "key-mismatch", "key"),
        ({"at": "2023-11-14T22:15:00Z"}, "invalid-field", "at"),
        ({"kind": "BIND_FAILED"}, "unknown-type", "type"),
    ],
)
def test_a_record_of_an_action_is_held_to_the_rules(more: dict[str, Any], code: str, path: str) -> None:
    rejected = decoded(manifest(), **more).rejected
    assert (rejected.code, rejected.path) == (code, path)
    wrong = decoded(manifest(reason=3)).rejected
    assert (wrong.code, wrong.path) == ("invalid-field", "object.reason")


def test_an_action_is_written_once_and_changes_nothing() -> None:
    site = Site()
    site.tell("ADDED", node_manifest("n1"), sent_by="key:ops")
    before = site.planner.digest()
    site.tell("ADDED", manifest(**EVICTION), manifest(), sent_by="key:agent-n1")
    rows = site.database.measured.actions
    assert [(row.action.kind, row.sent_by) for row in rows] == [
        (ActionKind.EVICT, "key:agent-n1"),
        (ActionKind.QUOTA, "key:agent-n1"),
    ]
    assert isinstance(rows[0], ActionRow)
    assert site.planner.digest() == before
    assert not any(site.database.dead_letters.values())
