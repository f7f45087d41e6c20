"""Plans a lived span again under another profile, or with other nodes, and says what that changes.

Events and departures are those of the log, in the batches in which they were taken; decisions are its own.
Two planners that hold all shards go through the span side by side: one as it was, which also says how exactly
the span is lived again, and one as it would have been.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import NamedTuple

import msgspec
import numpy as np

from domain.manifests.profile import KIND as PROFILE_KIND
from domain.model.decisions import Decision, Outcome
from domain.model.devices import DEVICE_ONE, asked
from domain.model.events import NodeUpserted
from domain.model.nodes import NodeSpec
from domain.model.profiles import Profile, ProfileRevision
from domain.model.resources import CPU, MEMORY
from domain.state.cluster import ClusterState
from domain.state.devices import NO_DEVICE, free_milli
from domain.state.pods import PodEntry
from domain.state.steps import Written
from services.codec.partition import partition_for
from services.ports.history import History, Scratch
from services.ports.journal import BATCHES, Checkpoint, JournalRow, positions_of
from services.ports.ledger import CommitBatch, Lease, LedgerState
from services.ports.log import CONFIG_TOPIC, PODS_TOPIC, Log, Record
from services.replay.planning import Planning, Progress
from services.replay.tape import Tape
from services.replay.workers import planner_of
from services.worker.planner import Planner

LAST_CYCLES_MAX = 1_000
"""How many cycles follow the last record, for pods that had no turn yet."""


class Change(NamedTuple):
    """What would have been different: one profile for all pods, and nodes that come or are replaced."""

    profile: Profile | None = None
    nodes: Sequence[NodeSpec] = ()


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a span comes to.

    Attributes
    ----------
    placed_count, waiting_count : int
        Pods that got a node in the span, and pods that wait at its end.
    waiting_by_devices : dict
        How many of these ask for so many devices: ``"0"``, ``"<1"`` for a share of one, or the number.
    wait_p50_ms, wait_p99_ms, wait_max_ms : int
        From the record of a pod, or the span's begin, until it has a node, or leaves, or the span ends.
    used_percent, deviation_percent : dict
        By resource, over time: requested of what nodes offer, the mean of the nodes and their standard
        deviation.
    devices_free, devices_stranded : float
        Whole devices at the end: free in sum; and those of them that no waiting pod can use, though some wait
        for devices.
    preemptions_count, evictions_count, conflicts_count : int
        Nodes that were nominated, pods that had to leave. Two of these planners never meet, so no conflict.
    """

    placed_count: int
    waiting_count: int
    waiting_by_devices: dict[str, int]
    wait_p50_ms: int
    wait_p99_ms: int
    wait_max_ms: int
    used_percent: dict[str, float]
    deviation_percent: dict[str, float]
    devices_free: float
    devices_stranded: float
    preemptions_count: int
    evictions_count: int
    conflicts_count: int = 0


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A span as it was, and as it would have been.

    ``unlike_count`` is how many of ``decisions_count`` placements and refusals are not in the span as it was
    lived again, or there alone: conflicts of several workers are not lived again. ``moved_count`` pods would
    have had another node, or one in one of the two worlds alone.
    """

    checkpoint: int
    batches_count: int
    decisions_count: int
    unlike_count: int
    moved_count: int
    was: Figures
    would: Figures


class WhatIf:
    """Compares spans; the parameters are those of ``Replay``."""

    def __init__(
        self,
        history: History,
        log: Log,
        scratch: Callable[[LedgerState], Scratch],
        report: Callable[[Progress], Awaitable[None]],
    ) -> None:
        self._history, self._log, self._open, self._report = history, log, scratch, report
        self._planning = Planning(history, scratch, report)

    async def run(self, change: Change, first: int | None, last: int | None) -> Compared:
        """Plan batches ``first`` to ``last`` of shard 0 twice; None: as far as checkpoints and log reach.

        Raises
        ------
        CannotReplay
            No checkpoint lies before the span that the log still serves.
        LogTooShort
            The log no longer has the records.
        """
        end = await self._planning.end(first, last)
        until = await self._history.ends(last)
        reader = await self._log.reader()
        async with contextlib.aclosing(reader):
            start = await self._planning.start(
                f"batch {first or end}",
                lambda checkpoint: checkpoint.batch < (first or end),
                until.keys(),
                reader,
                oldest=first is None,
            )
            worlds = [await self._world(start) for _ in range(2)]
            is_begun = False
            after = {shard: start.offsets.get((shard, BATCHES, 0), 0) for shard in until}
            total = sum(max(0, until[shard] - after[shard]) for shard in until)
            progress = Progress(checkpoint=start.batch, first=first or start.batch + 1, last=end, total=total)
            await self._report(progress)
            tape, unlike, bound = Tape(reader, self._history, positions_of(start.offsets)), 0, set[str]()
            async for row in self._history.rows(after, until):
                recorded = [decision for p in await self._history.decisions(row.seqs) if (decision := _of(p))]
                bound.update(each[0] for each in recorded if each[1] == Outcome.BOUND)
                records = [_as_waiting(each, bound) for each in await tape.read_batch(row)]
                if not is_begun and (first is None or (row.shard == 0 and row.batch >= first)):
                    is_begun = True
                    for world, each in zip(worlds, (Change(), change), strict=True):
                        world.begin(each, row.log_time_ms)
                made = [world.plan(row, records) for world in worlds]
                unlike += _unlike(recorded, made[0])
                progress.batches_count += 1
                progress.decisions_count += len(recorded)
                await self._report(progress)
            for world in worlds:
                world.end()
            was, would = worlds
            nodes = [world.nodes for world in worlds]
            return Compared(
                checkpoint=start.batch,
                batches_count=progress.batches_count,
                decisions_count=progress.decisions_count,
                unlike_count=unlike,
                moved_count=sum(nodes[0].get(k) != nodes[1].get(k) for k in {**nodes[0], **nodes[1]}),
                was=was.figures(),
                would=would.figures(),
            )

    async def _world(self, start: Checkpoint) -> World:
        scratch = self._open(await self._history.state(start))
        leases = [Lease(*each) for each in sorted(start.start.leases.items())]
        await scratch.restart(start.start.leases, start.offsets)
        planner = planner_of(start.start, await scratch.load_base())
        planner.take_shards(leases, await scratch.load_part(leases))
        return World(planner)


class World:
    """One planner that holds all shards, and what it comes to from the begin of the span on."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._profile: Profile | None = None
        self._is_begun = False
        self._came_ms: dict[str, int] = {}
        self._waited_ms: list[int] = []
        self._now_ms = self._spans_ms = 0
        self._used = {name: np.zeros(2) for name in (CPU, MEMORY)}
        self._counts: Counter[str] = Counter()
        self.nodes: dict[str, str] = {}  # by the key of a pod that got one in the span

    def begin(self, change: Change, now_ms: int) -> None:
        """Let the change take effect, and count from now on."""
        scheduler, self._profile = self._planner.scheduler, change.profile
        if change.profile is not None:
            for name in list(scheduler.profiles.plans):
                self._put(name, change.profile)
        for spec in change.nodes:
            shard = partition_for(spec.name.encode(), None, self._planner.shards_count)
            scheduler.fold(NodeUpserted(spec), shard)
        scheduler.fold(Written())  # no batch is to write them
        self._is_begun, self._now_ms = True, now_ms
        self._came_ms = {key: now_ms for key, entry in scheduler.state.pods.items() if not entry.node}

    def _put(self, name: str, profile: Profile) -> None:
        revised = msgspec.structs.replace(profile, name=name)
        restored = ProfileRevision(name=name, revision=profile.revision, profile=revised)
        self._planner.scheduler.profiles.restore(restored)
        self._planner.scheduler.queue.replan(name)

    def plan(self, row: JournalRow, records: Sequence[Record]) -> CommitBatch:
        """Plan a batch, and count."""
        if self._profile is not None:
            records = [each for each in records if not _is_profile(each)]
        if row.renewed or row.start is not None:
            self._planner.renew_queue()
        if row.start is not None:
            self._planner.scheduler.cycle_pods_max = row.start.cycle_pods_max
        if not self._is_begun:
            return self._planner.plan_batch(records, is_recorded=True, until_ms=row.log_time_ms)
        state = self._planner.scheduler.state
        for record in records:
            if record.topic == PODS_TOPIC and record.key is not None:
                key = record.key.decode()
                if (known := state.pods.get(key)) is None or not known.node:
                    self._came_ms.setdefault(key, record.timestamp_ms)
        self._pass_to(row.log_time_ms)
        batch = self._planner.plan_batch(records, is_recorded=True, until_ms=row.log_time_ms)
        self._count(batch)
        return batch

    def end(self) -> None:
        """Try what had no turn yet."""
        for _ in range(LAST_CYCLES_MAX):
            if not self._planner.scheduler.has_work:
                return
            self._count(self._planner.plan_batch((), is_recorded=True, until_ms=self._now_ms))

    def _pass_to(self, now_ms: int) -> None:
        """Add up how nodes were used until now."""
        span_ms, self._now_ms = max(0, now_ms - self._now_ms), max(now_ms, self._now_ms)
        if span_ms:
            for name, sums in self._used.items():
                sums += span_ms * _used(self._planner.scheduler.state, name)
            self._spans_ms += span_ms

    def _count(self, batch: CommitBatch) -> None:
        for decision, _ in batch.decisions.made:
            self._counts[decision.outcome] += 1
            key = f"{decision.namespace}/{decision.name}"
            if decision.outcome is Outcome.BOUND and decision.node is not None:
                self.nodes[key] = decision.node
            elif decision.outcome is not Outcome.RELEASED:
                continue
            if (came_ms := self._came_ms.pop(key, None)) is not None:  # else it had a node
                self._waited_ms.append(max(0, decision.decided_at_ms - came_ms))

    def figures(self) -> Figures:
        """Return what it comes to."""
        state = self._planner.scheduler.state
        waiting = [key for key, entry in state.pods.items() if not entry.node]
        waits = [*self._waited_ms, *(self._now_ms - self._came_ms.get(key, self._now_ms) for key in waiting)]
        p50, p99, most = np.percentile(waits or [0], (50, 99, 100), method="higher").tolist()
        # A span of one moment has no time over which to take a mean: it is as it ends.
        used = {
            name: sums / self._spans_ms if self._spans_ms else _used(state, name)
            for name, sums in self._used.items()
        }
        free = _devices_free(state)
        asks = any(asked(state.pods[key].spec.template.requests).number for key in waiting)
        return Figures(
            placed_count=self._counts[Outcome.BOUND],
            waiting_count=len(waiting),
            waiting_by_devices=dict(sorted(Counter(_size(state.pods[key]) for key in waiting).items())),
            wait_p50_ms=int(p50),
            wait_p99_ms=int(p99),
            wait_max_ms=int(most),
            used_percent={name: float(each[0]) for name, each in used.items()},
            deviation_percent={name: float(each[1]) for name, each in used.items()},
            devices_free=free,
            devices_stranded=free if asks else 0.0,
            preemptions_count=self._counts[Outcome.NOMINATED],
            evictions_count=self._counts[Outcome.EVICTED],
            conflicts_count=self._counts[Outcome.CONFLICT],
        )


