"""Does docs/events.md list the outcomes and the fields of a decision that the code has?"""

from __future__ import annotations

import re
from pathlib import Path

import orjson

from domain.model.decisions import Outcome
from services.codec.encode import encode_conflict
from tests.builders import node_manifest, pod_manifest
from tests.property.site import Site

PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
BY_THE_RELAY = {"recorded_at"}


def table(heading: str, first_column: str) -> dict[str, str]:
    """Return a table behind a heading: what its first column names in code marks -> the second column."""
    _, _, rest = PAGE.partition(f"\n{heading}\n")
    _, _, rows = rest.partition(f"\n| {first_column} | meaning |\n|---|---|\n")
    found = {}
    for row in rows.split("\n\n")[0].splitlines():
        names, meaning = row.strip("| ").split(" | ", 1)
        found.update(dict.fromkeys(re.findall("`([a-z_-]+)`", names), meaning))
    return found


def test_the_page_lists_the_outcomes_of_the_code() -> None:
    assert table("### Outcomes", "outcome") == {outcome.value: outcome.says for outcome in Outcome}


def test_every_decision_has_the_fields_that_the_page_lists() -> None:
    listed = table("## What consumers read", "field")
    left_out = {name for name, meaning in listed.items() if "left out where" in meaning}
    site = Site()
    site.tell("ADDED", node_manifest("n", cpu=8, resource_version=1))
    site.tell("ADDED", pod_manifest("p", cpu=1, resource_version=1, labels={"app": "x"}))
    site.tell("MODIFIED", pod_manifest("p", cpu=2, resource_version=2))
    site.tell("ADDED", pod_manifest("a", cpu=1, node_name="n"), pod_manifest("large", cpu=9))
    site.tell("ADDED", pod_manifest("later", cpu=8))
    site.tell("DELETED", node_manifest("n", resource_version=2))
    site.tell("ADDED", node_manifest("n", cpu=8, resource_version=3))
    site.tell("ADDED", pod_manifest("member", labels={"scheduling.x-k8s.io/pod-group": "g"}))
    site.tell("BIND_FAILED", pod_manifest("p", cpu=2, node_name="n", resource_version=2))
    site.tell("DELETED", pod_manifest("p", resource_version=3))
    decided = site.decided()
    lost = next(row for row in decided if row["outcome"] == "bound")
    decided.append(orjson.loads(encode_conflict(orjson.dumps(lost))))  # as the ledger writes who came second
    preempting = {Outcome.NOMINATED, Outcome.CLEARED, Outcome.EVICTED, Outcome.SPARED}
    assert {row["outcome"] for row in decided} == {outcome.value for outcome in set(Outcome) - preempting}
    for row in decided:
        fields = set(row) - left_out
        assert fields == listed.keys() - left_out - BY_THE_RELAY
        assert set(row["pod"]) <= set(re.findall("`([a-z_]+)`", listed["pod"]))
        assert set(row["template"]) <= set(re.findall("`([a-z_]+)`", listed["template"]))
    bound = next(row for row in decided if row["outcome"] == "bound")
    missing = [name for name, value in bound.items() if value is None and name not in ("event_at",)]
    assert missing == [], "a pod that was placed says all of it"
    assert (bound["profile_revision"], bound["labels"]) == (1, {"app": "x"})
    assert bound["template"]["requests"] == {"cpu": 1_000}
