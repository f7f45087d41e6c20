"""Makes small batches for a ledger, with defaults for what a test does not care about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from domain.colocation.pricing import BillLine
from domain.model.colocation import Amounts, Heat, UseByQuality
from domain.model.decisions import Attempt, Candidate, Decision, Outcome
from domain.model.nodes import NodeSpec, Taint
from domain.model.pods import DEFAULT_PROFILE, PodTemplate
from domain.model.usage import CountedPod, Measured, QualityRecord, SeriesRecord, UsageRecord
from services.codec.encode import encode_decision
from services.ports.ledger import (
    AttemptRows,
    CommitBatch,
    ConfigRow,
    DeadLetter,
    Lease,
    NodeClaim,
    NodeFact,
    OffsetAdvance,
    PendingGroup,
    PendingPod,
    PlacementOpened,
    PodTombstone,
    ProfileRow,
    UsageRow,
)
from services.ports.log import PODS_TOPIC
from tests.batches import batch_of

AT_MS = 1_700_000_000_000
SIGNATURE = b"0123456789abcdef"


def advance(lease: Lease, lo: int, hi: int) -> OffsetAdvance:
    """Return a move of the shard's offset of its pods."""
    return OffsetAdvance(lease.shard, PODS_TOPIC, lease.shard, lease.epoch, lo, hi)


def node_spec(name: str, **more: Any) -> NodeSpec:
    """Return a node of 8 cores."""
    offered = {"cpu": 8000, "memory": 1 << 35, "pods": 110}
    return NodeSpec(**{"name": name, "uid": name, "resource_version": 1, "allocatable": offered, **more})


def new_node(number: int, **more: Any) -> NodeFact:
    """Return the fact that adds node ``n<number>``."""
    name = f"n{number}"
    given = {"id": number, "name": name, "version_seen": 0, "changes": 1, "delta": {}, "spec_count": 1}
    return NodeFact(**{**given, "spec": node_spec(name), **more})


def change_node(number: int, version: int, delta: dict[str, int] | None = None, **more: Any) -> NodeFact:
    """Return a fact about a node that is known."""
    given = {"id": number, "name": f"n{number}", "version_seen": version, "changes": 1}
    return NodeFact(**{**given, "delta": delta or {}, **more})


def load_node(number: int, version: int, **delta: int) -> NodeClaim:
    """Return the claim that adds to what is requested of a node, which is granted by its version alone."""
    return NodeClaim(
        id=number, name=f"n{number}", version_seen=version, spec_count_seen=1, changes=1, delta=delta
    )


def decision(lease: Lease, seq: int, pod: str, node: str | None = None, **more: Any) -> Decision:
    """Return a decision for pod ``ns/<pod>``."""
    return Decision(
        **{
            "shard": lease.shard,
            "epoch": lease.epoch,
            "seq": seq,
            "pod_uid": f"uid-{pod}",
            "namespace": "ns",
            "name": pod,
            "resource_version": 1,
            "outcome": Outcome.UNSCHEDULABLE if node is None else Outcome.BOUND,
            "node": node,
            "decided_at_ms": AT_MS + seq,
            "profile": DEFAULT_PROFILE,
            "signature": SIGNATURE,
            **more,
        }
    )


def record(made: Decision, node_version: int | None = None) -> tuple[Decision, bytes]:
    """Return a decision with its record; ``node_version`` where it has a node."""
    return made, encode_decision(made, b'{"requests":{}}', {}, node_version, "key:ops")


def opened(made: Decision, **more: Any) -> PlacementOpened:
    """Return the placement that a decision opens."""
    return PlacementOpened(
        **{
            "pod_uid": made.pod_uid,
            "namespace": made.namespace,
            "name": made.name,
            "resource_version": made.resource_version,
            "signature": made.signature,
            "labels": {},
            "node": made.node,
            "adopted": False,
            "shard": made.shard,
            "seq": made.seq,
            "at_ms": made.decided_at_ms,
            **more,
        }
    )


def waiting(lease: Lease, pod: str, arrival: int, **more: Any) -> PendingPod:
    """Return a pod that waits."""
    return PendingPod(
        **{
            "pod_uid": f"uid-{pod}",
            "namespace": "ns",
            "name": pod,
            "resource_version": 1,
            "signature": SIGNATURE,
            "labels": {},
            "shard": lease.shard,
            "arrival": arrival,
            "since_ms": AT_MS,
            "sent_by": "key:ä",
            **more,
        }
    )


def dead_letter(lease: Lease, seq: int, **more: Any) -> DeadLetter:
    """Return a dead letter."""
    return DeadLetter(
        **{
            "shard": lease.shard,
            "seq": seq,
            "topic": PODS_TOPIC,
            "partition": lease.shard,
            "offset": 7,
            "key": b"ns/bad",
            "raw": b"{not json",
            "code": "invalid-json",
            "path": "",
            "message": "it is not JSON",
            "at_ms": AT_MS,
            "sent_by": "direct",
            **more,
        }
    )


LENT = QualityRecord(
    at_ms=AT_MS,
    use=UseByQuality(high=Amounts(2**40, 2**60), system=Amounts(1, 2)),
    since_ms=AT_MS - 9,
    counted={"u": CountedPod(AT_MS - 1, 0.1 + 0.2, 1e300)},
    heat=Heat(is_hot=True, good_count=2),
)
"""What was measured by quality."""


