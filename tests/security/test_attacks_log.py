"""What can whoever writes the log, or shares the machine, do to the worker?"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from domain.cycle import schedule
from domain.model.limits import batch_decisions_max, pods_per_node_max
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.ledger import MemoryLedger
from services.adapters.memory.log import MemoryLog
from services.ports.journal import BATCHES, positions_of
from services.ports.ledger import Committed
from services.ports.log import (
    CONFIG_TOPIC,
    NODES_TOPIC,
    PODS_TOPIC,
    Entry,
    Record,
    TopicPartition,
    partitions_of,
    topic_specs,
)
from services.worker.intake import Intake
from services.worker.planner import Planner
from tests.builders import Json, event, event_bytes, node_manifest, pod_manifest, profile_manifest, record
from tests.contract.ledgers import ManualClock, loaded
from tests.property.site import Site, audit, planner_at

ROOT = Path(__file__).parents[2]


def arrivals(topic: str, things: Iterator[Json]) -> list[Record]:
    return [record(topic, event_bytes("ADDED", thing), offset=i) for i, thing in enumerate(things)]


def test_no_file_of_the_current_directory_says_where_machine_code_is_loaded_from(tmp_path: Path) -> None:
    """Such a file made the worker unpickle what lay in a directory of the attacker's choice."""
    planted = tmp_path / "planted"
    (tmp_path / ".numba_config.yaml").write_text(f"cache_dir: {planted}\n")
    program = (
        "import domain.kernels.compiling; from numba.core import config; config.reload_config();"
        "import yaml; print(yaml.safe_load('1'), config.CACHE_DIR)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", program],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["1"], done.stdout + done.stderr


