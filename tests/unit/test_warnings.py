"""Does a decision name the parts of the pod that had no effect, and does its explanation agree?"""

from __future__ import annotations

import msgspec
import orjson

from services.api.answers_decisions import Explanation
from services.api.explanation import decision_of, summary
from services.phrases import reason_in_words
from services.ports.log import NODES_TOPIC, PODS_TOPIC
from services.ports.store import DecisionRow
from tests.builders import Json, event_bytes, node_manifest, pod_manifest, record
from tests.property.site import Site

DISK = {"name": "d", "cinder": {"volumeID": "1"}}
CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}


def decided(*pods: Json) -> list[Json]:
    """Return the records of what is decided for pods beside one node."""
    site = Site()
    site.take([record(NODES_TOPIC, event_bytes("ADDED", node_manifest("n", cpu=4)))])
    site.take([record(PODS_TOPIC, event_bytes("ADDED", each), offset=i) for i, each in enumerate(pods)])
    return [orjson.loads(payload) for rows in site.database.decisions.values() for _, payload in rows]


def explained(payload: Json) -> str:
    """Return the explanation of a decision, from its row as the ledger has it."""
    decision = decision_of(DecisionRow(0, payload["seq"], bytes(16), 0, None, orjson.dumps(payload)), None)
    assert decision.warnings == payload.get("warnings", [])
    reasons = decision.reasons
    return summary(
        Explanation(
            decision=decision, requests={}, template={}, reasons=reasons, cycle=None, profile=None, summary=""
        )
    )


def test_who_leaves_for_whom_is_told_and_no_other_pod_to_whom_sees_some_namespaces() -> None:
    (record_of_bound,) = decided(pod_manifest("p", cpu="1"))
    nominated = {"victims": ["u1", "u2"], "violations": 1, "expires_at": "2026-01-31T08:00:00.000Z"}
    evicted = {"preemptor": "u3", "priority": 7, "nominated": "1-9", "shard": 2}
    for told, seen_by_some in (
        (nominated, {"violations": 1, "expires_at": nominated["expires_at"]}),
        (evicted, {"shard": 2}),
    ):
        payload = orjson.dumps(record_of_bound | {"preemption": told})
        row = DecisionRow(0, 1, bytes(16), 0, None, payload)
        for seen, expected in ((None, told), (["default"], seen_by_some)):
            preemption = msgspec.to_builtins(decision_of(row, seen).preemption)
            assert {name: value for name, value in preemption.items() if value not in (None, [])} == expected
    plain = DecisionRow(0, 1, bytes(16), 0, None, orjson.dumps(record_of_bound))
    assert decision_of(plain, None).preemption is None


def test_a_bound_pod_is_warned_and_a_plain_one_is_not() -> None:
    plain, with_disk = decided(pod_manifest("a"), pod_manifest("b", spec={"volumes": [DISK]}))
    assert "warnings" not in plain
    assert with_disk["outcome"] == "bound"
    assert with_disk["warnings"] == ["ignored:disks"]
    assert "Not looked at: the limits of nodes for attached disks." in explained(with_disk)
    assert "Not looked at" not in explained(plain)


def test_a_pod_with_a_volume_claim_waits_and_is_warned_of_the_rest() -> None:
    (held,) = decided(pod_manifest("a", spec={"volumes": [CLAIM, DISK]}))
    assert held["outcome"] in ("unschedulable", "unresolvable")
    assert held["reasons"] == {"unsupported:volume-claims": 1}
    assert held["warnings"] == ["ignored:disks"]
    said = reason_in_words("unsupported:volume-claims", 1)
    assert said == "was not tried: this version does not honour volumes by claim"
    assert said in explained(held)


def test_a_pod_that_runs_already_is_not_warned_of_what_was_decided_elsewhere() -> None:
    (adopted,) = decided(pod_manifest("a", node_name="n", spec={"volumes": [CLAIM, DISK]}))
    assert adopted["outcome"] == "adopted"
    assert "warnings" not in adopted


def test_warnings_cost_nothing_where_there_are_none() -> None:
    site = Site()
    site.take([record(NODES_TOPIC, event_bytes("ADDED", node_manifest("n", cpu=4)))])
    site.take([record(PODS_TOPIC, event_bytes("ADDED", pod_manifest("a")))])
    (attempt,) = site.database.attempts.values()
    assert b"warnings" not in msgspec.json.encode(attempt)