def usage(node: str, **more: Any) -> UsageRow:
    """Return what was measured on a node."""
    series = {
        "cpu": SeriesRecord(
            ago_ms=[30_000, 0], percent=[0.1 + 0.2, 1e-300], peaks={19_674: 99.9, 19_675: 0.0}
        ),
        "x.io/odd": SeriesRecord(given=Measured(avg=1 / 3, std=0.0), given_ago_ms=7),
    }
    record = UsageRecord(**{"node": node, "at_ms": AT_MS, "series": series, **more})
    return UsageRow(record, "key:agent")


def bill(namespace: str, quality: str, part: str, amount: int, **more: Any) -> BillLine:
    """Return what pods used of cpu in the hour of ``AT_MS``: a millionth of its price is saved as well."""
    hour_ms = AT_MS - AT_MS % 3_600_000
    line = {"resource": "cpu", "price_micro": 2 * amount, "saved_micro": amount, "hour_ms": hour_ms, **more}
    return BillLine(namespace=namespace, quality=quality, part=part, amount=amount, **line)


def profile(name: str, revision: int, **more: Any) -> ProfileRow:
    """Return a revision of a profile with any score."""
    fit = {"name": "NodeResourcesFit", "weight": 2, "args": {"z": 1.5, "a": ["\0", "ä"]}}
    spec = {"filters": [{"name": "NodeResourcesFit"}], "scores": [fit]}
    return ProfileRow(
        **{"name": name, "revision": revision, "spec": spec, "resource_version": None, "at_ms": AT_MS, **more}
    )


def config(name: str, **more: Any) -> ConfigRow:
    """Return a configuration object without a namespace."""
    row = {"kind": "PriorityClass", "namespace": "", "name": name, "object": {"value": 7, "z": ["ä", "\0"]}}
    return ConfigRow(**{**row, "resource_version": None, "at_ms": AT_MS, **more})


def bind(lease: Lease, seqs: Sequence[int], lo: int, node: str = "n1", **more: Any) -> CommitBatch:
    """Return a batch that binds one pod per seq, ``p<shard>-<seq>``. ``nodes`` are facts and claims."""
    nodes = more.pop("nodes", ())
    made = [decision(lease, seq, f"p{lease.shard}-{seq}", node) for seq in seqs]
    return batch_of(
        **{
            "advances": [advance(lease, lo, lo + len(made))],
            "made": [record(one) for one in made],
            "facts": [each for each in nodes if isinstance(each, NodeFact)],
            "claims": [each for each in nodes if isinstance(each, NodeClaim)],
            "opened": [opened(one) for one in made],
            "waited": {one.pod_uid: (one.seq, AT_MS, "key:ops") for one in made},
            "templates": {SIGNATURE: PodTemplate(requests={"cpu": 100})},
            "seq_next": {lease.shard: seqs[-1] + 1},
            "log_time_ms": AT_MS,
            **more,
        }
    )


def everything(lease: Lease) -> CommitBatch:
    """Return the first batch of a shard, with something for every table."""
    bound = decision(lease, 1, "placed", "n1", score=12.5, cycle_seq=1)
    adopted = decision(lease, 2, "adopted", "n2", outcome=Outcome.ADOPTED)
    waits = decision(lease, 3, "waits", cycle_seq=3, signature=b"another-16-bytes")
    more = {"signature": b"another-16-bytes", "labels": {"app": "batch"}, "sent_by": "key:ä", "tried": False}
    spec = node_spec("n1", labels={"zone": "ä"}, taints=(Taint(key="gpu"),), resource_version=None)
    attempt = Attempt(
        signature=SIGNATURE,
        profile=DEFAULT_PROFILE,
        profile_revision=1,
        seed=5,
        generation=9,
        nodes_count=2,
        feasible_count=1,
        unresolvable_count=0,
        reasons={"cpu": 1},
        candidates=(Candidate(node="n1", score=12.5, parts={"NodeResourcesFit": 12.5}),),
        pods_count=1,
        bound_count=1,
    )
    return batch_of(
        advances=[advance(lease, 0, 5)],
        facts=[
            new_node(1, sent_by="key:ops", spec=spec, delta={"cpu": 100, "pods": 1, "nvidia.com/gpu": 2}),
            new_node(2, delta={"cpu": 250, "pods": 1}),
        ],
        templates={
            SIGNATURE: PodTemplate(requests={"cpu": 100, "nvidia.com/gpu": 2}, tolerations=()),
            b"another-16-bytes": PodTemplate(requests={"cpu": 1 << 40}),
        },
        opened=[
            opened(bound, labels={"app": "web"}),
            opened(adopted, adopted=True, resource_version=None),
        ],
        made=[record(bound), record(adopted), record(waits)],
        attempts=[AttemptRows(attempt, {lease.shard: 1})],
        pending_added=[waiting(lease, "waits", 4, **more)],
        pending_groups=[
            PendingGroup(
                shard=lease.shard,
                signature=b"another-16-bytes",
                reasons={"cpu": 2},
                unresolvable=True,
                cycle_seq=3,
                at_ms=AT_MS,
            )
        ],
        tombstones=[
            PodTombstone(
                namespace="ns", name="gone", uid="u", resource_version=8, shard=lease.shard, at_ms=AT_MS
            )
        ],
        dead_letters=[dead_letter(lease, 1)],
        usage=[usage("n1"), usage("unknown", at_ms=AT_MS + 1, quality=LENT)],
        bill=[bill("ns", "mid", "burst", 7)],
        profiles=[profile("batch", 1, resource_version=7, sent_by="key:ops"), profile("gone", 4, spec=None)],
        config=[
            config("gone", object=None, resource_version=3),
            config("high", resource_version=2**62, sent_by="local:me"),
        ],
        seq_next={lease.shard: 4},
        dead_seq_next={lease.shard: 2},
        log_time_ms=AT_MS,
    )
