"""The metrics of a worker."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from domain.model.decisions import Outcome
from domain.state.billing import UNBILLED_REASONS
from domain.state.changes import SKIP_REASONS
from domain.state.tombstones import Tombstones
from services.lag import Lag
from services.ports.ledger import CommitBatch, Committed
from services.ports.positions import LogFault
from services.ports.workers import ShadowCounts


class WorkerMetrics:
    """Counters of one worker, in the registry of its process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.decisions = Counter(
            "berth_decisions", "Decisions made durable, by outcome", ["outcome"], registry=registry
        )
        self.dead_letters = Counter(
            "berth_dead_letters", "Records made dead letters, by code", ["code"], registry=registry
        )
        self.skipped = Counter(
            "berth_events_skipped",
            f"Events that changed nothing, by reason: {_said(SKIP_REASONS)}",
            ["reason"],
            registry=registry,
        )
        self.unverified = Counter(
            "berth_records_unverified",
            "Records with a sender's name whose seal is wrong: forged, or of another ledger",
            registry=registry,
        )
        self.records = Counter("berth_records", "Records whose effect is durable", registry=registry)
        self.batches = Counter("berth_batches", "Transactions committed", registry=registry)
        self.measured = Counter(
            "berth_usage_written", "Nodes whose measured usage was made durable, per batch", registry=registry
        )
        self.unbilled = _unbilled(registry)
        self.lag_records = Gauge(
            "berth_shard_lag_records", "Records appended and not yet folded", ["shard"], registry=registry
        )
        self.lag_seconds = Gauge(
            "berth_shard_lag_seconds", "Age of the oldest record not yet folded", ["shard"], registry=registry
        )
        self.inbox_waiting = _inbox(registry)
        self.restarts = Counter(
            "berth_worker_restarts", "Times that the state was read anew", ["reason"], registry=registry
        )
        self.digest_mismatches = Counter(
            "berth_digest_mismatches",
            "Times that the state read from the ledger was not the one that its last batch led to",
            registry=registry,
        )
        self.log_faults = Counter(
            "berth_log_faults", "Times that the log did not answer and was asked again", registry=registry
        )
        self.batch_records_max = Gauge(
            "berth_worker_batch_records_max",
            "Records of a batch at most: fewer after a commit that took the ledger too long",
            registry=registry,
        )
        self.log_damaged = Counter(
            "berth_log_damaged",
            "Partitions that did not hold what their shard would read next, by code",
            ["topic", "code"],
            registry=registry,
        )
        self.unmentioned = Gauge(
            "berth_log_unmentioned",
            "Objects of the ledger that a damaged topic did not mention at the last start, by topic",
            ["topic"],
            registry=registry,
        )
        self.gone = Gauge(
            "berth_tombstones", "Pods that are gone and remembered against late duplicates", registry=registry
        )
        self.gone_lost = Gauge(
            "berth_tombstones_lost",
            "Pods forgotten before their time, for their number",
            registry=registry,
        )
        self.conflicts, self.moved, self.follow_refused = _overtaken(registry)
        self.plan_seconds, self.commit_seconds, self._follow_seconds, self._follow_lag = _durations(registry)

    def handed(self, counts: Mapping[int, int]) -> None:
        """Show how much waits in the inboxes of the shards that this worker holds."""
        for shard, count in counts.items():
            self.inbox_waiting.labels(str(shard)).set(count)

    def began(self, faults: Sequence[LogFault]) -> None:
        """Count what the log had lost when the state was read."""
        for fault in faults:
            self.log_damaged.labels(fault.at.topic, fault.code).inc()
            self.unmentioned.labels(fault.at.topic).inc(len(fault.unmentioned))

    def remembers(self, gone: Tombstones) -> None:
        """Show how many pods that are gone a worker remembers."""
        self.gone.set_function(lambda: len(gone))
        self.gone_lost.set_function(lambda: gone.lost_count)

    def behind(self, lags: Mapping[int, Lag]) -> None:
        """Show the lag of each shard that this worker holds."""
        for shard, lag in lags.items():
            self.lag_records.labels(str(shard)).set(lag.records)
            self.lag_seconds.labels(str(shard)).set(lag.seconds)

    def followed(self, seconds: float, lags: Sequence[float]) -> None:
        """Count batches of other workers that were folded, how long that took, and how late each was."""
        self._follow_seconds.observe(seconds)
        for lag in lags:
            self._follow_lag.observe(lag)

    def committed(self, batch: CommitBatch, committed: Committed) -> None:
        """Count a batch that is durable."""
        stay = sum(row.key in committed.lost_pods for row in batch.pods.moved)  # they wait for nothing
        conflicts = len(committed.lost_pods) - stay
        self.conflicts.inc(conflicts)
        self.moved.inc(committed.moved_count)
        self.batches.inc()
        self.records.inc(sum(a.hi - a.lo for a in batch.offsets.advances if not a.topic.startswith("~")))
        outcomes = Tally(decision.outcome for decision, _ in batch.decisions.made)
        if committed.lost_pods:
            nominated = [row for row in batch.pods.nominated if row.key in committed.lost_pods]
            evicted = sum(len(row.victims) for row in nominated) + stay
            outcomes[Outcome.NOMINATED] -= len(nominated)
            outcomes[Outcome.BOUND] -= conflicts - len(nominated)
            outcomes[Outcome.CONFLICT] += conflicts
            outcomes[Outcome.EVICTED] -= evicted
            outcomes[Outcome.SPARED] += evicted
        for outcome, count in outcomes.items():
            self.decisions.labels(outcome.value).inc(count)
        self.measured.inc(len(batch.cluster.usage))
        for reason, count in batch.decisions.skipped.items():
            self.skipped.labels(reason).inc(count)
        for reason, count in batch.cluster.unbilled.items():
            self.unbilled.labels(reason).inc(count)
        self.unverified.inc(batch.decisions.unverified_count)
        for letter in batch.decisions.dead_letters:
            self.dead_letters.labels(letter.code).inc()


