"""What `berth apply` says of each object: `pod/web-0 created`, and which pods wait, and why."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from domain.model.config import OF_CLUSTER
from services.cli.get import CONFIG_NAMES
from services.cli.output import say
from services.cli.terminal import echo

if TYPE_CHECKING:
    from services.cli.source import Source

OBJECTS_SHOWN_MAX = 100
WAITING_SHOWN_MAX = 20
_AT_ONCE = 8
_AS_SENT = ("bound", "adopted", "resized", "returned", "spared", "released")
_LOSES_ITS_NODE = {"evicted": "has to leave its node", "orphaned": "lost its node"}


def short_name(kind: str, namespace: str, name: str) -> str:
    """Return ``pod/web-0``, with the namespace in the middle where it is another than `default`."""
    return "/".join(filter(None, (kind.lower(), "" if namespace == "default" else namespace, name)))


def _key(event: dict[str, Any]) -> tuple[str, str, str]:
    """Return kind, namespace and name of an event that was checked."""
    thing = event["object"]
    meta = thing.get("metadata") or {}
    of_cluster = thing["kind"] in (*OF_CLUSTER, "Node", "NodeUsage", "NodeAction", "SchedulingProfile")
    namespace = "" if of_cluster else meta.get("namespace") or "default"
    return thing["kind"], namespace, meta.get("name") or ""


def _path(kind: str, namespace: str, name: str) -> list[str] | None:
    """Return the path of an object in the API; None: it shows no such objects."""
    match kind:
        case "Pod":
            return ["/v1/pods", namespace, name]
        case "Node":
            return ["/v1/nodes", name]
        case "SchedulingProfile":
            return ["/v1/profiles", name]
        case _ if kind in CONFIG_NAMES:
            return ["/v1/config", kind, *([namespace] if namespace else []), name]
    return None


class Told:
    """Prints what becomes of objects: a line each of the first hundred, then their number by kind."""

    def __init__(self) -> None:
        self._shown = 0
        self._more: Counter[str] = Counter()

    @property
    def room(self) -> int:
        """Of how many more objects a line is printed."""
        return OBJECTS_SHOWN_MAX - self._shown

    async def before(self, source: Source, events: Sequence[dict[str, Any]]) -> list[bool | None]:
        """Return whether each of the first objects is known already; None where that cannot be asked."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def is_known(event: dict[str, Any]) -> bool | None:
            from services.cli.source import target

            if (path := _path(*_key(event))) is None:
                return None
            async with limit:
                status, body = await source.request("GET", target(*path))
            if status == 200:
                return b'"phase":"released"' not in body and b'"deleted":true' not in body[:2000]
            return False if status == 404 else None

        return await asyncio.gather(*map(is_known, events[: self.room]))

    def sent(self, events: Sequence[dict[str, Any]], known: Sequence[bool | None]) -> None:
        """Print the line of each object whose event is in the log; ``known`` is what held before."""
        seen: set[tuple[str, str, str]] = set()
        for event, before in zip(events, known, strict=False):
            key = _key(event)
            done = "sent" if before is None else "configured" if before or key in seen else "created"
            if event["type"] in ("DELETED", "BIND_FAILED"):
                done = {"DELETED": "deleted", "BIND_FAILED": "sent"}[event["type"]]
            seen.add(key)
            echo(f"{short_name(*key)} {done}")
        self._shown += len(known)
        self._more.update(_key(event)[0] for event in events[len(known) :])

    def end(self) -> None:
        """Print how many objects had no line."""
        if self._more:
            kinds = ", ".join(f"{count:,} of kind {kind}" for kind, count in sorted(self._more.items()))
            echo(f"and more objects: {kinds}")


def print_waiting(decisions: Sequence[dict[str, Any]]) -> None:
    """Print the pods that wait, or that lose their node, with the reason."""
    waits = [each for each in decisions if each["outcome"] not in _AS_SENT]
    for each in waits[:WAITING_SHOWN_MAX]:
        pod = each["pod"]
        why = each["reason"] or each["outcome"]
        fate = _LOSES_ITS_NODE.get(each["outcome"], "waits")
        say(f"{short_name('pod', pod['namespace'], pod['name'])} {fate}: {why}")
    if len(waits) > WAITING_SHOWN_MAX:
        echo(f"and {len(waits) - WAITING_SHOWN_MAX:,} more wait; see `berth get pending`")
