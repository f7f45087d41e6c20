"""The workload table holds what it says, and the statistics are what their names promise."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks import domains
from benchmarks.cli import WorkloadName
from benchmarks.cluster import SCORES, Cluster, ask_of
from benchmarks.domains import DomainsRun, Row
from benchmarks.engine import EngineRun, measure
from benchmarks.flow import EngineReport, bring_in
from benchmarks.memory import DEPLOYMENTS, PLAIN, WAYS, MemoryReport, MemoryRun, in_own_process
from benchmarks.offering import Offered, offer
from benchmarks.parts import UNMEASURED, Figure, Part, measure_parts, replayed
from benchmarks.plain import Picture, Spread, numpy_scores, python_scores
from benchmarks.planning import measure_planning
from benchmarks.preemption import PreemptionReport
from benchmarks.preemption import material as full_and_high
from benchmarks.report import Reading, Report, at_what_cost, how_fast
from benchmarks.scraping import Counts, follow_lag_seconds, since, together
from benchmarks.stage import BenchError
from benchmarks.statistics import Sightings, number, percentile, spread
from benchmarks.watching import Decided
from benchmarks.workloads import (
    WORKLOADS,
    Material,
    Workload,
    WorkloadError,
    asks_of,
    batches,
    material,
    resized,
)
from domain.cycle.schedule import Scheduler
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.quantities import to_milli, to_units
from services.codec.decode import Decoder
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Entry, Record, Span

PAGE = Path(__file__).parents[2] / "benchmarks" / "README.md"
SMALL = {"openb": {"nodes": 100, "pods": 100}, "plain-500": {"nodes": 5, "pods": 20}}


def decoded(topic: str, entries: list[Entry]) -> list[Any]:
    decoder = Decoder()
    results = [
        decoder.decode(Record(topic, 0, i, key, value, 0)) for i, (key, value, *_) in enumerate(entries)
    ]
    assert [result.rejected for result in results if result.rejected is not None] == []
    return [result.event for result in results]


def pods_of(entries: list[Entry]) -> list[Any]:
    return [event.pod for event in decoded(PODS_TOPIC, entries)]


def small(name: str) -> Workload:
    size = SMALL.get(name, {"nodes": 10, "pods": 200})
    return resized(WORKLOADS[name], nodes=size["nodes"], pods=size["pods"])


def test_the_command_offers_the_whole_table() -> None:
    assert [name.value for name in WorkloadName] == list(WORKLOADS)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_has_the_size_that_its_row_says(name: str) -> None:
    workload = small(name)
    made = material(workload)
    assert (len(made.nodes), len(made.before), len(made.pods)) == (
        workload.nodes,
        workload.pods_before,
        workload.pods,
    )
    nodes, pods = decoded(NODES_TOPIC, made.nodes), pods_of(made.before + made.pods)
    assert len({event.node.name for event in nodes}) == workload.nodes
    assert material(workload) == made, "it is the same at each call"
    assert len({pod.uid for pod in pods}) == len({pod.key for pod in pods}) == len(pods)
    if workload.groups:
        assert len({pod.signature for pod in pods_of(made.pods)}) == workload.groups


@pytest.mark.parametrize("name", [name for name, row in WORKLOADS.items() if row.groups])
def test_a_workload_of_the_table_fits_its_nodes(name: str) -> None:
    """Otherwise the measurement would be about waiting pods."""
    workload = WORKLOADS[name]
    room = decoded(NODES_TOPIC, material(resized(workload, nodes=1, pods=1)).nodes)[0].node.allocatable
    sizes = [asks_of(group, workload.groups) for group in range(workload.groups)]
    assert len(set(sizes)) == workload.groups
    largest = {"cpu": max(to_milli(cpu) for cpu, _ in sizes), "memory": max(to_units(m) for _, m in sizes)}
    per_node = math.ceil((workload.pods + workload.pods_before) / workload.nodes)
    assert per_node <= room["pods"]
    assert all(per_node * value <= room[key] for key, value in largest.items())


def test_the_trace_is_whole_unless_it_is_cut() -> None:
    openb = WORKLOADS["openb"]
    whole, cut = material(openb), material(resized(openb, nodes=10, pods=20))
    assert (len(whole.nodes), len(whole.pods)) == (openb.nodes, openb.pods)
    assert cut == Material([], whole.nodes[:10], [], whole.pods[:20])


@pytest.mark.parametrize(
    "size", [{"nodes": 1_524}, {"pods": 8_153}, {"groups": 3}, {"profile": "least-allocated"}]
)
def test_the_trace_cannot_be_made_larger_or_regrouped(size: dict[str, Any]) -> None:
    with pytest.raises(WorkloadError, match="1523 nodes and 8152 pods"):
        resized(WORKLOADS["openb"], **size)


def test_other_sizes_keep_what_a_workload_is_about() -> None:
    assert resized(WORKLOADS["distinct"], pods=30_000).groups == 30_000
    assert resized(WORKLOADS["groups-1000"], pods=200_000).groups == 1_000
    assert resized(WORKLOADS["groups-1000"], pods=10).groups == 10
    assert resized(WORKLOADS["plain-500"], pods=9, groups=3).groups == 3


def test_pods_of_a_workload_may_name_a_built_in_profile() -> None:
    made = material(resized(small("groups-1000"), profile="least-allocated"))
    assert {pod.template.profile for pod in pods_of(made.pods)} == {"least-allocated"}
    with pytest.raises(WorkloadError, match="profile least is not built in; allowed are default-scheduler"):
        resized(WORKLOADS["distinct"], profile="least")


def test_batches_keep_all_in_order() -> None:
    entries = [Entry(None, bytes([i])) for i in range(5)]
    assert [len(batch) for batch in batches(entries, 2)] == [2, 2, 1]
    assert [entry for batch in batches(entries, 2) for entry in batch] == entries


def test_a_percentile_is_the_nearest_rank() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert percentile([7.0], 0.99) == 7


def test_several_runs_show_as_median_and_extremes() -> None:
    assert spread([1234.5]) == "1,234"
    assert spread([3.0, 1.0, 2.0], 1) == "2.0 (1.0..3.0)"


def test_a_decision_is_durable_when_a_poll_first_saw_it() -> None:
    seen = Sightings()
    assert seen.see(10.0, {0: 5, 1: 1})
    assert not seen.see(11.0, {0: 5, 1: 1})
    assert seen.see(12.0, {0: 8, 1: 1})
    assert seen.see(14.0, {0: 9, 1: 2})
    assert seen.durable_at(0, [5, 7, 8, 9]).tolist() == [12.0, 12.0, 14.0, math.inf]
    assert seen.durable_at(1, [1]).tolist() == [14.0]
    assert seen.gaps == [1.0, 1.0, 2.0]


def test_rate_and_latency_follow_from_what_was_seen() -> None:
    pods = [Entry(b"ns/a", None), Entry(b"ns/b", None), Entry(b"ns/c", None)]
    seen = Sightings()
    for at, seq_next in ((10.0, {0: 7, 1: 1}), (11.0, {0: 8, 1: 2}), (12.0, {0: 9, 1: 2})):
        seen.see(at, seq_next)
    decided = [
        Decided(0, 8, b"ns/a", "bound", b"x"),
        Decided(0, 7, b"ns/b", "unschedulable", b"y"),
        Decided(1, 1, b"ns/c", "bound", b"x"),
    ]
    offered = Offered(np.array([10.0, 10.25, 10.5]), started=10.0, ended=10.5)
    found = how_fast(pods, decided, offered, 12.0, seen)
    assert found["latency_ms"] == {"p50": 750, "p99": 2000, "max": 2000}
    assert (found["seconds"], found["decisions_per_second"]) == (2, 1.5)
    assert (found["decisions"], found["placed"], found["groups"]) == (3, 2, 2)
    assert found["poll_ms"] == {"median": 1000, "p99": 1000, "max": 1000}


def test_costs_are_differences_and_the_polls_are_not_the_products() -> None:
    before = Reading({"worker": 1.0, "broker": None, "database": 2.0, "polling": 0.5}, 3.0, counts(1, 1))
    after = Reading({"worker": 1.5, "broker": None, "database": 3.0, "polling": 0.75}, 3.25, counts(5, 3))
    found = at_what_cost(before, after, 100)
    assert found["cpu_seconds"] == {
        "worker": 0.5,
        "broker": None,
        "database": 0.75,
        "polling": 0.25,
        "bench": 0.25,
    }
    assert (found["batches"], found["pods_per_batch"]) == (4, 25)
    assert (found["plan_ms_mean"], found["commit_ms_mean"]) == (500, 500)


def counts(batches_count: float, seconds: float) -> Counts:
    both = {"seconds_sum": seconds, "seconds_count": batches_count}
    parts = {f"berth_{what}_{name}": value for what in ("plan", "commit") for name, value in both.items()}
    return parts | {"berth_batches_total": batches_count}


def test_what_several_workers_did_is_put_together() -> None:
    lag = "berth_follow_lag_seconds_bucket"
    before = {"berth_worker_moved_total": 1.0, f"{lag} 0.01": 5.0, f"{lag} +Inf": 9.0}
    one = {"berth_worker_moved_total": 4.0, f"{lag} 0.01": 95.0, f"{lag} +Inf": 109.0}
    other = {f"{lag} 0.01": 90.0, f"{lag} 0.05": 100.0, f"{lag} +Inf": 100.0}
    done = since(before, together([one, other]))
    assert (done["berth_worker_moved_total"], done["berth_worker_conflicts_total"]) == (3, 0)
    assert [follow_lag_seconds(done, share) for share in (0.9, 0.91)] == [0.01, math.inf]
    assert follow_lag_seconds({}, 0.99) is None


class ListWriter:
    """Keeps the records that it is given."""

    def __init__(self) -> None:
        self.taken: list[Entry] = []

    async def append(self, topic: str, entries: Any, partition: int | None = None) -> list[Span]:
        self.taken.extend(entries)
        return []

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("rate", [None, 20_000.0])
async def test_everything_is_offered_once_and_in_order(rate: float | None) -> None:
    entries = [Entry(None, str(i).encode()) for i in range(2_500)]
    writer = ListWriter()
    offered = await offer(writer, PODS_TOPIC, entries, rate)
    assert writer.taken == entries
    assert len(offered.produced_at) == len(entries)
    assert (offered.produced_at[1:] >= offered.produced_at[:-1]).all()
    assert offered.started <= offered.produced_at[0]
    if rate is not None:
        assert offered.produced_at[-1] - offered.started == pytest.approx(2_499 / rate)
        assert offered.ended >= offered.produced_at[-1], "nothing is offered before it is due"


def test_the_engine_places_every_pod_of_a_workload() -> None:
    run = measure(["plain-500"], parts=False)
    (plain,) = run.workloads
    assert (plain.workload, plain.placed, plain.groups, run.parts) == ("plain-500", 1_000, 1, [])
    assert plain.cycle_us_per_pod > 0
    assert msgspec.json.decode(msgspec.json.encode(run), type=EngineRun) == run


def test_every_part_of_the_engine_is_measured_and_agrees_with_what_is_plain() -> None:
    rows = measure_parts(nodes=120, repeats=3)
    assert [row.part for row in rows] == [
        *(f"new group, {scoring}" for scoring in SCORES),
        *(f"new group, profile {profile.name}" for profile in UNMEASURED),
        "inside a group",
        "all pods different",
        "all pods different",
        "snapshot after 100 nodes changed",
    ]
    for row in rows:
        assert 0 < row.figure.min <= row.figure.median <= row.figure.max
        assert row.target is not None or row.part.startswith("new group, profile")
        assert all(value > 0 for value in (*row.times_faster_than.values(), *row.besides.values()))


def test_preemption_is_measured_on_nodes_that_are_full() -> None:
    rows = measure_planning(nodes=60, repeats=2)
    assert [(row.pods, row.figure.unit) for row in rows] == [(1_800, "ms")] * 3 + [(60, "µs")] * 2
    assert all(0 <= row.figure.min <= row.figure.median <= row.figure.max for row in rows)
    assert rows[0].figure.median > rows[2].figure.median > 0


def test_each_pod_of_high_priority_needs_three_of_four_gone() -> None:
    records = full_and_high(2)
    (node, _), low, high = (
        [each.node for each in decoded(NODES_TOPIC, records.nodes)],
        pods_of(records.before),
        pods_of(records.pods),
    )
    assert (len(low), len(high)) == (8, 2)
    free = node.allocatable["cpu"] - 4 * low[0].template.requests["cpu"]
    asked = high[0].template.requests["cpu"]
    assert free + 2 * low[0].template.requests["cpu"] < asked <= free + 3 * low[0].template.requests["cpu"]
    assert low[0].template.priority < high[0].template.priority


@pytest.mark.parametrize("scoring", SCORES)
def test_a_kernel_that_chose_another_node_is_no_measurement(scoring: str) -> None:
    cluster = Cluster(50, scoring)
    requests = cluster.asks()
    picture = cluster.picture()
    worst = int(np.argmin(numpy_scores(scoring, picture, ask_of(requests))))
    with pytest.raises(BenchError, match=f"{scoring}: the kernel chose a node of score"):
        replayed(scoring, picture, [worst], [requests])


def test_plain_scores_leave_out_nodes_without_room() -> None:
    offered = np.array([[10, 10], [10, 10], [5, 0]])
    picture = Picture(offered, np.array([[0, 0], [9, 4], [0, 0]]))
    ask = np.array([5, 5, 1])
    by_numpy = numpy_scores("LeastAllocated", picture, ask)
    columns = (picture.allocatable.T.tolist(), picture.requested.T.tolist())
    assert by_numpy.tolist() == [-math.inf, -math.inf]
    assert python_scores("LeastAllocated", *columns, ask.tolist(), Spread(2, 0)) == by_numpy.tolist()
    picture.requested[1, 0] = 0
    assert numpy_scores("LeastAllocated", picture, ask).tolist() == [50, -math.inf]


def test_a_number_is_written_for_a_person() -> None:
    assert [number(value) for value in (1_234_567.8, 100, 93.16, 2.0, 0.123456, -5_000)] == [
        "1,234,568", "100", "93.2", "2", "0.123", "-5,000",
    ]  # fmt: skip


@pytest.mark.parametrize(("way", "shape"), [*((way, PLAIN) for way in WAYS), ("restored", DEPLOYMENTS)])
def test_the_memory_of_a_small_cluster_is_measured_in_a_process_of_its_own(way: str, shape: str) -> None:
    report = in_own_process(way, 20, 300, shape)
    assert (report.way, report.shape, report.nodes, report.pods, report.groups) == (way, shape, 20, 300, 300)
    assert 0 < report.baseline_bytes <= report.resident_bytes <= report.peak_bytes
    assert report.bytes_per_pod * 300 == pytest.approx(report.resident_bytes, rel=0.01)
    assert msgspec.json.decode(msgspec.json.encode(report), type=MemoryReport) == report


def test_a_cluster_without_room_is_no_measurement() -> None:
    with pytest.raises(BenchError, match=r"\d+ of 111 pods have a node; ask for more nodes"):
        in_own_process("folded", 1, 111)


REPORTS = [
    Report,
    EngineRun,
    EngineReport,
    Part,
    Figure,
    MemoryRun,
    MemoryReport,
    DomainsRun,
    Row,
    PreemptionReport,
]


@pytest.mark.parametrize("report", REPORTS)
def test_every_key_is_explained(report: type[msgspec.Struct]) -> None:
    page = PAGE.read_text()
    assert [key for key in report.__struct_fields__ if f"| `{key}` |" not in page] == []


def test_domains_are_measured_beside_the_first_row() -> None:
    plain = msgspec.structs.replace(domains.PLAIN, nodes=30, pods_before=20, pods=40)
    table = domains.Table("nodes", (plain, msgspec.structs.replace(plain, nodes=60, groups=4)))
    run = domains.measure([table], runs=2)
    first, second = run.domains
    assert (first.table, first.times_first, first.groups) == ("nodes", 1, 1)
    assert (second.nodes, second.groups, second.pods_before, second.pods) == (60, 4, 20, 40)
    assert second.times_first == pytest.approx(second.us_per_pod / first.us_per_pod, abs=0.02)
    assert 0 < first.fold_us_per_pod < first.us_per_pod
    assert msgspec.json.decode(msgspec.json.encode(run), type=DomainsRun) == run


def test_pods_without_room_are_no_measurement_of_domains() -> None:
    full = msgspec.structs.replace(domains.PLAIN, nodes=1, pods_before=0, pods=60)
    with pytest.raises(BenchError, match=r"plain-zones: \d+ of 60 pods found a node"):
        domains.measure([domains.Table("nodes", (full,))], runs=1)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("spread-zone-hard", "hard spread"),
        ("spread-zone-soft", "soft spread"),
        ("affinity-zone", "required affinity"),
        ("affinity-host-soft", "preferred affinity"),
        ("anti-host", "required anti"),
        ("anti-host-soft", "preferred anti"),
        ("mixed", "preferred affinity, preferred anti, required affinity, required anti"),
        ("namespaces-anti", "required anti"),
        ("namespaces-affinity", "required affinity"),
        ("deployments-500", "hard spread, preferred anti"),
    ],
)
def test_pods_of_a_shape_ask_for_what_its_name_says(name: str, asked: str) -> None:
    made = material(small(name))
    found: set[str] = set()
    for pod in pods_of(made.pods):
        spread, near, far = pod.template.spread, pod.template.pod_affinity, pod.template.pod_anti_affinity
        found |= {"hard spread" if each.hard else "soft spread" for each in spread}
        for kind, terms in (("affinity", near), ("anti", far)):
            if terms is not None:
                found |= {f"required {kind}" for _ in terms.required}
                found |= {f"preferred {kind}" for _ in terms.preferred}
        selectors = [each.selector for each in spread]
        selectors += [term.selector for terms in (near, far) if terms is not None for term in terms.required]
        selectors += [
            each.term.selector for terms in (near, far) if terms is not None for each in terms.preferred
        ]
        assert all(selector.matches(pod.labels) for selector in selectors), "each matches the pod itself"
    assert sorted(found) == sorted(asked.split(", "))


def test_namespaces_of_a_workload_have_labels_that_its_pods_select() -> None:
    made = material(small("namespaces-anti"))
    namespaces = [json.loads(entry.value or b"")["object"]["metadata"] for entry in made.config]
    labels = {metadata["name"]: metadata["labels"] for metadata in namespaces}
    pods = pods_of(made.pods)
    assert {pod.namespace for pod in pods} == set(labels)
    (term,) = pods[0].template.pod_anti_affinity.required
    assert all(term.namespace_selector.matches(each) for each in labels.values())


@pytest.mark.parametrize("name", domains.NAMES)
def test_every_pod_of_a_shape_is_placed_where_it_may_be(name: str) -> None:
    """Otherwise the measurement would be about something else."""
    row = WORKLOADS[name]
    workload = msgspec.structs.replace(row, nodes=60, pods_before=20, pods=30, groups=min(row.groups, 5))
    scheduler, records = Scheduler(BUILT_IN_PROFILES, seed=0), material(workload)
    bring_in(scheduler, Decoder(), records)
    bring_in(scheduler, Decoder(), records._replace(config=[], nodes=[], before=records.pods))
    pods = [entry.spec for entry in scheduler.state.pods.values()]
    where = {entry.spec.key: entry.node for entry in scheduler.state.pods.values()}
    assert len(pods) == 50
    assert all(where.values())
    for pod in pods:
        alike = [other for other in pods if other.labels == pod.labels and other is not pod]
        if pod.template.pod_anti_affinity and pod.template.pod_anti_affinity.required:
            assert where[pod.key] not in {where[other.key] for other in alike}
        for constraint in pod.template.spread:
            zones = Counter(int(where[other.key][5:]) % 3 for other in [*alike, pod])
            skew = max(zones.values()) - min(zones[zone] for zone in range(3))
            assert skew <= constraint.max_skew or not constraint.hard
