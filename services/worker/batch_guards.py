"""Which guards a batch needs, by what this worker knows of matchers and of its own batches on their way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from domain.counting.matchers import KnownMatchers, Needs, announced_to
from domain.engine.verdicts import CycleResult, Migration, Placement, Preemption
from domain.state.cluster import ClusterState
from services.ports.guards import Guard, budget_key

IDLE_MS = 3_600_000
"""A matcher that was not used for so long, in log time, is dropped: rollouts leave one each."""

_DROPPED_MAX = 100
"""So many matchers at most are dropped with one batch."""

_DROPPING_SHARD = 0
"""The worker that holds this shard drops matchers for all."""


class BatchGuards:
    """The matchers of all workers as far as they are known, and what the last batches would raise.

    Parameters
    ----------
    versions : mapping of str to int
        The keys of the ledger.
    now_ms : int
        Log time.
    """

    def __init__(self, versions: Mapping[str, int], now_ms: int, idle_ms: int = IDLE_MS) -> None:
        self._idle_ms = idle_ms
        self._known = KnownMatchers(versions, now_ms)
        self._needs = Needs()
        self._on_their_way: deque[frozenset[str]] = deque(maxlen=2)  # what batches raise, if all goes well

    def follow(self, raised: Iterable[str]) -> None:
        """Take what a batch of another worker raised."""
        self._known.raised(raised)

    def confirm_raised(self, raised: Iterable[Iterable[str]]) -> None:
        """Take what own batches raised, in their order, now that they are committed."""
        for keys in raised:
            self._known.raised(keys)
            if self._on_their_way:
                self._on_their_way.popleft()

    def decide(self, result: CycleResult, state: ClusterState) -> set[str]:
        """Take what a cycle decided; return the nodes where room is not enough, for a pod may shun these.

        A pod that shuns others on its node may wait with another worker, and come to the node first. With
        one worker nothing needs a guard.
        """
        strict: set[str] = set()
        if len(state.own) == state.shards_count:
            return strict
        for verdict in result.verdicts:
            if isinstance(verdict, Preemption):
                self._need_budgets(verdict)
            elif isinstance(verdict, Placement):
                pod, node, own = verdict.pod, verdict.node, result.matchers.get(verdict.attempt, ())
                if self._known.need(self._needs, pod, node, own, state.index.namespaces):
                    strict.add(node)
        for moved in result.moves:
            if isinstance(moved, Migration):
                self._need_budgets(moved)
        return strict

    def _need_budgets(self, verdict: Preemption | Migration) -> None:
        for name in verdict.budgets:
            self._needs.raises.setdefault(budget_key(name), set()).add(verdict.node)

    def guards(self, state: ClusterState, now_ms: int) -> Sequence[Guard]:
        """Return the guards of the batch that does all that was decided since the batch before."""
        needs, self._needs, nodes = self._needs, Needs(), state.nodes

        def guard(key: str, names: Iterable[str], **more: Any) -> Guard:
            seen = self._known.versions.get(key, 0) + sum(key in raised for raised in self._on_their_way)
            return Guard(
                key=key, version_seen=seen, nodes=frozenset(nodes[name].ordinal for name in names), **more
            )

        guards = [guard(key, names) for key, names in sorted(needs.reads.items())]
        guards += [guard(key, names, raises=True) for key, names in sorted(needs.raises.items())]
        for key, names in sorted(needs.announces.items()):
            guards.append(guard(key, names, announces_to=announced_to(key)))
        self._on_their_way.append(frozenset(needs.raises))
        return guards + self._drops(needs, state, now_ms)

    def _drops(self, needs: Needs, state: ClusterState, now_ms: int) -> list[Guard]:
        """Drop matchers that were not used for long. A single worker has no guards, and drops none."""
        self._known.now_ms = now_ms
        if _DROPPING_SHARD not in state.own or len(state.own) == state.shards_count:
            return []
        idle = islice(self._known.idle(now_ms - self._idle_ms), _DROPPED_MAX)
        versions, used = self._known.versions, frozenset(needs.raises).union(*self._on_their_way)
        return [Guard(key=key, version_seen=versions[key], drops=True) for key in idle if key not in used]
