"""Does every store give the same answers about a ledger, on Postgres as in memory?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import pytest_asyncio

from domain.model.decisions import Outcome
from domain.model.limits import (
    attempts_first_max,
    attempts_latest_max,
    page_bytes_max,
    raw_bytes_shown_max,
)
from domain.model.pods import PodTemplate
from services.ports.bills import BillBy, BillFilter, BillSums
from services.ports.ledger import (
    AttemptRows,
    CommitBatch,
    Committed,
    Lease,
    Ledger,
    NotCommitted,
    PendingGroup,
    PlacementClosed,
)
from services.ports.log import PODS_TOPIC, Span
from services.ports.store import (
    ConfigFilter,
    Counts,
    DecisionFilter,
    Grant,
    PlacementSpan,
    PodFilter,
    RefusedRecord,
    ShardOffset,
    Store,
    WaitingGroup,
)
from tests.batches import batch_of
from tests.contract.batches import (
    AT_MS,
    SIGNATURE,
    advance,
    bill,
    change_node,
    config,
    dead_letter,
    decision,
    everything,
    new_node,
    node_spec,
    opened,
    profile,
    record,
    usage,
    waiting,
)
from tests.contract.ledgers import LEASE_SECONDS, SHARDS, Backend, start

OTHER = b"another-16-bytes"


@pytest_asyncio.fixture
async def leases(ledger: Ledger) -> list[Lease]:
    """Return the leases of all shards; the first one has something in every table."""
    leases = await start(ledger, SHARDS)
    await commit(ledger, everything(leases[0]))
    return leases


@pytest_asyncio.fixture
async def store(backend: Backend) -> Store:
    """Return the backend's store."""
    return backend.store()


async def commit(ledger: Ledger, batch: CommitBatch) -> None:
    assert await ledger.commit(batch) == Committed()


# ------------------------------------------------------------------------------------------ nodes and pods


