"""The auditor: compares what an outside consumer sees with the ledger, and watches every transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import Any

import orjson

from domain.manifests.profile import profile_to_spec
from domain.model.profiles import BUILT_IN_PROFILES
from domain.state.cluster import ClusterState
from services.adapters.batches import shard_advances
from services.ports.guards import Guard, raised_keys
from services.ports.inbox import home_of, inbox_topic
from services.ports.ledger import CommitBatch, NodeClaim, ProfileRow
from services.ports.log import (
    CONFIG_TOPIC,
    DECISIONS_TOPIC,
    NODES_TOPIC,
    PODS_TOPIC,
    TICKS_TOPIC,
    USAGE_TOPIC,
    TopicPartition,
)
from services.ports.outbox import Stream
from services.ports.past import BatchId
from tests.simulation.facts import Events
from tests.simulation.invariants import Findings, Invariant
from tests.simulation.lent import RESOURCES, used_amounts
from tests.simulation.outside import Outside, consumed
from tests.simulation.past import Told, judge_past, told_by_memory
from tests.simulation.scenario import WATCHED
from tests.simulation.servers import SimulatedDatabase, SimulatedLog
from tests.simulation.tape import Tape

_WINDOW_MS = 900_000
_SPAN_MS = -(-_WINDOW_MS // 119)
_DAY_MS = 86_400_000


class Auditor:
    """Knows what the log gave to whom, the records that were published, and the ledger's tables.

    Parameters
    ----------
    log : SimulatedLog
    database : SimulatedDatabase
        What it holds is compared with what the bytes say; it is never believed.
    """

    def __init__(self, log: SimulatedLog, database: SimulatedDatabase) -> None:
        self._log = log
        self._database = database
        self.findings = Findings()
        self.tape = Tape(log, database, self.findings)
        self.shard_counts: list[int] = []  # after each addition
        self.late_publishers = 0  # appends of relays that no longer held their shard
        self.fenced_commits = 0
        self.conflicts = 0  # claims that were not granted
        self.gangs = 0  # placed, each as often as a transaction placed pods of it
        self.workloads = 0  # of these, gangs of Workloads
        self.moments = 0  # of the past that were compared
        self.told_of: Callable[[Sequence[BatchId]], Told] = partial(told_by_memory, database)
        self.lent = 0  # pods that borrow, as often as they were placed
        self.reserves = False  # nodes for pods that wait for long
        self._lost_by: dict[object, Set[int]] = {}  # nodes that the last batch of each worker lost
        self._commits_by: Counter[object] = Counter()
        self._raised_by: dict[tuple[object, str], tuple[int, int]] = {}  # at which commit, to which version

    def add_shards(self, shards: int) -> None:
        """Note that there are so many shards from now on."""
        self.shard_counts.append(shards)
        self.tape.move(shards)

    def fall_back(self, length: int) -> None:
        """Forget what the ledger has lost: all behind so many transactions."""
        self.tape.fall_back(length)
        self._lost_by.clear()
        self._raised_by.clear()

    def refused(self, batch: CommitBatch) -> None:
        """Count a batch that was not written."""
        self.fenced_commits += any(
            a.epoch < self._database.shards[a.shard].epoch for a in batch.offsets.advances
        )

    def require(self, holds: bool, invariant: Invariant, message: str) -> None:
        """Note a violation unless ``holds``."""
        self.findings.require(holds, invariant, message)

    def _may_refuse(self, guard: Guard, node: int) -> bool:
        """Say whether a guard may have kept pods off a node; who reads a matcher may be behind."""
        known = self._database.guards.get(guard.key)
        moved = guard.version_seen != (0 if known is None else known.version)
        return node in guard.nodes and (guard.raises or bool(guard.announces_to) or moved)

    def _may_have(self, claim: NodeClaim) -> bool:
        """Say whether a node is as a claim saw it."""
        row = self._database.nodes.get(claim.id)
        known = claim.version_seen, claim.spec_count_seen, False
        same = row is not None and (row.version, row.spec_count, row.deleted) == known
        return same and not claim.is_doubtful

    def _lost_with_gangs(self, batch: CommitBatch, lost: Sequence[NodeClaim], beside: Set[int]) -> set[int]:
        """Return the nodes that pods of gangs may have lost with others of theirs, or with the last batch.

        ``beside`` are those that were lost for what was placed on others.
        """
        found = {claim.id for claim in lost if not self._may_have(claim)} | beside
        found |= {
            claim.id for claim in lost if any(self._may_refuse(g, claim.id) for g in batch.cluster.guards)
        }
        found |= {
            node for gang in batch.cluster.gangs if gang.needed_count > len(gang.nodes) for node in gang.nodes
        }
        while (
            more := {n for gang in batch.cluster.gangs if found & set(gang.nodes) for n in gang.nodes} - found
        ):
            found |= more
        return found

    # ------------------------------------------------------------------------------- each transaction

    def committed(self, batch: CommitBatch, lost_nodes: Set[int]) -> None:
        """Check what must hold after every transaction."""
        self.conflicts += len(lost_nodes)
        self._judge_doubt(batch, lost_nodes)
        self._judge_guards(batch, lost_nodes)
        for s in shard_advances(batch):
            epoch = self._database.shards[s.shard].epoch
            holder = self._database.worker_leases[s.shard].holder
            owned = s.epoch == epoch and holder in (None, self._database.writer)
            self.require(owned, Invariant.STALE_EPOCH_WRITE, f"{s} in epoch {epoch} of another owner")
        raised = {fact.id: fact.changes for fact in batch.cluster.facts}
        lost = [claim for claim in batch.cluster.claims if claim.id in lost_nodes]
        is_beside = not batch.cluster.guards and not all(map(self._may_have, lost))
        beside = {claim.id for claim in lost if is_beside and not claim.resource_only}
        with_gangs = self._lost_with_gangs(batch, lost, beside)
        for claim in batch.cluster.claims:
            if claim.id in lost_nodes:
                what = f"{claim.name} is as {claim} saw it"
                guarded = any(self._may_refuse(guard, claim.id) for guard in batch.cluster.guards)
                with_others = guarded or claim.id in with_gangs
                self.require(with_others or not self._may_have(claim), Invariant.UNFOUNDED_CONFLICT, what)
            else:
                raised[claim.id] = raised.get(claim.id, 0) + claim.changes
                found = self._database.node_versions[claim.id][-1] - claim.changes
                seen = claim.resource_only or found == claim.version_seen
                what = f"{claim.name} was at {found}, and the claim had seen {claim.version_seen}"
                self.require(seen, Invariant.VERSION_CHAIN, what)
        versions: dict[str, tuple[int, int]] = {}
        for node, changes in raised.items():
            before, after = [0, *self._database.node_versions[node]][-2:]
            what = f"node {node} goes from {before} to {after} by {changes} changes"
            self.require(after == before + changes, Invariant.VERSION_CHAIN, what)
            versions[self._database.nodes[node].name] = before, after
        self.tape.note(batch, versions)

    def _judge_doubt(self, batch: CommitBatch, lost_nodes: Set[int]) -> None:
        """What was planned while claims on a node were lost doubts the version of that node.

        A batch that was planned later says which pods it took back, or that its worker began anew.
        """
        writer, row = self._database.writer, batch.journal.row
        lost = self._lost_by.pop(writer, set())
        if row is not None and row.start is None and not row.forgotten:
            for claim in batch.cluster.claims:
                known = claim.id not in lost or claim.is_doubtful
                self.require(known, Invariant.UNDOUBTED, f"{claim} was planned on pods that lost")
        if lost_nodes:
            self._lost_by[writer] = set(lost_nodes)

    def _judge_guards(self, batch: CommitBatch, lost_nodes: Set[int]) -> None:
        """A worker that raised a key knows it by its second batch behind that one."""
        writer = self._database.writer
        self._commits_by[writer] += 1
        number = self._commits_by[writer]
        for guard in batch.cluster.guards:
            row = self._database.guards.get(guard.key)
            if guard.drops and row is None:  # whoever needs the key again begins it anew, whoever raised it
                for known in [known for known in self._raised_by if known[1] == guard.key]:
                    del self._raised_by[known]
            at, version = self._raised_by.get((writer, guard.key), (number, 0))
            if row is None or row.version < version:  # it was dropped meanwhile
                self._raised_by.pop((writer, guard.key), None)
            elif number - at >= 2 and guard.version_seen >= 0:
                what = f"{guard} has not seen version {version}, which its own worker gave the key"
                self.require(guard.version_seen >= version, Invariant.BLIND_GUARD, what)
            if row is not None and raised_keys([guard], lost_nodes):
                self._raised_by[writer, guard.key] = number, row.version

    # ------------------------------------------------------------------------------------------ the end

    def judge(self) -> None:
        """Check what must hold when all records are worked off."""
        letters = {
            (letter.topic, letter.partition, letter.offset, orjson.loads(letter.raw)["id"])
            for rows in self._database.dead_letters.values()
            for letter in rows
            if letter.topic == USAGE_TOPIC
        }
        events = Events(len(self._database.shards), letters)
        outside = Outside(events, self.findings, self.shard_counts, reserves=self.reserves)
        for shard in sorted(self._database.decisions):
            records = self._log.records(TopicPartition(DECISIONS_TOPIC, shard))
            outside.read(shard, records)
            self._check_topic(shard, outside.decisions[shard])
        outside.follow(self.tape.commits, self.tape.is_overwritten)
        again = f"{outside.runs_again} times, and {self.late_publishers} late relays could have done so"
        # A late append repeats what the present relay published, and that one repeats what was new in it.
        self.require(outside.runs_again <= 2 * self.late_publishers, Invariant.PUBLISHED_TWICE, again)
        self.gangs, self.workloads = outside.gangs_count, outside.workloads_count
        self.lent = outside.lent.pods_count
        outside.judge_nodes()
        outside.judge_end()
        self._check_placements(outside)
        self._check_dead_letters(events)
        self._check_profiles(events)
        self._check_usage(events)
        self._check_actions(events)
        self._check_bill(outside)
        self._check_past(outside)

    def _check_topic(self, shard: int, published: list[bytes]) -> None:
        """The topic holds exactly the ledger's decisions, byte by byte."""
        decided = [payload for _, payload in self._database.decisions[shard]]
        counts = f"shard {shard}: {len(published)} published, {len(decided)} in the ledger"
        self.require(len(published) == len(decided), Invariant.HOLE_IN_SEQ, counts)
        for seq, (told, payload) in enumerate(zip(published, decided, strict=False), 1):
            same = told == payload
            self.require(same, Invariant.OTHER_TIMELINE, f"{shard}-{seq}: {told!r} is not {payload!r}")

    def _check_placements(self, outside: Outside) -> None:
        """Open placements and waiting pods are those of the decisions, in both directions."""
        placed = {uid: row.opened.node for (uid, _), row in self._database.open_placements.items()}
        told = {uid: life.node for uid, life in outside.lives.items() if life.node}
        for uid in sorted(placed.keys() | told.keys()):
            there, said = placed.get(uid), told.get(uid)
            if there is None:
                self.require(False, Invariant.PHANTOM_DECISION, f"{uid} on {said}: no placement is open")
            else:
                self.require(there == said, Invariant.LEDGER_DIFFERS, f"{uid} on {there}, told {said}")
        waiting = {uid for uid, life in outside.lives.items() if life.waits}
        pending = {uid for uid, _ in self._database.pending}
        for uid in sorted(waiting - pending):
            self.require(False, Invariant.LOST_POD, f"{uid} was told to wait, and does not")
        for uid in sorted(pending - waiting):
            self.require(False, Invariant.LEDGER_DIFFERS, f"{uid} waits, and was not told")
        tables = self._database.nominations
        promised = {uid: row.node for (uid, _), row in tables.rows.items()}
        said_promised = {uid: each.node for uid, each in outside.promises.open.items()}
        same = promised == said_promised
        self.require(same, Invariant.BROKEN_PROMISE, f"{promised} are open, told {said_promised}")
        evicted = {uid for uid, _ in tables.evictions}
        same = evicted == outside.promises.evicted.keys()
        self.require(same, Invariant.LEDGER_DIFFERS, f"{evicted} evicted, told {outside.promises.evicted}")
        moving = {row.pod_uid: row.node for row in self._database.moves.open()}
        same = moving == outside.promises.moving
        self.require(same, Invariant.LEDGER_DIFFERS, f"{moving} move, told {outside.promises.moving}")
        open_rows = Counter(r.opened.pod_uid for r in self._database.placements if r.released_at_ms is None)
        for uid, count in open_rows.items():
            self.require(count == 1, Invariant.DOUBLE_PLACEMENT, f"{uid} has {count} open placements")
        for row in self._database.placements:
            ended_ms, began_ms = row.released_at_ms, row.opened.at_ms
            kept = ended_ms is None or ended_ms >= began_ms
            self.require(kept, Invariant.WRONG_SPAN, f"{row.opened.pod_uid}: {began_ms} to {ended_ms}")
        sums = outside.sums()
        for node in self._database.nodes.values():
            said_sum = sums.get(node.name, {})
            equal = node.requested == said_sum
            self.require(equal, Invariant.WRONG_SUM, f"{node.name}: {node.requested}, pods {said_sum}")
            states = outside.events.nodes.get(node.name, [])
            known = bool(states) and states[-1].gone == node.deleted
            self.require(
                known, Invariant.LEDGER_DIFFERS, f"{node.name}: gone {node.deleted}, not {states[-1:]}"
            )

    def _check_dead_letters(self, events: Events) -> None:
        """Each broken record is one dead letter."""
        letters = Counter(
            (letter.topic, letter.partition, letter.offset)
            for rows in self._database.dead_letters.values()
            for letter in rows
        )
        differ = sorted((letters - Counter(events.broken)) + (Counter(events.broken) - letters))
        self.require(not differ, Invariant.DEAD_LETTERS, f"missing or too many: {differ}")

    def _check_profiles(self, events: Events) -> None:
        """The newest event of a name is in force, and its revisions count up without a hole."""
        rows: dict[str, list[ProfileRow]] = {}
        for key in sorted(self._database.profiles):
            rows.setdefault(key[0], []).append(self._database.profiles[key])
        lost = rows.keys() ^ events.profiles.keys()
        self.require(not lost, Invariant.LOST_PROFILE, f"lost or invented: {lost}")
        for name, states in events.profiles.items():
            revisions = rows.get(name, [])
            numbers = [row.revision for row in revisions]
            gapless = numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
            self.require(gapless, Invariant.LOST_PROFILE, f"{name}: {numbers}")
            version, spec = states[-1]
            built_in = profile_to_spec(BUILT_IN_PROFILES[name]) if name in BUILT_IN_PROFILES else {}
            wanted = _strategy(built_in if spec is None else spec)
            last = revisions[-1] if revisions else None
            in_force = last is not None and (last.resource_version, _strategy(last.spec)) == (version, wanted)
            self.require(in_force, Invariant.LOST_PROFILE, f"{name} is {last}, not {wanted} of v{version}")
        for rows_of_shard in self._database.decisions.values():
            for decision, _ in rows_of_shard:
                number = decision.profile_revision or 0
                known = number <= 1 or (decision.profile, number) in self._database.profiles
                what = f"{decision.pod_uid} by revision {number} of {decision.profile}"
                self.require(known, Invariant.LOST_PROFILE, what)

    def _check_usage(self, events: Events) -> None:
        """Every measurement of a node that never comes is in its window, once."""
        for node in WATCHED:
            row = self._database.measured.usage.get(node)
            kept: Any = {}
            if row is not None:
                series = row.record.series["cpu"]
                samples = [row.record.at_ms - ago for ago in series.ago_ms]
                kept = dict(zip(samples, series.percent, strict=True)), series.peaks
            wanted = _window(events.usage.get(node, []))
            self.require(kept == wanted, Invariant.LOST_USAGE, f"{node}: {kept}, not {wanted}")

    def _check_actions(self, events: Events) -> None:
        """What agents did is stored as often as it was said."""
        rows = [row.action for row in self._database.measured.actions]
        kept = Counter((each.node, each.at_ms, each.reason) for each in rows)
        differ = sorted((kept - events.actions) + (events.actions - kept))
        self.require(not differ, Invariant.LOST_ACTION, f"missing or too many: {differ}")

    def _check_bill(self, outside: Outside) -> None:
        """Each pod whose use is followed is billed all of it; the others at most what they used."""
        billed = Counter[tuple[str, str]]()
        for line in self._database.measured.bill.values():
            billed[line.namespace, line.resource] += line.amount
        for namespace, (least, most) in used_amounts(outside.events, outside.lent).items():
            for resource, low, high in zip(RESOURCES, least, most, strict=True):
                found = billed[namespace, resource]
                what = f"{namespace}: {found} of {resource}, and {low} to {high} was used"
                self.require(low <= found <= high, Invariant.WRONG_BILL, what)

    def _check_past(self, outside: Outside) -> None:
        """The ledger tells of some transactions what was so right after them."""

        def require(holds: bool, message: str) -> None:
            self.require(holds, Invariant.WRONG_PAST, message)

        told = self.told_of([BatchId(*each.number) for each in outside.pictures])
        self.moments = judge_past(told, outside.pictures, require)

    def judge_followed(self, name: str, state: ClusterState, unsaid: int) -> None:
        """What a worker knows of the cluster when all is quiet is what the ledger holds.

        ``unsaid`` is how often somebody raised a version without a word in the journal.
        """
        for row in self._database.nodes.values():
            known = state.nodes.get(row.name)
            found = known and (known.version, state.requested_of(row.name))
            what = f"{name}: {row.name} is known with {found}, not {row}"
            equal = found and row.version - unsaid <= found[0] <= row.version and found[1] == row.requested
            self.require(bool(equal), Invariant.FOLLOWED_DIFFERS, what)
        rows = [row.opened for row in self._database.open_placements.values()]
        placed = {f"{row.namespace}/{row.name}": row.node for row in rows}
        known_placed = {key: entry.node for key, entry in state.pods.items() if entry.node}
        differ = sorted(placed.items() ^ known_placed.items())
        self.require(not differ, Invariant.FOLLOWED_DIFFERS, f"{name}: {differ}")
        tables, known_promises = self._database.nominations, state.nominations
        promised = {(row.pod_uid, row.node) for row in tables.rows.values()}
        promised ^= {(each.uid, each.node) for each in known_promises.entries.values()}
        self.require(not promised, Invariant.FOLLOWED_DIFFERS, f"{name}: promised {promised}")
        evicted = {uid for uid, _ in tables.evictions} ^ {
            state.pods[key].spec.uid for key in known_promises.evicted
        }
        self.require(not evicted, Invariant.FOLLOWED_DIFFERS, f"{name}: evicted {evicted}")
        moving = {(row.key, row.node) for row in self._database.moves.open()}
        moving ^= set(state.moves.under_way.items())
        self.require(not moving, Invariant.FOLLOWED_DIFFERS, f"{name}: moves {moving}")

    # ------------------------------------------------------------------------------------- convergence

    def unnoticed(self) -> str:
        """Return where the log lost records that the ledger is ahead of, "" where it did not."""
        for (_, topic, number), row in self._database.offsets.items():
            if topic[0] != "~" and row.next_offset > self._log.partition(TopicPartition(topic, number)).end:
                return f"{topic}/{number} ends before {row}"
        return ""

    def behind(self) -> str:
        """Return what is not worked off or not published yet, "" where all is."""
        offsets = self._database.offsets
        shards = range(len(self._database.shards))
        homes = [(topic, shard) for topic in (NODES_TOPIC, PODS_TOPIC) for shard in shards]
        for topic, shard in [*homes, (CONFIG_TOPIC, 0), (USAGE_TOPIC, 0)]:
            row = offsets.get((shard, topic, shard))
            end = self._log.last_end(TopicPartition(topic, shard))
            if row is None or row.next_offset < end:
                return f"{topic}/{shard} ends at {end}, and the ledger is at {row}"
        if lost := self.unnoticed():
            return lost
        for (source, topic, _), row in offsets.items():
            home = home_of(topic)
            if home is not None:
                taken = offsets.get((home, inbox_topic(source), home))
                if taken is None or taken.next_offset < row.next_offset:
                    return f"shard {home} is at {taken} of what shard {source} handed over, {row}"
        promised = [uid for (uid, _), row in self._database.nominations.rows.items() if row.victims]
        if promised:  # nobody leaves for the others, which last
            return f"promised, and neither kept nor ended: {sorted(promised)}"
        for shard, rows in self._database.decisions.items():
            published = self._log.records(TopicPartition(DECISIONS_TOPIC, shard))
            noted = self._database.cursors[shard].published[Stream.DECISIONS]
            # A late relay's append may void what consumers had, until the present relay says it again.
            if noted < len(rows) or len(published) < len(rows) or len(consumed(published)[0]) < len(rows):
                return f"{len(published)} records say {len(rows)} decisions of shard {shard} so far"
        return ""

    def activity(self) -> int:
        """Return what moves with all that happens but ticks."""
        offsets = self._database.offsets.items()
        read = sum(
            row.next_offset for (_, topic, _), row in offsets if topic != TICKS_TOPIC and topic[0] != "~"
        )
        return read + sum(shard.seq_next for shard in self._database.shards.values())


def _strategy(spec: dict[str, Any] | None) -> Any:
    return (spec or {"scores": [{}]})["scores"][0].get("args")


def _window(samples: list[tuple[int, float]]) -> Any:
    """Return what is kept of samples: the latest of each span of the window, and the peak of each day."""
    if not samples:
        return {}
    kept: dict[int, tuple[int, float]] = {}
    peaks: dict[int, float] = {}
    end_ms = 0
    for at_ms, percent in samples:
        end_ms = max(end_ms, at_ms)
        if at_ms > end_ms - _WINDOW_MS and at_ms >= kept.get(at_ms // _SPAN_MS, (0, 0.0))[0]:
            kept[at_ms // _SPAN_MS] = at_ms, percent
        day = at_ms // _DAY_MS
        peaks[day] = max(percent, peaks.get(day, 0.0))
    window = {at_ms: value for at_ms, value in kept.values() if at_ms > end_ms - _WINDOW_MS}
    return dict(sorted(window.items())), {
        day: top for day, top in peaks.items() if day >= end_ms // _DAY_MS - 1
    }
