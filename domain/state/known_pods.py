"""The pods that exist, by key and by uid."""

from __future__ import annotations

from collections.abc import Mapping

from domain.model.pods import PodSpec
from domain.state.pod_index import PodIndex
from domain.state.pods import PodEntry


class KnownPods:
    """Every pod that exists, placed or waiting. A key names one pod.

    A uid does, too, but where two workers took pods of one uid side by side: it names the later one then.

    Attributes
    ----------
    entries : dict
        Key -> the pod.
    keys : dict
        Uid -> the key.
    """

    def __init__(self, index: PodIndex) -> None:
        self.entries: dict[str, PodEntry] = {}
        self.keys: dict[str, str] = {}
        self._index = index

    def enter(self, pod: PodSpec, arrival: int, shard: int) -> PodEntry:
        """Take a pod that begins to exist."""
        self.keys[pod.uid] = pod.key
        entry = self.entries[pod.key] = PodEntry(pod, arrival=arrival, shard=shard)
        self._index.enter(entry)
        return entry

    def leave(self, entry: PodEntry) -> None:
        """Forget a pod, which counts on no node any more."""
        self._index.leave(entry)
        del self.entries[entry.spec.key]
        if self.keys.get(entry.spec.uid) == entry.spec.key:
            del self.keys[entry.spec.uid]

    def note_times(self, placed_ms: Mapping[str, int]) -> None:
        """Note at which log time pods (by key) were placed: it decides which of them have to leave first."""
        entries = self.entries
        for key, at_ms in placed_ms.items():  # each placed pod comes by here
            if key in entries:
                entries[key].placed_ms = at_ms
        if self._index.renewed is not None:
            self._index.renewed.update(entries[key].node for key in placed_ms if key in entries)

    def of_uid(self, uid: str) -> PodEntry | None:
        """Return the pod of a uid."""
        key = self.keys.get(uid)
        return None if key is None else self.entries[key]