async def test_nodes_come_by_name_with_what_is_requested_of_them(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    first, second = await store.nodes(10, None, None)
    assert first.node.requested == {"cpu": 100, "pods": 1, "nvidia.com/gpu": 2}
    assert first.node.spec is not None
    assert first.node.spec.labels == {"zone": "ä"}
    assert (first.spec_changed_ms, first.spec_sent_by) == (AT_MS, "key:ops")
    gone = change_node(2, 1, spec=node_spec("n2"), deleted=True, spec_count=2)
    await commit(
        ledger,
        batch_of(
            advances=[advance(leases[0], 5, 6)], facts=[gone, new_node(3, name="m_3")], log_time_ms=AT_MS + 9
        ),
    )
    assert [state.node.name for state in await store.nodes(10, None, None)] == ["m_3", "n1"]
    assert [state.node.name for state in await store.nodes(1, "m_3", None)] == ["n1"]
    assert [state.node.name for state in await store.nodes(10, None, "_")] == ["m_3"]
    deleted = await store.node("n2")
    assert deleted is not None
    assert (deleted.node.deleted, deleted.node.version, deleted.spec_changed_ms) == (True, 2, AT_MS + 9)
    assert deleted.node.spec == second.node.spec
    assert await store.node("none") is None
    assert await store.processes.counts() == Counts(nodes=2, pending_pods=1)


async def test_pods_of_a_deleted_node_are_orphaned(store: Store, ledger: Ledger, leases: list[Lease]) -> None:
    before = await store.pods(PodFilter(), 10, None)
    assert not any(pod.orphaned for pod in before)
    gone = change_node(2, 1, spec=node_spec("n2"), deleted=True, spec_count=2)
    told = {"uid-adopted": True}
    advances = [advance(leases[0], 5, 6)]
    await commit(ledger, batch_of(advances=advances, facts=[gone], orphaned=told, log_time_ms=AT_MS))
    found = {pod.name: (pod.node, pod.orphaned) for pod in await store.pods(PodFilter(), 10, None)}
    assert found == {"placed": ("n1", False), "adopted": ("n2", True), "waits": (None, False)}
    adopted = await store.pod("ns", "adopted")
    assert adopted is not None
    assert adopted.orphaned
    assert [pod.name for pod in await store.pods(PodFilter(phase="orphaned"), 10, None)] == ["adopted"]
    assert [pod.name for pod in await store.pods(PodFilter(phase="bound"), 10, None)] == ["adopted", "placed"]
    for seen, counts in ((None, (2, 1)), (["none"], (0, 0))):
        totals = await store.past.totals(None, seen)
        assert (totals.bound_count, totals.orphaned_count) == counts


async def test_a_resized_pod_is_among_those_of_its_namespace(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    resized = decision(leases[0], 4, "placed", "n1", pod_uid="uid-placed", outcome=Outcome.RESIZED)
    batch = batch_of(
        advances=[advance(leases[0], 5, 6)],
        closed=[PlacementClosed("uid-placed", AT_MS)],
        opened=[opened(resized)],
        made=[record(resized)],
        seq_next={0: 5},
        log_time_ms=AT_MS,
    )
    await commit(ledger, batch)
    for which in (PodFilter(), PodFilter(namespace="ns"), PodFilter(node="n1")):
        found = {pod.name: pod.seq for pod in await store.pods(which, 10, None)}
        assert found["placed"] == 4, which
    assert await store.pod("ns", "placed") is not None


async def test_usage_is_what_was_written(store: Store, leases: list[Lease]) -> None:
    assert await store.usage("n1") == usage("n1").record
    assert await store.usage("n2") is None


HOUR_MS = AT_MS - AT_MS % 3_600_000
DAY_MS = AT_MS - AT_MS % 86_400_000


async def test_a_bill_adds_up_whatever_its_lines_are_of(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    """Amounts may pass 64 bits; a key with a limit sees the sums of its own namespaces."""
    huge = 2**70 + 1
    lines = [
        bill("ns", "mid", "burst", 5),
        bill("ns", "mid", "request", huge, resource="memory"),
        bill("ns", "low", "low", 9, resource="memory", hour_ms=HOUR_MS + 86_400_000),
        bill("b", "low", "low", 100),
        bill("b", "high", "plain", 1, hour_ms=HOUR_MS - 3_600_000, saved_micro=0),
    ]
    for at in range(2):
        batch = batch_of(advances=[advance(leases[0], 5 + at, 6 + at)], bill=lines, log_time_ms=AT_MS)
        await commit(ledger, batch)
        assert await ledger.commit(batch) is NotCommitted.FENCED, "it is added once"
    anything = BillFilter()
    by_namespace = [
        BillSums("b", 202, 0, 200, 0, 404, 200),
        BillSums("ns", 17, 2 * huge + 18, 17, 18, 4 * huge + 70, 2 * huge + 35),
    ]
    total = BillSums("", 219, 2 * huge + 18, 217, 18, 4 * huge + 474, 2 * huge + 235)
    assert await store.bills.lines(anything, BillBy.NAMESPACE, 9, None) == by_namespace
    assert await store.bills.total(anything) == total
    for by in BillBy:
        found = await store.bills.lines(anything, by, 9, None)
        assert [sum(each) for each in zip(*(row[1:] for row in found), strict=True)] == list(total[1:])
    qualities = await store.bills.lines(anything, BillBy.QUALITY, 9, None)
    assert [row.key for row in qualities] == ["high", "low", "mid"]
    days = await store.bills.lines(anything, BillBy.DAY, 9, None)
    assert [int(row.key) for row in days] == [DAY_MS, DAY_MS + 86_400_000]
    assert (await store.bills.lines(anything, BillBy.NAMESPACE, 1, None)).more
    assert await store.bills.lines(anything, BillBy.NAMESPACE, 1, "b") == by_namespace[1:]
    for seen, rows in ((("ns",), by_namespace[1:]), (("none",), []), ((), [])):
        some = BillFilter(namespaces=seen)
        assert await store.bills.lines(some, BillBy.NAMESPACE, 9, None) == rows
        assert (await store.bills.total(some))[1:] == (rows[0][1:] if rows else (0,) * 6)
    one_hour = BillFilter(since_ms=HOUR_MS, until_ms=HOUR_MS + 1)
    assert (await store.bills.total(one_hour)).cpu_milli_seconds == 217


async def test_pods_come_by_uid_whether_they_wait_or_not(store: Store, leases: list[Lease]) -> None:
    adopted, placed, waits = await store.pods(PodFilter(), 10, None)
    assert [pod.pod_uid for pod in (adopted, placed, waits)] == ["uid-adopted", "uid-placed", "uid-waits"]
    assert (adopted.node, adopted.adopted, adopted.resource_version) == ("n2", True, None)
    assert (placed.node, placed.labels, placed.seq) == ("n1", {"app": "web"}, 1)
    assert placed.template == PodTemplate(requests={"cpu": 100, "nvidia.com/gpu": 2})
    assert (waits.node, waits.seq, waits.labels, waits.signature) == (None, None, {"app": "batch"}, OTHER)

    async def names(which: PodFilter, limit: int = 10, after: str | None = None) -> list[str]:
        return [pod.name for pod in await store.pods(which, limit, after)]

    assert await names(PodFilter(phase="pending")) == ["waits"]
    assert await names(PodFilter(phase="bound")) == ["adopted", "placed"]
    assert await names(PodFilter(node="n2")) == ["adopted"]
    assert await names(PodFilter(node="n2", phase="pending")) == []
    assert await names(PodFilter(namespace="none")) == []
    assert await names(PodFilter(), 1, "uid-adopted") == ["placed"]
    assert await store.pod("ns", "waits") == waits
    assert await store.pod("ns", "placed") == placed
    assert await store.pod("ns", "none") is None


async def test_a_pod_has_the_qos_class_of_its_template(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    pod = waiting(leases[1], "sure", 1, signature=b"signature-of-qos")
    made = {pod.signature: PodTemplate(requests={"cpu": 100}, qos_class="Guaranteed")}
    await commit(ledger, batch_of(advances=[advance(leases[1], 0, 1)], pending_added=[pod], templates=made))
    found = {
        each.name: each.template and each.template.qos_class
        for each in await store.pods(PodFilter(), 10, None)
    }
    assert found == {
        "adopted": "BestEffort",
        "placed": "BestEffort",
        "sure": "Guaranteed",
        "waits": "BestEffort",
    }

    async def names(**asked: str) -> list[str]:
        return [each.name for each in await store.pods(PodFilter(**asked), 10, None)]

    assert await names(qos_class="Guaranteed") == ["sure"]
    assert await names(qos_class="BestEffort") == ["adopted", "placed", "waits"]
    assert await names(qos_class="BestEffort", phase="pending") == ["waits"]
    assert await names(qos_class="BestEffort", node="n1") == ["placed"]
    assert await names(qos_class="Burstable") == []
    page = await store.pods(PodFilter(qos_class="BestEffort"), 1, "uid-adopted")
    assert ([each.name for each in page], page.more) == (["placed"], True)


@pytest.mark.parametrize("walked", [1, 2, 3, 100])
@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_pods_of_a_rare_class_are_found_by_pages_that_may_be_empty(
    store: Store,
    ledger: Ledger,
    leases: list[Lease],
    walked: int,
    limit: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.adapters.postgres.store.WALKED_MAX", walked)
    rare = [waiting(leases[1], f"rare-{i}", i, signature=b"signature-of-qos") for i in range(3)]
    made = {rare[0].signature: PodTemplate(qos_class="Guaranteed")}
    await commit(ledger, batch_of(advances=[advance(leases[1], 0, 1)], pending_added=rare, templates=made))
    for which, expected in (
        (PodFilter(qos_class="Guaranteed"), ["rare-0", "rare-1", "rare-2"]),
        (PodFilter(qos_class="BestEffort"), ["adopted", "placed", "waits"]),
        (PodFilter(qos_class="Burstable"), []),
    ):
        names: list[str] = []
        after: str | None = None
        for _ in range(20):
            page = await store.pods(which, limit, after)
            names += [each.name for each in page]
            after = page[-1].pod_uid if page.more else page.reached
            if not after:
                break
        assert (names, after) == (expected, "")


async def test_a_released_pod_is_no_live_pod_and_keeps_its_placements(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    gone = decision(leases[0], 4, "placed", "n1", outcome=Outcome.RELEASED)
    again = decision(leases[0], 5, "placed", "n2", pod_uid="uid-again")
    await commit(
        ledger,
        batch_of(
            advances=[advance(leases[0], 5, 7)],
            closed=[PlacementClosed("uid-placed", AT_MS + 4)],
            opened=[opened(again)],
            made=[record(gone), record(again)],
            seq_next={0: 6},
            log_time_ms=AT_MS + 5,
        ),
    )
    live = await store.pod("ns", "placed")
    assert live is not None
    assert (live.pod_uid, live.node) == ("uid-again", "n2")
    assert await store.pod_placements("ns", "placed", 10) == [
        PlacementSpan(0, 5, "uid-again", "n2", False, AT_MS + 5, None),
        PlacementSpan(0, 1, "uid-placed", "n1", False, AT_MS + 1, AT_MS + 4),
    ]
    assert len(await store.pod_placements("ns", "placed", 1)) == 1


async def test_templates_by_signature(store: Store, leases: list[Lease]) -> None:
    assert await store.template(OTHER) == PodTemplate(requests={"cpu": 1 << 40})
    assert await store.template(b"none") is None


# ----------------------------------------------------------------------------------------------- decisions


async def test_decisions_are_filtered_by_each_field_and_by_all(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    made = [
        decision(leases[1], 1, "a", "n1", profile="batch", profile_revision=3),
        decision(leases[1], 2, "b", "n1", profile="batch", profile_revision=4, signature=OTHER),
        decision(leases[1], 3, "c", outcome=Outcome.UNRESOLVABLE, namespace="kube"),
    ]
    batch = batch_of(
        advances=[advance(leases[1], 0, 3)],
        made=list(map(record, made)),
        seq_next={1: 4},
        log_time_ms=AT_MS,
    )
    await commit(ledger, batch)

    async def ids(
        limit: int = 10, after: tuple[int, int] | None = None, newest: bool = False, **which: Any
    ) -> str:
        rows = await store.decisions(DecisionFilter(**which), limit, after, newest)
        return " ".join(f"{row.shard}-{row.seq}" for row in rows)

    assert await ids() == "0-1 1-1 0-2 1-2 0-3 1-3"
    assert await ids(newest=True) == "1-3 0-3 1-2 0-2 1-1 0-1"
    assert await ids(2, (1, 1)) == "0-2 1-2"
    assert await ids(2, (3, 0), newest=True) == "1-2 0-2"
    assert await ids(node="n1") == "0-1 1-1 1-2"
    assert await ids(node="n1", newest=True, limit=2) == "1-2 1-1"
    assert await ids(node="n1", after=(1, 1)) == "1-2"
    assert await ids(profile="batch") == "1-1 1-2"
    assert await ids(profile="batch", profile_revision=3) == "1-1"
    assert await ids(profile="default-scheduler", profile_revision=3) == ""
    assert await ids(signature=OTHER) == "1-2 0-3"
    assert await ids(outcome="unresolvable") == "1-3"
    assert await ids(namespace="kube") == "1-3"
    assert await ids(namespace="ns", name="placed") == "0-1"
    assert await ids(shard=1, newest=True) == "1-3 1-2 1-1"
    assert await ids(since_ms=AT_MS + 2, until_ms=AT_MS + 3) == "0-2 1-2"
    assert await ids(since_ms=AT_MS + 2, until_ms=AT_MS + 3, after=(2, 0)) == "1-2"
    assert await ids(node="n1", outcome="bound", since_ms=AT_MS + 2) == "1-2"
    assert await ids(node="none") == ""


async def test_one_decision_and_the_attempt_behind_it(store: Store, leases: list[Lease]) -> None:
    assert (row := await store.decision(0, 1)) is not None
    assert (row.shard, row.seq, row.signature, row.cycle_seq) == (0, 1, SIGNATURE, 1)
    assert row.payload == everything(leases[0]).decisions.made[0][1]
    assert row.recorded_at is not None
    assert await store.decision(0, 9) is None
    assert [await store.attempt(0, 1)] == list(everything(leases[0]).decisions.attempts[0].each())
    assert await store.attempt(0, 2) is None


async def test_each_attempt_of_a_batch_is_found_by_its_shard_and_seq(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    known = everything(leases[0]).decisions.attempts[0].attempt
    one, other = (msgspec.structs.replace(known, generation=at, warnings=("w",)) for at in (11, 12))
    offsets = [advance(leases[0], 5, 6), advance(leases[1], 0, 1)]
    tried = [AttemptRows(one, {0: 7, 1: 4}), AttemptRows(other, {0: 5})]
    await commit(ledger, batch_of(advances=offsets, attempts=tried, log_time_ms=AT_MS))
    found = {at: await store.attempt(*at) for at in ((0, 4), (0, 5), (0, 6), (0, 7), (0, 8), (1, 4), (1, 5))}
    assert {at: each.generation for at, each in found.items() if each} == {(0, 5): 12, (0, 7): 11, (1, 4): 11}
    assert found[0, 7] == msgspec.structs.replace(one, shard=0, seq=7)


# ------------------------------------------------------------------------------------ pending and attempts


async def test_groups_come_largest_first_with_why_they_wait(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    more = [waiting(leases[1], f"p{i}", i) for i in range(4)]
    await commit(ledger, batch_of(advances=[advance(leases[1], 0, 4)], pending_added=more, log_time_ms=AT_MS))
    large, small = await store.pending(None)
    assert (large.shard, large.pods_count, list(large.examples)) == (1, 4, ["ns/p0", "ns/p1", "ns/p2"])
    assert (large.reasons, large.unresolvable, large.at_ms) == (None, None, None)
    assert (small.pods_count, small.reasons, small.unresolvable, small.cycle_seq) == (1, {"cpu": 2}, True, 3)
    assert small.template == PodTemplate(requests={"cpu": 1 << 40})
    assert await store.pending(0) == [small]
    assert await store.pending(None, SIGNATURE) == [large]


async def tried(ledger: Ledger, lease: Lease, number: int, cpu: int, revision: int = 1) -> None:
    """Commit one more attempt of a group that failed."""
    group = PendingGroup(
        shard=lease.shard,
        signature=OTHER,
        reasons={"cpu": cpu},
        unresolvable=False,
        cycle_seq=number,
        at_ms=AT_MS + number,
        profile="batch",
        profile_revision=revision,
        nodes_count=9,
    )
    batch = batch_of(
        advances=[advance(lease, number, number + 1)], pending_groups=[group], log_time_ms=AT_MS + number
    )
    await commit(ledger, batch)


async def test_attempts_that_fail_for_the_same_reasons_count_as_one(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    for number, (cpu, revision) in enumerate([(3, 1), (3, 1), (3, 2), (4, 2), (3, 1)]):
        await tried(ledger, leases[1], number, cpu, revision)
    found = await store.group_attempts(1, OTHER)
    assert [(each.number, each.reasons["cpu"], each.times, each.at_ms - AT_MS) for each in found] == [
        (1, 3, 2, 0),
        (2, 3, 1, 2),
        (3, 4, 1, 3),
        (4, 3, 1, 4),
    ]
    assert [each.last_at_ms - AT_MS for each in found] == [1, 2, 3, 4]
    assert (found[0].profile, found[0].profile_revision, found[0].nodes_count) == ("batch", 1, 9)
    assert (found[0].unresolvable, found[0].cycle_seq) == (False, 0)


async def test_groups_stand_by_priority_and_then_by_their_oldest_pod(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    for number in range(3):
        await tried(ledger, leases[1], number, cpu=3)  # of the group OTHER, at AT_MS and 1 and 2 ms later
    names = {"late": b"l" * 16, "urgent": b"u" * 16, "none": b"n" * 16}
    made = {names["late"]: PodTemplate(), names["urgent"]: PodTemplate(priority=9)}
    pods = [
        waiting(leases[1], "a", 5, signature=OTHER, since_ms=AT_MS + 3),
        waiting(leases[1], "b", 6, signature=OTHER, since_ms=AT_MS + 4, namespace="unseen"),
        waiting(leases[1], "c", 7, signature=names["late"]),
        waiting(leases[1], "d", 8, signature=names["urgent"]),
        waiting(leases[1], "e", 9, signature=names["none"]),  # the ledger lacks its template
    ]
    advances = [advance(leases[1], 3, 9)]
    await commit(ledger, batch_of(advances=advances, templates=made, pending_added=pods, log_time_ms=AT_MS))
    groups = await store.pending(1)
    found = await store.queue_places(groups)
    order = sorted(found, key=lambda key: found[key].groups_before)
    assert [key[1] for key in order] == [names["urgent"], OTHER, names["late"], names["none"]]
    assert [found[key].groups_before for key in order] == [0, 1, 2, 3]
    assert [found[key].pods_before for key in order] == [0, 1, 3, 4]
    assert found[1, OTHER].attempts_count == 0, "all were before its oldest pod began to wait"
    assert await store.seen_by(["ns"]).queue_places(groups) == found
    (first,) = await store.pending(0)
    assert await store.queue_places([first, groups[0]]) == {
        (0, OTHER): (1, 0, 0), (1, groups[0].signature): found[1, groups[0].signature]
    }  # fmt: skip
    assert await store.queue_places([]) == {}


async def test_of_many_attempts_the_first_few_and_the_latest_stay(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    count = attempts_first_max + attempts_latest_max + 5
    for number in range(count):
        await tried(ledger, leases[1], number, cpu=number)
    numbers = [each.number for each in await store.group_attempts(1, OTHER)]
    first = list(range(1, attempts_first_max + 1))
    assert numbers == first + list(range(count - attempts_latest_max + 1, count + 1))


async def test_attempts_stay_when_the_group_has_no_pods_any_more(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    await commit(
        ledger,
        batch_of(advances=[advance(leases[0], 5, 6)], pending_removed=["uid-waits"], log_time_ms=AT_MS),
    )
    assert await store.pending(None) == []
    assert len(await store.group_attempts(0, OTHER)) == 1
    assert await store.group_attempts(1, OTHER) == []


# ------------------------------------------------------------------- shards, dead letters, profiles, the rest


async def test_shards_say_how_far_they_are(
    store: Store, backend: Backend, ledger: Ledger, leases: list[Lease]
) -> None:
    first, second = await store.processes.shards()
    assert (first.shard, first.owner, first.seq_next, first.dead_seq_next) == (0, "worker", 4, 2)
    assert (first.log_time_ms, first.relay_owner, first.decisions_seq) == (AT_MS, None, 0)
    assert first.lease_until is not None
    assert first.owned_since is not None
    assert 0 <= (first.lease_until - first.owned_since).total_seconds() - LEASE_SECONDS < 5
    assert (second.shard, second.seq_next, second.log_time_ms) == (1, 1, 0)
    assert await store.processes.offsets() == [
        ShardOffset(0, PODS_TOPIC, 0, 5),
        ShardOffset(1, PODS_TOPIC, 1, 0),
    ]
    await ledger.release(leases)
    assert [shard.owner for shard in await store.processes.shards()] == [None, None]


async def test_the_latest_decision_of_pods_by_their_names(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    again = [decision(leases[1], 1, "again", "n1"), decision(leases[1], 2, "again", "n1", namespace="b")]
    batch = batch_of(
        advances=[advance(leases[1], 0, 3)],
        made=[record(made) for made in [*again, decision(leases[1], 3, "again", "n2")]],
        seq_next={1: 4},
        log_time_ms=AT_MS,
    )
    await commit(ledger, batch)
    rows = await store.latest_decisions(["ns/placed", "ns/again", "b/again", "ns/none"])
    assert [(row.shard, row.seq) for row in rows] == [(1, 2), (1, 3), (0, 1)]
    assert await store.latest_decisions([]) == []


async def test_the_known_versions_of_pods_by_their_names(store: Store, leases: list[Lease]) -> None:
    pods = await store.pods(PodFilter(), 100, None)
    expected = {f"{pod.namespace}/{pod.name}": pod.resource_version for pod in pods}
    assert {pod.node is None for pod in pods} == {True, False}, "both kinds are among them"
    known = await store.known_versions(["ns/none", *sorted(expected)])
    assert known == {pod: version for pod, version in expected.items() if version is not None}
    assert known
    assert await store.seen_by(["elsewhere"]).known_versions(sorted(expected)) == {}
    assert await store.known_versions([]) == {}


async def test_dead_letters_from_a_seq_on(store: Store, ledger: Ledger, leases: list[Lease]) -> None:
    first = everything(leases[0]).decisions.dead_letters[0]
    own = Span(first.topic, first.partition, first.offset, first.offset + 1)
    (found,) = await store.new_deadletters({0: 1, 1: 1}, [own])
    assert found == RefusedRecord(first, len(first.raw))
    assert await store.new_deadletters({0: 1, 1: 1}, [own._replace(first=own.end, end=own.end + 9)]) == []
    assert await store.new_deadletters({0: 1, 1: 1}, []) == []
    more = [dead_letter(leases[1], seq) for seq in (1, 2)]
    batch = batch_of(advances=[advance(leases[1], 0, 2)], dead_letters=more, dead_seq_next={1: 3})
    await commit(ledger, batch)
    spans = [Span(each.topic, each.partition, each.offset, each.offset + 1) for each in [first, *more]]
    later = await store.new_deadletters({0: 2, 1: 2}, spans)
    assert [(each.letter.shard, each.letter.seq) for each in later] == [(1, 2)]


async def test_dead_letters_come_latest_first(store: Store, leases: list[Lease]) -> None:
    letter = everything(leases[0]).decisions.dead_letters[0]
    assert await store.deadletters(10, None) == [RefusedRecord(letter, len(letter.raw))]
    assert await store.deadletter(0, 1) == RefusedRecord(letter, len(letter.raw))
    assert await store.deadletter(0, 2) is None
    assert await store.deadletters(10, (1, 0)) == []


async def test_profiles_in_force_and_all_revisions(store: Store, ledger: Ledger, leases: list[Lease]) -> None:
    newer = profile("batch", 2)
    rows = [newer, profile("Zeta", 1)]
    await commit(ledger, batch_of(advances=[advance(leases[0], 5, 6)], profiles=rows, log_time_ms=AT_MS))
    assert [row.name for row in await store.profiles(10, None)] == ["Zeta", "batch"]  # `gone` was deleted
    assert [row.revision for row in await store.profiles(10, "Zeta")] == [2]
    assert [row.revision for row in await store.profile_revisions("batch", 10, None)] == [2, 1]
    assert await store.profile_revisions("batch", 10, 2) == [newer]
    assert await store.profile_revisions("none", 10, None) == []


async def test_configuration_by_kind_namespace_and_name(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    rows = [
        config("web", kind="Service", namespace=namespace, object={"selector": None})
        for namespace in ("b", "a")
    ]
    spaces = [config(name, kind="Namespace", object={"labels": {}}) for name in ("a", "b")]
    policy = config("p", kind="CoLocationPolicy", object={"node_selector": {}})
    more = [
        *rows,
        *spaces,
        policy,
        config("old", kind="Service", namespace="a", object=None, resource_version=2),
    ]
    await commit(ledger, batch_of(advances=[advance(leases[0], 5, 6)], config=more, log_time_ms=AT_MS))
    (high,) = await store.config(ConfigFilter("PriorityClass"), 10, None)  # `gone` and `old` were deleted
    whole = [policy, *spaces, high, rows[1], rows[0]]
    assert await store.config(ConfigFilter(), 10, None) == whole
    page = await store.config(ConfigFilter(), 2, ("Namespace", "", "a"))
    assert (page, page.more) == ([spaces[1], high], True)
    assert await store.config(ConfigFilter("Service", "a"), 10, None) == [rows[1]]
    assert await store.config(ConfigFilter("Service", "b", "web"), 1, None) == [rows[0]]
    assert await store.seen_by(["a"]).config(ConfigFilter(), 10, None) == [policy, spaces[0], high, rows[1]]
    assert await store.seen_by([]).config(ConfigFilter(), 10, None) == [policy, high]


async def test_event_ids_keep_the_first_digest(store: Store, leases: list[Lease]) -> None:
    await store.callers.record_events("ci", {"a": b"1", "b": b"2"})
    await store.callers.record_events("ci", {"b": b"3", "c": b"4"})
    assert await store.callers.known_events("ci", ["a", "b", "c", "d"]) == {"a": b"1", "b": b"2", "c": b"4"}
    assert await store.callers.known_events("ci", []) == {}


async def test_event_ids_are_those_of_their_holder(store: Store, leases: list[Lease]) -> None:
    await store.callers.record_events("ci", {"a": b"1", "b": b"2"})
    await store.callers.record_events("", {"a": b"3"})
    assert await store.callers.known_events("ci", ["a", "b"]) == {"a": b"1", "b": b"2"}
    assert await store.callers.known_events("", ["a", "b"]) == {"a": b"3"}
    assert await store.callers.known_events("another", ["a", "b"]) == {}


async def test_old_event_ids_are_forgotten(backend: Backend, store: Store, leases: list[Lease]) -> None:
    await store.callers.record_events("ci", {"a": b"1", "b": b"2"})
    await store.callers.record_events("team", {"a": b"3"})
    await backend.pass_time(1)
    await store.callers.record_events("ci", {"new": b"4"})
    assert await store.callers.forget_events(60, 10) == 0
    assert await store.callers.forget_events(0.5, 2) == 2
    assert await store.callers.forget_events(0.5, 10) == 1
    left = await store.callers.known_events("ci", ["a", "b", "new"]) | await store.callers.known_events(
        "team", ["a"]
    )
    assert left == {"new": b"4"}


async def test_keys_until_they_are_revoked(store: Store, leases: list[Lease]) -> None:
    await store.callers.create_key(b"one", Grant("ci", ["producer"]))
    scoped = Grant("ci", ["auditor", "producer"], ["team-a"], ["Pod"], 100, 1 << 40, 3, -7, ["batch"])
    await store.callers.create_key(b"two", scoped)
    assert [(key.grant, key.revoked_at) for key in await store.callers.keys()] == [
        (Grant("ci", ["producer"]), None),
        (scoped, None),
    ]
    assert await store.callers.grant(b"two") == scoped
    assert await store.callers.grant(b"three") is None
    assert await store.callers.revoke_key("ci") == 2
    assert await store.callers.revoke_key("ci") == 0
    assert await store.callers.grant(b"two") is None
    assert all(key.revoked_at for key in await store.callers.keys())


# ------------------------------------------------------------------- who sees what, and how long pages are


async def two_teams(ledger: Ledger, lease: Lease) -> None:
    """Commit the same for a second namespace: a bound and a waiting pod, decisions, dead letters."""
    bound = decision(lease, 1, "placed", "n1", namespace="b", pod_uid="uid-b-placed")
    letters = [
        dead_letter(lease, 1, key=b"b/bad"),
        dead_letter(lease, 2, key=b"bb/bad"),
        dead_letter(lease, 3, key=None),
        dead_letter(lease, 4, key=b"b/bad", topic="berth.nodes"),
        dead_letter(lease, 5, key=b"b\xff" * 600),
    ]
    batch = batch_of(
        advances=[advance(lease, 0, 9)],
        made=[record(bound)],
        opened=[opened(bound)],
        pending_added=[
            waiting(lease, "waits", 1, namespace="b", pod_uid="uid-b-waits"),
            waiting(lease, "too", 2, namespace="c"),
        ],
        dead_letters=letters,
        seq_next={lease.shard: 2},
        dead_seq_next={lease.shard: 6},
        log_time_ms=AT_MS,
    )
    await commit(ledger, batch)


async def test_who_sees_few_namespaces_finds_nothing_of_the_others(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    await two_teams(ledger, leases[1])
    for namespace, count in (("b", 1), ("other", 0)):
        ours = store.seen_by({namespace})
        pods = await ours.pods(PodFilter(), 10, None)
        assert [pod.namespace for pod in pods] == [namespace, namespace] * count
        decisions = await ours.decisions(DecisionFilter(), 10, None, True)
        assert [(row.shard, row.seq) for row in decisions] == [(1, 1)] * count
        assert [group.pods_count for group in await ours.pending(None)] == [1] * count
    ours = store.seen_by(frozenset({"ns", "absent"}))
    assert await ours.pod("b", "placed") is None
    assert await ours.pod("b", "waits") is None
    assert await ours.pod("ns", "placed") is not None
    assert await ours.pod_placements("b", "placed", 10) == []
    assert await ours.decision(1, 1) is None
    assert await ours.decision(0, 1) is not None
    assert len(await ours.latest_decisions(["b/placed", "ns/placed"])) == 1
    assert await ours.decisions(DecisionFilter(namespace="b", name="placed"), 10, None, True) == []
    assert await ours.pods(PodFilter(namespace="b"), 10, None) == []
    assert {pod.namespace for pod in await ours.pods(PodFilter(node="n1"), 10, None)} == {"ns"}
    assert len(await store.pods(PodFilter(node="n1"), 10, None)) == 2
    assert await store.seen_by(()).pods(PodFilter(), 10, None) == []
    assert await store.seen_by(None).pods(PodFilter(), 10, None) == await store.pods(PodFilter(), 10, None)


async def test_a_group_of_several_namespaces_shows_what_is_seen(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    await two_teams(ledger, leases[1])
    (both,) = await store.pending(1)
    assert (both.pods_count, list(both.examples)) == (2, ["b/waits", "c/too"])
    (ours,) = await store.seen_by({"c"}).pending(1)
    assert (ours.pods_count, list(ours.examples)) == (1, ["c/too"])
    assert await store.seen_by({"c"}).pending(None, ours.signature) == [ours]


async def test_dead_letters_are_seen_by_the_namespace_of_their_key(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    await two_teams(ledger, leases[1])
    assert len(await store.deadletters(10, None)) == 6
    ours = store.seen_by({"b"})
    assert [(each.letter.shard, each.letter.seq) for each in await ours.deadletters(10, None)] == [(1, 1)]
    assert await ours.deadletters(10, (1, 1)) == []
    assert await ours.deadletter(1, 1) is not None
    for shard, seq in ((0, 1), (1, 2), (1, 3), (1, 4), (1, 5)):
        assert await ours.deadletter(shard, seq) is None
    assert await store.deadletter(1, 5) is not None


async def test_pages_of_groups_go_on_where_the_last_one_ended(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    pods = [
        waiting(leases[1], f"{name}{i}", i, signature=name.encode() * 16)
        for name, count in (("d", 2), ("e", 3), ("f", 2))
        for i in range(count)
    ]
    await commit(ledger, batch_of(advances=[advance(leases[1], 0, 9)], pending_added=pods, log_time_ms=AT_MS))
    found, after = [], None
    for _ in range(4):
        page = await store.pending(None, None, 1, after)
        (group,) = page
        found.append((group.pods_count, group.shard, group.signature[:1]))
        after = (group.pods_count, group.shard, group.signature)
        assert page.more == (len(found) < 4)
    assert found == [(3, 1, b"e"), (2, 1, b"d"), (2, 1, b"f"), (1, 0, OTHER[:1])]


async def test_groups_come_by_the_pod_that_waits_longest(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    pods = [
        waiting(leases[1], f"{name}{i}", i, signature=name.encode() * 16, since_ms=AT_MS + since)
        for name, waits in (("d", (5, 4)), ("e", (9, -3, 7)), ("f", (4,)))
        for i, since in enumerate(waits)
    ]
    await commit(ledger, batch_of(advances=[advance(leases[1], 0, 9)], pending_added=pods, log_time_ms=AT_MS))
    whole = await store.pending(None, oldest_first=True)
    assert [(each.since_ms - AT_MS, each.signature[:1]) for each in whole] == [
        *((-3, b"e"), (0, OTHER[:1]), (4, b"d"), (4, b"f"))
    ]
    found: list[WaitingGroup] = []
    after: tuple[int, int, bytes] | None = None
    for _ in range(4):
        page = await store.pending(None, None, 1, after, oldest_first=True)
        found += page
        after = (page[-1].since_ms, page[-1].shard, page[-1].signature)
        assert page.more == (len(found) < 4)
    assert found == whole


async def test_a_page_ends_early_when_its_rows_are_large(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    half = page_bytes_max // 2
    labels = {"x": "y" * half}
    made = [decision(leases[1], seq, f"big-{seq}", "n1") for seq in range(1, 4)]
    batch = batch_of(
        advances=[advance(leases[1], 0, 9)],
        made=[(each, b"x" * half) for each in made],
        opened=[msgspec.structs.replace(opened(each), labels=labels) for each in made],
        dead_letters=[dead_letter(leases[1], 1, raw=b"r" * half)],
        seq_next={1: 4},
        dead_seq_next={1: 2},
        log_time_ms=AT_MS,
    )
    await commit(ledger, batch)
    which = DecisionFilter(shard=1)
    page = await store.decisions(which, 10, None, False)
    assert ([row.seq for row in page], page.more) == ([1, 2], True)
    page = await store.decisions(which, 10, (2, 1), False)
    assert ([row.seq for row in page], page.more) == ([3], False)
    assert not (await store.decisions(which._replace(until_ms=AT_MS - 1), 10, None, False)).more
    pods = await store.pods(PodFilter(phase="bound"), 10, "uid-b")
    assert (len(pods), pods.more) == (2, True)
    rest = await store.pods(PodFilter(phase="bound"), 10, pods[-1].pod_uid)
    assert (len(rest), rest.more) == (2, False)
    (letter,) = await store.deadletters(1, None)
    assert (len(letter.letter.raw), letter.raw_bytes) == (raw_bytes_shown_max, half)
    whole = await store.deadletter(1, 1)
    assert whole is not None
    assert len(whole.letter.raw) == half
