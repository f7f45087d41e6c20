"""Which guards a batch needs, by what this worker knows of matchers and of its own batches on their way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from domain.cycle.matchers import KnownMatchers, Needs, announced_to
from domain.cycle.verdicts import CycleResult, Placement, Preemption
from domain.state.cluster import ClusterState
from services.ports.guards import Guard, budget_key


class Guarding:
    """The matchers of all workers as far as they are known, and what the last batches would raise.

    Parameters
    ----------
    versions : mapping of str to int
        The keys of the ledger.
    """

    def __init__(self, versions: Mapping[str, int]) -> None:
        self._known = KnownMatchers(versions)
        self._needs = Needs()
        self._on_their_way: deque[frozenset[str]] = deque(maxlen=2)  # what batches raise, if all goes well

    def follow(self, raised: Iterable[str]) -> None:
        """Take what a batch of another worker raised."""
        self._known.raised(raised)

    def settle(self, raised: Iterable[Iterable[str]]) -> None:
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
            if isinstance(verdict, Placement):
                pod, node, own = verdict.pod, verdict.node, result.matchers.get(verdict.attempt, ())
                if self._known.need(self._needs, pod, node, own, state.index.namespaces):
                    strict.add(node)
        for _, promise in result.promises:
            for name in promise.budgets if isinstance(promise, Preemption) else ():
                self._needs.raises.setdefault(budget_key(name), set()).add(promise.node)
        return strict

    def guards(self, state: ClusterState) -> Sequence[Guard]:
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
        return guards
