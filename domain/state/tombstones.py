"""Pods and nodes that are gone, remembered for a while: a late duplicate must not bring one back."""

from __future__ import annotations

from collections.abc import Iterator

from domain.model.limits import tombstones_max
from domain.state.remembering import Remembered
from domain.state.versions import is_stale, skip_reason

_VERSIONS = 64  # bits of a resource version and of "none"


class Tombstones:
    """Key and uid of each pod that is gone, with its last version, by the log time of its end.

    The key of a node is its name: a node that another one of the name replaced is remembered likewise.

    Time passes in steps (``pass_to``): what is older than the horizon is forgotten, whatever the number.
    Beyond ``tombstones_max``, which bounds the memory, the oldest of the namespaces that have most go before
    their time; ``lost_count`` counts these. Cost: about 230 bytes each, for a key of 30 characters and a uid
    of 36.
    """

    def __init__(self) -> None:
        self.lost_count = 0
        self._now_ms = 0
        # "<key> <uid>" -> time and version in one number: no objects to collect
        self._gone = Remembered[str, int]()

    def __len__(self) -> int:
        return len(self._gone)

    def misses(self, key: str, uid: str, version: int | None) -> bool:
        """Say whether a pod that is gone would be remembered (``add``), and is not yet."""
        return (version is not None or uid != key) and f"{key} {uid}" not in self._gone.of(_namespace(key))

    def pass_to(self, now_ms: int, forget_before_ms: int) -> None:
        """Let time pass; forget what ended before ``forget_before_ms``."""
        self._now_ms = now_ms
        oldest = forget_before_ms << _VERSIONS
        self._gone.keep(lambda packed: packed >= oldest)

    def add(self, key: str, uid: str, version: int | None, at_ms: int | None = None) -> None:
        """Remember a pod that is gone, with its last version if it had any.

        Each uid of a name is remembered by itself: no version of one keeps the next one out. Without a
        version and a uid of its own, nothing tells a late duplicate from a new pod.
        """
        if version is None and uid == key:
            return
        at_ms = self._now_ms if at_ms is None else at_ms
        packed = (at_ms << _VERSIONS) + (0 if version is None else version + 1)
        self._gone.put(_namespace(key), f"{key} {uid}", packed)
        if len(self._gone) > tombstones_max:
            self.lost_count += len(self._gone.make_room(tombstones_max))

    def why_late(self, key: str, uid: str, version: int | None) -> str:
        """Return why an event of a pod comes too late, "" where it does not.

        A uid never comes back, except with a version that is newer than its end.
        """
        packed = self._gone.of(_namespace(key)).get(f"{key} {uid}")
        if packed is None:
            return ""
        last = packed % (1 << _VERSIONS) - 1
        if last < 0 or (version is None and uid != key):
            return "known"
        return skip_reason(version, last) if is_stale(version, last) else ""

    def known(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield what is remembered, in order: key and uid, then the time and the version (-1: none)."""
        for which, packed in sorted(self._gone):
            yield which, (packed >> _VERSIONS, packed % (1 << _VERSIONS) - 1)


def _namespace(key: str) -> str:
    """Return the namespace of a pod's key; "" is that of nodes."""
    return key[: max(0, key.find("/"))]
