"""How long decoding an event and encoding a decision take: ``python -m benchmarks.codec``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from domain.model.decisions import Decision, Outcome
from domain.model.pods import PodTemplate
from services.codec.decode import Decoder
from services.codec.encode import encode_decision, encode_event, event_topic_and_key, template_fragment
from services.ports.log import Record

EVENTS = 4_000
ROUNDS = 5
AT = "2024-05-01T12:00:00.123Z"

Json = dict[str, Any]


def pod(number: int, requests: Mapping[str, str], **spec: Any) -> Json:
    """Return a small pod with a name of its own."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"p-{number}",
            "namespace": "default",
            "uid": f"u-{number}",
            "resourceVersion": str(number + 1),
            "labels": {"app": "web"},
        },
        "spec": {"containers": [{"name": "c", "image": "web", "resources": {"requests": requests}}], **spec},
    }


def node(number: int) -> Json:
    """Return a small node with a name of its own."""
    offered = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"n-{number}", "labels": {"zone": "z-1"}, "resourceVersion": str(number + 1)},
        "status": {"capacity": offered, "allocatable": offered},
    }


ASKED = {"cpu": "1", "memory": "1Gi"}
WORKLOADS: dict[str, Callable[[int], Json]] = {
    "pods with the same spec": lambda number: pod(number, ASKED),
    "pods whose specs differ in what placing ignores": lambda number: pod(
        number, ASKED, hostname=f"h-{number}"
    ),
    "pods bound to different nodes": lambda number: pod(number, ASKED, nodeName=f"n-{number}"),
    "pods that all ask for something else": lambda number: pod(
        number, {"cpu": f"{number + 1}m", "memory": "1Gi"}
    ),
    "nodes": node,
}


def nanoseconds(action: Callable[[], int]) -> float:
    """Return the time per item of the fastest round. ``action`` returns how many items it handled."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        count = action()
        best = min(best, (time.perf_counter_ns() - start) / count)
    return best


def decode_all(records: list[Record]) -> int:
    """Decode with a decoder that remembers nothing yet."""
    decoder = Decoder()
    accepted = sum(decoder.decode(record).event is not None for record in records)
    assert accepted == len(records)
    return accepted


def encode_all() -> int:
    """Encode one decision again and again."""
    decision = Decision(
        shard=0,
        epoch=1,
        seq=1,
        pod_uid="u",
        namespace="default",
        name="p",
        resource_version=1,
        outcome=Outcome.BOUND,
        node="n",
        decided_at_ms=1_700_000_000_000,
        profile="default-scheduler",
        signature=bytes(16),
        score=50.5,
        cycle_seq=1,
    )
    fragment = template_fragment(PodTemplate(requests={"cpu": 1000, "memory": 1 << 30}), bytes(16))
    for _ in range(EVENTS):
        encode_decision(decision, fragment, {"app": "web"}, 1, "key:web")
    return EVENTS


def main() -> None:
    """Print nanoseconds per item."""
    for name, make in WORKLOADS.items():
        records = []
        for number in range(EVENTS):
            manifest = make(number)
            topic, key = event_topic_and_key(manifest)
            records.append(
                Record(topic, 0, number, key, encode_event("ADDED", manifest, AT, f"e-{number}"), 0)
            )
        print(f"decode {name:50} {nanoseconds(lambda records=records: decode_all(records)):8.0f} ns")  # type: ignore[misc]
    print(f"encode {'decisions':50} {nanoseconds(encode_all):8.0f} ns")


if __name__ == "__main__":
    main()
