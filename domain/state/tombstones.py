"""Pods and nodes that are gone, remembered for a while: a late duplicate must not bring one back."""

from __future__ import annotations

from collections.abc import Iterator

from domain.model.limits import tombstones_max
from domain.state.versions import is_stale, skip_reason

_VERSIONS = 64  # bits of a resource version and of "none"


class Tombstones:
    """Key and uid of each pod that is gone, with its last version, by the log time of its end.

    The key of a node is its name: a node that another one of the name replaced is remembered likewise.

    Time passes in steps (``pass_to``): what is older than the horizon is forgotten, whatever the number.
    Beyond ``tombstones_max``, which bounds the memory, the oldest go before their time; ``lost_count``
    counts these. Cost: about 230 bytes each, for a key of 30 characters and a uid of 36.
    """

    def __init__(self) -> None:
        self.lost_count = 0
        self._now_ms = 0
        self._gone: dict[
            str, int
        ] = {}  # "<key> <uid>" -> time and version in one number: no objects to collect

    def __len__(self) -> int:
        return len(self._gone)

    def misses(self, key: str, uid: str, version: int | None) -> bool:
        """Say whether a pod that is gone would be remembered (``add``), and is not yet."""
        return (version is not None or uid != key) and f"{key} {uid}" not in self._gone

    def pass_to(self, now_ms: int, forget_before_ms: int) -> None:
        """Let time pass; forget what ended before ``forget_before_ms``."""
        self._now_ms = now_ms
        oldest = forget_before_ms << _VERSIONS
        self._gone = {which: packed for which, packed in self._gone.items() if packed >= oldest}

    def add(self, key: str, uid: str, version: int | None, at_ms: int | None = None) -> None:
        """Remember a pod that is gone, with its last version if it had any.

        Each uid of a name is remembered by itself: no version of one keeps the next one out. Without a
        version and a uid of its own, nothing tells a late duplicate from a new pod.
        """
        if version is None and uid == key:
            return
        which = f"{key} {uid}"
        self._gone.pop(which, None)
        if len(self._gone) >= tombstones_max:
            self._make_room()
        at_ms = self._now_ms if at_ms is None else at_ms
        self._gone[which] = (at_ms << _VERSIONS) + (0 if version is None else version + 1)

    def _make_room(self) -> None:
        """Forget the oldest sixteenth at once: taking the first of a dict again and again gets slow."""
        kept = list(self._gone.items())[len(self._gone) // 16 + 1 :]
        self.lost_count += len(self._gone) - len(kept)
        self._gone = dict(kept)

    def why_late(self, key: str, uid: str, version: int | None) -> str:
        """Return why an event of a pod comes too late, "" where it does not.

        A uid never comes back, except with a version that is newer than its end.
        """
        packed = self._gone.get(f"{key} {uid}")
        if packed is None:
            return ""
        last = packed % (1 << _VERSIONS) - 1
        if last < 0 or (version is None and uid != key):
            return "known"
        return skip_reason(version, last) if is_stale(version, last) else ""

    def known(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield what is remembered, in order: key and uid, then the time and the version (-1: none)."""
        for which, packed in sorted(self._gone.items()):
            yield which, (packed >> _VERSIONS, packed % (1 << _VERSIONS) - 1)
