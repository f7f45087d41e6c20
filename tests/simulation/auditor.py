"""The auditor: knows only the records sent and the ledger, and believes neither worker nor relay."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import orjson

from domain.manifests.profile import profile_to_spec
from domain.model.decisions import Outcome
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.usage import NodeUsage
from domain.state.usage import UsageWindows
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.log import MemoryLog
from services.ports.ledger import CommitBatch, ProfileRow
from services.ports.log import (
    CONFIG_TOPIC,
    DECISIONS_TOPIC,
    NODES_TOPIC,
    PODS_TOPIC,
    USAGE_TOPIC,
    TopicPartition,
)
from services.worker.planner import BATCHES
from tests.builders import without_recorded_at
from tests.simulation.scenario import WATCHED

PLACED = {Outcome.BOUND, Outcome.ADOPTED, Outcome.RESIZED, Outcome.ORPHANED, Outcome.RETURNED}


class Violation(Exception):
    """An invariant does not hold."""


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise Violation(message)


class Auditor:
    """Watches every transaction, and judges the end."""

    def __init__(self, log: MemoryLog, database: MemoryDatabase) -> None:
        self._log = log
        self._database = database
        self._offsets: dict[tuple[int, str, int], int] = {}
        self.stale_writes_refused = 0

    # ----------------------------------------------------------------------------- after each transaction

    def committed(self, batch: CommitBatch) -> None:
        """Check what must hold after every transaction."""
        for a in batch.offsets:
            known = self._offsets.get(a[:3])
            _require(known is None or known == a.lo, f"offsets of {a[:3]} jump from {known} to {a.lo}")
            _require(a.hi >= a.lo, f"offset of {a[:3]} goes back")
            self._offsets[a[:3]] = a.hi
            _require(a.epoch == self._database.shards[a.shard].epoch, "written by a stale epoch")
        bound = {d.node for d, _ in batch.decisions if d.outcome is Outcome.BOUND and d.node is not None}
        nodes = {row.name: row for row in self._database.nodes.values()}
        for name in bound:
            self._check_capacity(name, nodes[name])

    def _check_capacity(self, name: str, row: Any) -> None:
        _require(not row.deleted, f"a pod was bound to {name}, which is gone")
        for resource, used in self._sums()[name].items():
            offered = row.spec.allocatable.get(resource, 0)
            _require(used <= offered, f"{name} is over its {resource}: {used} > {offered}")

    def _sums(self) -> dict[str, Counter[str]]:
        sums: dict[str, Counter[str]] = {}
        for row in self._database.open_placements.values():
            total = sums.setdefault(row.opened.node, Counter())
            total.update(self._database.templates[row.opened.signature].requests)
            total["pods"] += 1
        return sums

    # ---------------------------------------------------------------------------------------- at the end

    def judge(self, shards: int) -> None:
        """Check what must hold when all records are worked off."""
        self._check_pods(shards)
        self._check_profiles()
        self._check_usage()
        self._check_requested()
        self._check_versions()
        self._check_decisions(shards)
        self._check_lives()
        self._check_topic(shards)

    def _records(self, topic: str, shards: int) -> list[Any]:
        return [r for p in range(shards) for r in self._log.partition(TopicPartition(topic, p)).records]

    def _check_pods(self, shards: int) -> None:
        """Every record is accounted for: its pod is placed, waits or is gone; or it is one dead letter."""
        known: dict[str, dict[str, Any]] = {}
        broken: Counter[tuple[str, int, int]] = Counter()
        for record in self._records(PODS_TOPIC, shards):
            if b"broken" in record.key:
                broken[record.topic, record.partition, record.offset] += 1
                continue
            event = orjson.loads(record.value)
            _fold_pod(known, event["type"], event["object"])
        for record in self._records(CONFIG_TOPIC, 1):
            if _is_broken(orjson.loads(record.value)):
                broken[record.topic, record.partition, record.offset] += 1
        letters = Counter(
            (letter.topic, letter.partition, letter.offset)
            for rows in self._database.dead_letters.values()
            for letter in rows
        )
        _require(letters == broken, f"dead letters {letters} are not the broken records {broken}")
        placed = {r.opened.pod_uid: r.opened for r in self._database.open_placements.values()}
        waiting = self._database.pending
        _require(not placed.keys() & waiting.keys(), "a pod is both placed and waiting")
        alive = {pod["uid"]: pod for pod in known.values() if pod["alive"]}
        counted = placed.keys() | waiting.keys()
        _require(counted == alive.keys(), f"pods lost or invented: {sorted(counted ^ alive.keys())}")
        for uid, pod in alive.items():
            if pod["node"]:
                _require(uid in placed and placed[uid].node == pod["node"], f"{uid} runs on {pod['node']}")
        spans: Counter[str] = Counter(
            row.opened.pod_uid for row in self._database.placements if row.released_at_ms is None
        )
        _require(all(n == 1 for n in spans.values()), "a pod has two open placements")
        for row in self._database.placements:
            ended_ms = row.released_at_ms
            _require(ended_ms is None or ended_ms >= row.opened.at_ms, f"{row.opened.pod_uid} left too early")

    def _check_profiles(self) -> None:
        """The newest event of a name is in force, and its revisions count up without a hole."""
        newest: dict[str, tuple[int, dict[str, Any]]] = {}
        for record in self._records(CONFIG_TOPIC, 1):
            event = orjson.loads(record.value)
            name, version = (event["object"]["metadata"][k] for k in ("name", "resourceVersion"))
            built_in = profile_to_spec(BUILT_IN_PROFILES[name]) if name in BUILT_IN_PROFILES else {}
            if not _is_broken(event) and int(version) > newest.get(name, (0, {}))[0]:
                newest[name] = (
                    int(version),
                    built_in if event["type"] == "DELETED" else event["object"]["spec"],
                )
        rows: dict[str, list[ProfileRow]] = {}
        for key in sorted(self._database.profiles):
            rows.setdefault(key[0], []).append(self._database.profiles[key])
        _require(rows.keys() == newest.keys(), f"profiles lost or invented: {rows.keys() ^ newest.keys()}")
        for name, (version, spec) in newest.items():
            numbers, last = [row.revision for row in rows[name]], rows[name][-1]
            _require(numbers == list(range(numbers[0], numbers[0] + len(numbers))), f"{name}: {numbers}")
            _require(last.resource_version == version, f"{name} is {last}, not of version {version}")
            in_force = (last.spec or {})["scores"][0].get("args")
            _require(in_force == spec["scores"][0].get("args"), f"{name} is {last}, not {spec}")
        for rows_of_shard in self._database.decisions.values():
            for decision, _ in rows_of_shard:
                number = decision.profile_revision or 0
                known = (decision.profile, number) in self._database.profiles or number <= 1
                _require(known, f"a decision names revision {number} of {decision.profile}, which never was")

    def _check_usage(self) -> None:
        """Every measurement of a node that stays unknown is in its window, once."""
        windows = UsageWindows()
        for record in self._records(USAGE_TOPIC, 1):
            thing = orjson.loads(record.value)["object"]
            usage = NodeUsage(
                node=thing["metadata"]["name"], at_ms=record.timestamp_ms, percent=thing["percent"]
            )
            if usage.node in WATCHED:
                windows.fold(usage, None)
        kept = {node: row.record.series for node, row in self._database.usage.items() if node in WATCHED}
        expected = {node: window.record(node).series for node, window in windows.windows.items()}
        _require(kept == expected, f"measured usage lost or invented: {kept}, not {expected}")

    def _check_requested(self) -> None:
        sums = self._sums()
        for row in self._database.nodes.values():
            expected = {k: v for k, v in sums.get(row.name, {}).items() if v}
            _require(
                row.requested == expected, f"{row.name}: requested {row.requested}, pods sum to {expected}"
            )

    def _check_versions(self) -> None:
        for node_id, writes in self._database.node_versions.items():
            before = [write.version_expected for write in writes]
            after = [0, *(write.version for write in writes)]
            _require(before == after[:-1], f"versions of node {node_id} are no chain: {before} {after}")

    def _check_decisions(self, shards: int) -> None:
        for shard in range(shards):
            seqs = [decision.seq for decision, _ in self._database.decisions[shard]]
            _require(seqs == list(range(1, len(seqs) + 1)), f"seqs of shard {shard} have a hole")
        opened = {(row.opened.shard, row.opened.seq) for row in self._database.placements}
        decided = {
            (d.shard, d.seq)
            for rows in self._database.decisions.values()
            for d, _ in rows
            if d.outcome in (Outcome.BOUND, Outcome.ADOPTED, Outcome.RESIZED)
        }
        _require(opened <= decided, "a placement has no decision")

    def _check_lives(self) -> None:
        """The decisions of a pod make a life, and what is open agrees with the end of it."""
        lives: dict[str, list[tuple[Outcome, bool]]] = {}
        for rows in self._database.decisions.values():
            for decision, payload in rows:
                gone = "node-deleted" in orjson.loads(payload)["reasons"]
                lives.setdefault(decision.pod_uid, []).append((decision.outcome, gone))
        for uid, life in lives.items():
            for (before, was_gone), (after, _) in pairwise([(Outcome.RELEASED, False), *life]):
                placed = before in PLACED
                follows = {
                    Outcome.RESIZED: placed,
                    Outcome.ORPHANED: placed and not was_gone,
                    Outcome.RETURNED: was_gone,
                    Outcome.BOUND: not placed,
                }.get(after, True)
                _require(follows, f"{uid} is {after} after {before}: {life}")
        deleted = {row.name: row.deleted for row in self._database.nodes.values()}
        for uid, row in self._database.open_placements.items():
            outcome, gone = lives[uid][-1]
            _require(outcome in PLACED, f"{uid} is placed, and the last thing said is {outcome}")
            known = deleted.get(row.opened.node)
            _require(
                known is None or known == gone, f"{row.opened.node} of {uid} is gone: {known}, told {gone}"
            )

    def _check_topic(self, shards: int) -> None:
        """The topic holds exactly the ledger's decisions, in order."""
        for shard in range(shards):
            records = self._log.partition(TopicPartition(DECISIONS_TOPIC, shard)).records
            published = [without_recorded_at(record.value or b"") for record in records]
            decided = [payload for _, payload in self._database.decisions[shard]]
            _require(
                published == decided, f"topic of shard {shard} is not its ledger: {len(published)} records"
            )

    def caught_up(self, shards: int) -> bool:
        """Say whether every record is worked off and every decision published."""
        offsets = self._database.offsets
        homes = [(topic, shard) for topic in (NODES_TOPIC, PODS_TOPIC) for shard in range(shards)]
        for topic, shard in [*homes, (CONFIG_TOPIC, 0), (USAGE_TOPIC, 0)]:
            row = offsets.get((shard, topic, shard))
            end = self._log.partition(TopicPartition(topic, shard)).end
            if row is None or row.next_offset < end:
                return False
        return all(
            self._log.partition(TopicPartition(DECISIONS_TOPIC, shard)).end >= len(rows)
            for shard, rows in self._database.decisions.items()
        )

    def batches(self) -> int:
        """Return the number of batches that the first shard counts."""
        row = self._database.offsets.get((0, BATCHES, 0))
        return 0 if row is None else row.next_offset


def _fold_pod(known: dict[str, dict[str, Any]], kind: str, pod: dict[str, Any]) -> None:
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    version = int(pod["metadata"]["resourceVersion"])
    before = known.get(name)
    if before is not None and version <= before["version"]:
        return
    if kind == "DELETED":
        if before is not None and before["uid"] == uid:
            before["alive"] = False
            before["version"] = version
        return
    alive = pod["status"]["phase"] not in ("Succeeded", "Failed")
    known[name] = {"uid": uid, "version": version, "alive": alive, "node": pod["spec"].get("nodeName", "")}


def _is_broken(event: dict[str, Any]) -> bool:
    """Return whether a profile's event makes no sense. A deletion needs nothing but a name."""
    return event["type"] != "DELETED" and "Broken" in str(event["object"]["spec"])