def test_machine_code_is_loaded_from_no_directory_that_others_can_write_to(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "services.cli.main", "compile"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(shared)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"{shared} is not safe" in done.stderr
    assert not list(shared.iterdir())


def test_a_node_that_comes_and_goes_under_its_pods_makes_no_batch_without_end() -> None:
    """20 KB of such records were 400,000 decisions of 200 MB in one batch: a full one ended the worker, again
    and again, since none of it was ever committed."""
    pods_count, flips = 3_000, 9
    site = Site()
    node = node_manifest("n", cpu=64, pods=pods_per_node_max)
    site.take(arrivals(NODES_TOPIC, iter([node])))
    site.take(
        arrivals(PODS_TOPIC, (pod_manifest(f"p{i}", cpu="1m", node_name="n") for i in range(pods_count)))
    )
    records = [
        record(NODES_TOPIC, event_bytes(kind, node), offset=i)
        for i, kind in zip(range(1, flips + 1), itertools.cycle(("DELETED", "ADDED")), strict=False)
    ]
    decided = 0
    while records or site.planner.has_work:
        batch = site.planner.plan_batch(records)
        records = []
        assert len(batch.decisions.made) < batch_decisions_max + pods_per_node_max
        decided += len(batch.decisions.made)
        site.database.apply(batch)
    assert decided == pods_count * flips, "and none is left out"
    audit(site)


def test_reasons_with_the_longest_names_stay_small_in_every_decision() -> None:
    """Each decision of a pod of 3 KB had 120 KB of reasons: 250 MB in a batch."""
    names = [f"r{i}{'a' * 50}.{'b' * 63}.{'c' * 63}.{'d' * 60}/{'e' * 63}" for i in range(7)]
    site = Site()
    offered = []
    for bits in range(2 ** len(names) - 1):
        some: Any = {name: 1 for i, name in enumerate(names) if bits >> i & 1}
        offered.append(node_manifest(f"n{bits}", **some))
    site.take(arrivals(NODES_TOPIC, iter(offered)))
    pod = pod_manifest("p", cpu=1)
    pod["spec"]["containers"][0]["resources"]["requests"] |= dict.fromkeys(names, "1")
    site.take(arrivals(PODS_TOPIC, iter([pod])))
    assert not any(site.database.dead_letters.values())
    ((_, payload),) = (row for rows in site.database.decisions.values() for row in rows)
    assert len(payload) < 30 << 10
    reasons = orjson.loads(payload)["reasons"]
    assert sum(reasons.values()) == len(offered), "each node is counted"
    assert reasons["others"] > 0
    assert len(reasons) > 1


async def decided(
    events: Sequence[tuple[str, Entry]], crashes: Random | None, ahead_max: int = 0
) -> list[bytes]:
    """Return what is decided of a log that is complete, by a worker that may end after any batch."""
    clock, database = ManualClock(), MemoryDatabase(1)
    log, ledger = MemoryLog(clock), MemoryLedger(database, clock)
    await log.ensure_topics(topic_specs(1))
    writer = await log.writer()
    for topic, entry in events:
        clock.time_ms += 1
        await writer.append(topic, [entry])
    (lease,) = await ledger.acquire("w", 10)
    firsts = dict.fromkeys((*partitions_of(0), TopicPartition(BATCHES, 0)), 0)
    await ledger.ensure_offsets(lease, firsts)

    async def started() -> tuple[Planner, Intake]:
        planner = planner_at([lease], await loaded(ledger, [lease]), seed=3)
        intake = Intake(await log.reader())
        await intake.add(positions_of(planner.offsets()))
        return planner, intake

    planner, intake = await started()
    while True:
        seconds = 0.0 if planner.has_work else 0.01
        records = await intake.next_batch(10, seconds, planner.held, ahead_max)
        if not records and not planner.has_work:
            return [payload for _, payload in database.decisions[0]]
        assert database.apply(planner.plan_batch(records, due=intake.due), ledger) == Committed()
        if crashes and crashes.random() < 0.4:
            planner, intake = await started()


def some_events(random: Random) -> list[tuple[str, Entry]]:
    """Return pods of several priorities, a node for every few of them, and changes of configuration."""
    batch = orjson.dumps(event("MODIFIED", profile_manifest("batch")))
    events: list[tuple[str, Entry]] = []
    for i in range(40):
        if not i or random.random() < 0.2:
            node = event("ADDED", node_manifest(f"n{i}", cpu=4))
            events.append((NODES_TOPIC, Entry(f"n{i}".encode(), orjson.dumps(node))))
        pod = pod_manifest(f"p{i}", cpu=random.choice((1, 2)), priority=random.choice((None, 5, 9)))
        events.append((PODS_TOPIC, Entry(f"default/p{i}".encode(), orjson.dumps(event("ADDED", pod)))))
        if random.random() < 0.1:
            events.append((CONFIG_TOPIC, Entry(b"SchedulingProfile/batch", batch)))
    return events


@pytest.mark.parametrize("seed", range(6))
def test_a_crash_behind_a_change_of_configuration_changes_no_decision(seed: int) -> None:
    """After such a change the rest of a batch was planned alone; after a restart, with what follows it."""
    events = some_events(Random(seed))
    once = asyncio.run(decided(events, None))
    assert len(once) >= 40
    assert asyncio.run(decided(events, Random(seed))) == once


def _timeless(decisions: list[bytes]) -> list[Json]:
    """Return decisions without the instants at which they were made."""
    found = map(orjson.loads, decisions)
    return [{key: value for key, value in each.items() if key != "decided_at"} for each in found]


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_while_pods_wait_their_turn_changes_no_decision(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But when: a restart forgets what is parked, whose pods take turns again, so others may come later.

    Pods that are only told why they wait may be told in another order then; those that are placed may not.
    """
    events = some_events(Random(seed))
    at_once = asyncio.run(decided(events, None))
    monkeypatch.setattr(schedule, "cycle_work_max", 70)  # a pod or two per batch
    in_turn = asyncio.run(decided(events, None))
    assert in_turn != at_once
    crashed = asyncio.run(decided(events, Random(seed)))
    assert _placed_then_told(_timeless(crashed)) == _placed_then_told(_timeless(in_turn))


def _placed_then_told(decisions: list[Json]) -> list[Json]:
    """Return decisions without their numbers: those with a node in order, then the others by pod."""
    found = [{k: v for k, v in each.items() if k not in ("id", "seq")} for each in decisions]
    told = [each for each in found if each["node"] is None]
    return [each for each in found if each["node"]] + sorted(told, key=lambda each: str(each["pod"]["uid"]))


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_after_records_were_read_ahead_changes_no_decision(seed: int) -> None:
    events = some_events(Random(seed))
    once = asyncio.run(decided(events, None, 50))
    assert asyncio.run(decided(events, Random(seed), 50)) == once