class ShadowMetrics:
    """Counters of the shadow profile of a worker that has one, in the registry of its process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.attempts = Counter(
            "berth_shadow_attempts",
            "Attempts compared with the shadow profile, by what came of it: "
            "agree, differ, only-live, only-shadow or neither (found a node)",
            ["result"],
            registry=registry,
        )
        self.pods = Counter(
            "berth_shadow_pods", "Pods of the attempts compared, by agreement", ["result"], registry=registry
        )
        self.refused = Counter(
            "berth_shadow_refused",
            "Attempts of which a profile (by) refuses the node that the other one would choose",
            ["by"],
            registry=registry,
        )
        self.rated = Counter(
            "berth_shadow_rated", "Attempts with a loss under a profile", ["under"], registry=registry
        )
        self.loss = Counter(
            "berth_shadow_loss_points",
            "Sum over rated attempts of what the other profile's node lacks, 0..100 of the total",
            ["under"],
            registry=registry,
        )
        self.skipped = Counter(
            "berth_shadow_skipped",
            "Attempts not compared, by reason: budget (it had taken its share of time), lagging",
            ["reason"],
            registry=registry,
        )

    def compared(self, one: ShadowCounts) -> None:
        """Count an attempt."""
        differs = one.attempts - one.agreed - one.only_live - one.only_shadow - one.neither
        results = {
            "agree": one.agreed,
            "differ": differs,
            "only-live": one.only_live,
            "only-shadow": one.only_shadow,
            "neither": one.neither,
        }
        for result, count in results.items():
            self.attempts.labels(result).inc(count)
        self.pods.labels("agree").inc(one.agreed_pods)
        self.pods.labels("differ").inc(one.pods - one.agreed_pods)
        self.refused.labels("shadow").inc(one.live_refused)
        self.refused.labels("live").inc(one.shadow_refused)
        self.rated.labels("shadow").inc(one.shadow_rated)
        self.rated.labels("live").inc(one.live_rated)
        self.loss.labels("shadow").inc(one.shadow_loss_sum)
        self.loss.labels("live").inc(one.live_loss_sum)


def _said(reasons: Mapping[str, str]) -> str:
    return "; ".join(map(" ".join, reasons.items()))


def _unbilled(registry: CollectorRegistry) -> Counter:
    said = f"Pods in reports of use that are not billed, by reason: {_said(UNBILLED_REASONS)}"
    return Counter("berth_usage_unbilled", said, ["reason"], registry=registry)


def _inbox(registry: CollectorRegistry) -> Gauge:
    what = "Events of gangs that other shards handed over and that are not folded yet"
    return Gauge("berth_inbox_waiting", what, ["shard"], registry=registry)


def _overtaken(registry: CollectorRegistry) -> tuple[Counter, Counter, Counter]:
    first = "Pods placed on a node that another worker had changed first"
    return (
        Counter("berth_worker_conflicts", f"{first}: they wait again", registry=registry),
        Counter("berth_worker_moved", f"{first}, and that still had room", registry=registry),
        Counter(
            "berth_worker_follow_refused",
            "What other workers did, and was passed over here, as it contradicts what is known",
            registry=registry,
        ),
    )


_LAG_BUCKETS = (
    *(0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    *(0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0),
)
"""Close enough to tell a wait for the next look from one for a batch that is being planned."""


def _durations(registry: CollectorRegistry) -> tuple[Histogram, Histogram, Histogram, Histogram]:
    return (
        Histogram("berth_plan_seconds", "Decode, fold and place one batch", registry=registry),
        Histogram("berth_commit_seconds", "Commit one batch", registry=registry),
        Histogram(
            "berth_follow_seconds",
            "Fold what other workers did since the batch before; part of berth_plan_seconds",
            registry=registry,
        ),
        Histogram(
            "berth_follow_lag_seconds",
            "From the commit of another worker's batch, at the earliest, until it was folded here",
            registry=registry,
            buckets=_LAG_BUCKETS,
        ),
    )
