"""Does every store give the same columns about all nodes? What it says of the past is in ``test_past.py``."""

from __future__ import annotations

import pytest
import pytest_asyncio

from domain.model.colocation import Heat
from domain.model.nodes import Taint
from domain.model.usage import Measured, QualityRecord, SeriesRecord
from services.ports.field import Column, Field, FieldFilter, FieldGroup
from services.ports.ledger import Committed, Lease, Ledger, NodeFact, UsageRow
from services.ports.store import Store
from tests.batches import batch_of
from tests.contract.batches import AT_MS, LENT, advance, change_node, new_node, node_spec, usage
from tests.contract.ledgers import SHARDS, Backend, start

ZONE = "topology.kubernetes.io/zone"
GPU, MILLI = "nvidia.com/gpu", "berth.dev/gpu-milli"


def zoned(number: int, zone: str | None, delta: dict[str, int] | None = None, **more: object) -> NodeFact:
    """Return a new node of a zone (None: of none)."""
    labels = {} if zone is None else {ZONE: zone}
    return new_node(number, spec=node_spec(f"n{number}", labels=labels, **more), delta=delta or {})


NODES = [
    zoned(1, "b", {"cpu": 8000, "memory": 1 << 34, "pods": 3}),
    zoned(10, "b", unschedulable=True, ready=True),
    zoned(2, None, {"cpu": 1, "x.io/odd": 7}, ready=False),
    zoned(3, "ä", taints=(Taint(key="soft", effect="PreferNoSchedule"),)),
    zoned(
        4, "Z", taints=(Taint(key="soft", effect="PreferNoSchedule"), Taint(key="hard", effect="NoExecute"))
    ),
]
HOT = QualityRecord(at_ms=AT_MS, use=LENT.use, heat=Heat(is_hot=True))
COOL = QualityRecord(at_ms=AT_MS, use=LENT.use, heat=Heat(good_count=1))


async def commit(
    ledger: Ledger, lease: Lease, at: int, facts: list[NodeFact], measured: list[UsageRow] | None = None
) -> None:
    batch = batch_of(
        advances=[advance(lease, at, at + 1)], facts=facts, usage=measured or [], log_time_ms=AT_MS
    )
    assert await ledger.commit(batch) == Committed()


@pytest_asyncio.fixture
async def lease(ledger: Ledger) -> Lease:
    """Return the lease of a shard that has the nodes."""
    (first, *_) = await start(ledger, SHARDS)
    await commit(ledger, first, 0, NODES)
    return first


@pytest.fixture
def store(backend: Backend) -> Store:
    """Return the backend's store."""
    return backend.store()


async def test_an_empty_cluster_is_an_empty_field(store: Store, ledger: Ledger) -> None:
    await start(ledger, SHARDS)
    which = FieldFilter(by=ZONE, resources=("cpu",), measured=True)
    assert await store.fields.field(which, None) == Field([], [], {"cpu": Column([], [], [])}, [], [], [], [])


async def test_nodes_come_by_label_then_by_name_and_those_without_it_last(
    store: Store, ledger: Ledger, lease: Lease
) -> None:
    field = await store.fields.field(FieldFilter(by=ZONE, resources=("cpu", "x.io/odd")), None)
    assert field.groups == [FieldGroup("Z", 1), FieldGroup("b", 2), FieldGroup("ä", 1), FieldGroup(None, 1)]
    assert field.names == ["n4", "n1", "n10", "n3", "n2"]
    assert field.columns == {
        "cpu": Column([8000] * 5, [0, 8000, 0, 0, 1], []),
        "x.io/odd": Column([0] * 5, [0, 0, 0, 0, 7], []),
    }
    assert (field.repelling, field.unschedulable, field.not_ready, field.hot) == ([0], [2], [4], [])
    plain = await store.fields.field(FieldFilter(), None)
    assert plain.groups == [FieldGroup(None, 5)]
    assert plain.names == ["n1", "n10", "n2", "n3", "n4"]
    assert plain.columns["pods"] == Column([110] * 5, [3, 0, 0, 0, 0], [])
    await commit(ledger, lease, 1, [change_node(1, 1, spec=node_spec("n1"), deleted=True, spec_count=2)])
    assert (await store.fields.field(FieldFilter(), None)).names == ["n10", "n2", "n3", "n4"]


async def test_devices_are_counted_in_thousandths(store: Store, ledger: Ledger, lease: Lease) -> None:
    offered = {"cpu": 1, "pods": 9}
    shared = {GPU: 1, f"{GPU}#0": 1000, f"{GPU}#1": 250, MILLI: 250, "~devices": 2}
    many = {GPU: 5_000}  # too many to be told apart
    facts = [
        new_node(20, spec=node_spec("n20", allocatable={**offered, GPU: 2}), delta=shared),
        new_node(21, spec=node_spec("n21", allocatable={**offered, GPU: 10_000}), delta=many),
    ]
    await commit(ledger, lease, 1, facts)
    field = await store.fields.field(FieldFilter(resources=(GPU,)), None)
    assert dict(zip(field.names, zip(*field.columns[GPU][:2], strict=True), strict=True)) == {
        **dict.fromkeys(["n1", "n10", "n2", "n3", "n4"], (0, 0)),
        "n20": (2_000, 1_250),
        "n21": (10_000_000, 5_000_000),
    }


async def test_the_latest_measurement_of_each_node_is_told_where_it_is_asked_for(
    store: Store, ledger: Ledger, lease: Lease
) -> None:
    older = SeriesRecord(ago_ms=[9, 3], percent=[1.0, 22.26], given=Measured(latest=5.0), given_ago_ms=4)
    newer = SeriesRecord(ago_ms=[9, 3], percent=[1.0, 22.26], given=Measured(latest=5.04), given_ago_ms=3)
    nothing = SeriesRecord(given=Measured(avg=1.0))
    only = SeriesRecord(given=Measured(latest=7.0), given_ago_ms=3)
    both = SeriesRecord(ago_ms=[0], percent=[9.0], given=Measured(avg=7.0))
    measured = [
        usage("n1", series={"cpu": older, "memory": only}, quality=HOT),
        usage("n10", series={"cpu": newer, "memory": nothing}, quality=COOL),
        usage("n2", series={"memory": both}),
        usage("n3", series={"cpu": nothing}, quality=HOT),
        usage("unknown", quality=HOT),
    ]
    await commit(ledger, lease, 1, [], measured)
    field = await store.fields.field(FieldFilter(resources=("memory", "cpu"), measured=True), None)
    assert field.names == ["n1", "n10", "n2", "n3", "n4"]
    assert field.columns["cpu"].measured == [22.3, 5.0, None, None, None]
    assert field.columns["memory"].measured == [7.0, None, 9.0, None, None]
    assert field.hot == [0, 3]
    assert (await store.fields.field(FieldFilter(), None)).hot == []