def _of(payload: bytes) -> tuple[str, str, str | None] | None:
    """Return key, outcome and node of a decision that an attempt ended with, and None of any other."""
    record = msgspec.json.decode(payload)
    if record["outcome"] not in _TRIED:
        return None
    return f"{record['pod']['namespace']}/{record['pod']['name']}", record["outcome"], record["node"]


_TRIED = (Outcome.BOUND, Outcome.UNSCHEDULABLE, Outcome.UNRESOLVABLE, Outcome.NOMINATED, Outcome.GANG_WAITING)


def _unlike(recorded: Sequence[tuple[str, str, str | None]], batch: CommitBatch) -> int:
    made = {_said(each) for each, _ in batch.decisions.made if each.outcome in _TRIED}
    return len(made.symmetric_difference(recorded))


def _said(decision: Decision) -> tuple[str, str, str | None]:
    return f"{decision.namespace}/{decision.name}", decision.outcome, decision.node


def _as_waiting(record: Record, bound: Set[str]) -> Record:
    """Return a record without the node that berth itself had chosen: in another world it is another one."""
    if (
        record.topic != PODS_TOPIC
        or record.key is None
        or record.key.decode() not in bound
        or not record.value
    ):
        return record
    event = msgspec.json.decode(record.value)
    spec = event.get("object", {}).get("spec") if isinstance(event, dict) else None
    if not isinstance(spec, dict) or not spec.pop("nodeName", None):
        return record
    return record._replace(value=msgspec.json.encode(event))


def _is_profile(record: Record) -> bool:
    return (
        record.topic == CONFIG_TOPIC
        and record.key is not None
        and record.key.decode().startswith(f"{PROFILE_KIND}/")
    )


def _size(pod: PodEntry) -> str:
    ask = asked(pod.spec.template.requests)
    return "<1" if ask.number == 1 and ask.milli < DEVICE_ONE else str(ask.number)


def _used(state: ClusterState, resource: str) -> np.ndarray:
    """Return the mean of the nodes' requested share of a resource in percent, and its deviation."""
    table, column = state.table, state.resources.column(resource)
    if column < 0 or not table.count:
        return np.zeros(2)
    offered = table.allocatable[column, : table.count]
    has = offered > 0
    shares = 100.0 * table.requested[column, : table.count][has] / offered[has]
    return np.array([shares.mean(), shares.std()]) if len(shares) else np.zeros(2)


def _devices_free(state: ClusterState) -> float:
    """Return what is free of all devices, in whole devices."""
    table = state.table
    free = free_milli(table.allocatable, table.requested, state.resources, np.arange(table.count))
    return float(free[free > NO_DEVICE].clip(min=0).sum()) / DEVICE_ONE
