"""Do the JSON schemas in docs/ say what records are?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.build import schemas as build
from domain.manifests import profile
from domain.model.decisions import Decision, Outcome
from domain.model.pods import PodTemplate
from services.adapters.batches import dead_letter_value, decision_value
from services.codec.encode import encode_decision, template_fragment
from services.ports.ledger import DeadLetter

FOLDER = Path(__file__).parent.parent.parent / "docs" / "schemas"


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def test_the_files_are_what_the_structs_say() -> None:
    """Whoever changes a struct runs ``python -m docs.build.schemas``, and looks at what it changes."""
    assert build.main(["--check"]) == 0


def test_each_schema_is_linked_from_the_page_about_events() -> None:
    page = (FOLDER.parent / "events.md").read_text()
    assert [path.name for path in FOLDER.glob("*.json") if f"(schemas/{path.name})" not in page] == []


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
    "boolean": (bool,),
}


def check(value: Any, schema: dict[str, Any], whole: dict[str, Any], path: str = "") -> None:
    """Check a value by as much of JSON Schema as our schemas use."""
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    if "enum" in schema:
        assert value in schema["enum"], path
        return
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if value is None:
        assert "null" in kinds, path
        return
    assert any(isinstance(value, _TYPES[kind]) for kind in kinds if kind != "null"), path
    if "properties" in schema:
        assert isinstance(value, dict)
        assert set(schema["required"]) <= value.keys() <= schema["properties"].keys(), path
        for name, each in value.items():
            check(each, schema["properties"][name], whole, f"{path}.{name}")


@pytest.mark.parametrize("is_bound", [True, False])
def test_a_decision_is_as_its_schema(is_bound: bool) -> None:
    decision = Decision(
        shard=0,
        epoch=1,
        seq=7,
        namespace="default",
        name="web",
        pod_uid="u",
        resource_version=3 if is_bound else None,
        outcome=Outcome.BOUND if is_bound else Outcome.UNSCHEDULABLE,
        node="n" if is_bound else None,
        decided_at_ms=1,
        event_at_ms=2 if is_bound else None,
        signature=b"s",
        profile="p",
        profile_revision=1 if is_bound else None,
        reason="" if is_bound else "no room",
        score=1.5 if is_bound else None,
        cycle_seq=1,
    )
    fragment = template_fragment(PodTemplate(requests={"cpu": 500}), b"s")
    reasons: dict[str, int] = {} if is_bound else {"insufficient:cpu": 2}
    payload = encode_decision(
        decision, fragment, {"app": "x"}, 4 if is_bound else None, "key:a", reasons, ["ignored:x"]
    )
    record, schema = json.loads(decision_value(payload, 5)), read("decision")
    check(record, schema, schema)
    assert schema["properties"].keys() - record.keys() <= {"warnings", "preemption", "migration", "devices"}
    with pytest.raises(AssertionError):
        check(record | {"seq": "7"}, schema, schema)


def test_a_dead_letter_is_as_its_schema() -> None:
    letter = DeadLetter(
        shard=0,
        seq=1,
        topic="berth.pods",
        partition=0,
        offset=3,
        key=None,
        raw=b"\xff",
        code="not-json",
        path="",
        message="is no JSON",
        at_ms=1,
    )
    record, schema = json.loads(dead_letter_value(letter)), read("dead-letter")
    check(record, schema, schema)
    assert record.keys() == schema["properties"].keys()


def test_the_schema_of_a_profile_allows_what_its_reader_allows() -> None:
    """That reader goes by tables of its own, so that it can name what is allowed."""
    parts = read("scheduling-profile-event")["$defs"]
    assert set(parts["ProfileSpec"]["properties"]) == set(profile._SPEC_FIELDS)
    assert set(parts["Plugin"]["properties"]) == set(profile._FILTER_FIELDS)
    assert set(parts["WeightedPlugin"]["properties"]) == set(profile._SCORE_FIELDS)
