"""What goes on from batch to batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from domain.model.limits import signatures_cached_max
from domain.model.pods import PodSpec
from services.codec.encode import template_fragment


class Counters:
    """Epochs, the next free numbers per shard, and what the ledger is known to have."""

    def __init__(
        self, epochs: Mapping[int, int], seq: Mapping[int, int], dead_seq: Mapping[int, int]
    ) -> None:
        self.epochs = dict(epochs)
        self.seq = dict(seq)
        self.dead_seq = dict(dead_seq)
        self.reasons_known: dict[bytes, dict[int, dict[str, int]]] = {}  # signature -> shard -> as written
        self._marks: dict[int, int] = {}
        self._templates_known: set[bytes] = set()
        self._fragments: dict[bytes, bytes] = {}

    def marks(self) -> dict[int, int]:
        """Return the next seq of every shard, not to be changed: measurements of one moment share it."""
        if self._marks != self.seq:
            self._marks = dict(self.seq)
        return self._marks

    def know(self, signatures: Iterable[bytes]) -> None:
        """Note that the ledger has these templates."""
        for signature in signatures:
            self.is_new(signature)

    def is_new(self, signature: bytes) -> bool:
        """Say whether a template has to be written, which it then counts as; once too often does no harm."""
        if signature in self._templates_known:
            return False
        if len(self._templates_known) >= signatures_cached_max:
            self._templates_known.clear()
        self._templates_known.add(signature)
        return True

    def fragment(self, pod: PodSpec) -> bytes:
        """Return what the decision records of a template share."""
        fragment = self._fragments.get(pod.signature)
        if fragment is None:
            if len(self._fragments) >= signatures_cached_max:
                self._fragments.clear()
            fragment = self._fragments[pod.signature] = template_fragment(pod.template, pod.signature)
        return fragment
