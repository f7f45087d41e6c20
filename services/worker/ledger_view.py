"""The worker's own ledger_view: what it keeps from batch to batch, beside the state, to write the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from domain.model.limits import signatures_cached_max
from domain.model.pods import PodSpec
from services.codec.encode import template_fragment
from services.ports.ledger import Lease


class LedgerView:
    """Epochs and counters per shard, what the ledger already has, and facts about pods and nodes.

    Attributes
    ----------
    waits : dict
        Key of a pod that waits -> log time at which it began to, and who sent the event by which it does.
    untried : set
        Keys of waiting pods of which the ledger says that they had no attempt yet.
    reasons_known : dict
        Signature -> shard -> why the group waits, as the ledger has it.
    refused_count : int
        How much of what other workers did contradicts what is known here. The loop counts it, and sets 0.
    follow_us : int
        How long it took to fold what they did, of the last plan.
    """

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.seq: dict[int, int] = {}
        self.dead_seq: dict[int, int] = {}
        self.waits: dict[str, tuple[int, str | None]] = {}
        self.untried: set[str] = set()
        self.reasons_known: dict[bytes, dict[int, dict[str, int]]] = {}
        self.refused_count = self.follow_us = 0
        self._templates_known: set[bytes] = set()
        self._fragments: dict[bytes, bytes] = {}

    def take_shards(
        self, leases: Iterable[Lease], seq: Mapping[int, int], dead_seq: Mapping[int, int]
    ) -> None:
        """Go on with the numbers of these shards."""
        self.epochs |= dict(leases)
        self.seq |= seq
        self.dead_seq |= dead_seq

    def give_shards(self, shards: Iterable[int], waiting: Iterable[str]) -> None:
        """Forget the numbers of these shards, and their pods that wait."""
        for shard in shards:
            for numbers in (self.epochs, self.dead_seq):  # the next seq of a shard is followed from now on
                del numbers[shard]
            for reasons in self.reasons_known.values():
                reasons.pop(shard, None)
        for key in waiting:
            self.end_wait(key)
            self.untried.discard(key)

    def wait(self, key: str, since_ms: int, sent_by: str | None) -> None:
        """Record that a pod waits."""
        self.waits[key] = since_ms, sent_by

    def end_wait(self, key: str) -> None:
        """Forget of a pod that it waited, if it did."""
        self.waits.pop(key, None)

    def know(self, signatures: Iterable[bytes]) -> None:
        """Record that the ledger has these templates."""
        for signature in signatures:
            self.is_new(signature)

    def is_new(self, signature: bytes) -> bool:
        """Return whether a template has to be written. It counts as written from then on."""
        if signature in self._templates_known:
            return False
        if len(self._templates_known) >= signatures_cached_max:
            self._templates_known.clear()
        self._templates_known.add(signature)
        return True

    def fragment(self, pod: PodSpec) -> bytes:
        """Return the part that the decision records of a template share."""
        fragment = self._fragments.get(pod.signature)
        if fragment is None:
            if len(self._fragments) >= signatures_cached_max:
                self._fragments.clear()
            fragment = self._fragments[pod.signature] = template_fragment(pod.template, pod.signature)
        return fragment
