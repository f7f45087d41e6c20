"""What the holder of a key may send: which kinds, to which namespaces, and what a pod may claim."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from domain.model.decisions import Outcome
from domain.model.errors import FieldError
from domain.model.events import PodUpserted
from services.api.caller import Caller
from services.api.explanation import decision_of
from services.codec.envelope import KINDS, NAMESPACED_KINDS
from services.codec.gateway import Outgoing
from services.ports.store import Store

BINDING = "Pod/binding"
"""The grant to say by ``spec.nodeName`` that a pod runs on a node where berth did not place it."""

PRIORITY = "Pod/priority"
"""The grant to ask for the priorities that Kubernetes keeps for the system."""

GRANTS = (*KINDS, BINDING, PRIORITY)
"""What ``kinds`` of a key may name."""

OF_TEAMS = frozenset(NAMESPACED_KINDS)
OF_CLUSTER = frozenset(KINDS) - OF_TEAMS
SENT_BY: Mapping[str, frozenset[str]] = {
    "producer": OF_TEAMS,
    "operator": OF_CLUSTER | {BINDING, PRIORITY},
    "auditor": frozenset(),
    "admin": frozenset(GRANTS),
}
"""What each role may send."""

USER_PRIORITY_MAX = 1_000_000_000
"""The highest priority that a priority class of a user may have in Kubernetes."""

_SYSTEM_CLASSES = "system-"
_HOLDS = (
    *(Outcome.BOUND, Outcome.ADOPTED, Outcome.RESIZED, Outcome.ORPHANED, Outcome.RETURNED),
    *(Outcome.EVICTED, Outcome.SPARED),
)


def sent_by(roles: Collection[str], kinds: Iterable[str] | None, *, everywhere: bool) -> frozenset[str]:
    """Return the grants of a key: its ``kinds``, or where it names none, those of its roles.

    A key that is limited to namespaces (``everywhere`` is False) sends nothing that belongs to no namespace.
    """
    named = frozenset().union(*(SENT_BY[role] for role in roles)) if kinds is None else frozenset(kinds)
    return named if everywhere else named - OF_CLUSTER


class Scope:
    """What one caller may send."""

    def __init__(self, caller: Caller) -> None:
        self._who = "this caller" if caller.name is None else f"the key {caller.name}"
        self._namespaces = caller.namespaces
        self._sends = sent_by(caller.roles, caller.kinds, everywhere=caller.namespaces is None)

    def check(self, event: Outgoing) -> None:
        """Raise ``FieldError`` if the caller may not send this event; it names what is allowed."""
        if event.kind not in self._sends:
            allowed = ", ".join(each for each in KINDS if each in self._sends) or "nothing"
            limited = "" if self._namespaces is None else f", and only in {_listed(self._namespaces)}"
            message = f"{self._who} may not send a {event.kind}; it may send {allowed}{limited}"
            raise FieldError("object.kind", message)
        if self._namespaces is not None and event.namespace not in self._namespaces:
            message = (
                f"{self._who} may not send to {event.namespace}; it may send to {_listed(self._namespaces)}"
            )
            raise FieldError("object.metadata.namespace", message)
        if isinstance(event.event, PodUpserted) and PRIORITY not in self._sends:
            self._check_priority(event.event)

    def _check_priority(self, event: PodUpserted) -> None:
        told = f"{self._who} may not ask for a priority of the system; a key with {PRIORITY} may"
        if (event.priority_class or "").startswith(_SYSTEM_CLASSES):
            raise FieldError("object.spec.priorityClassName", told)
        if event.pod.template.priority > USER_PRIORITY_MAX:
            raise FieldError("object.spec.priority", f"{told}; {USER_PRIORITY_MAX} and less are allowed")

    async def foreign_bindings(self, store: Store, events: Mapping[int, Outgoing]) -> dict[int, FieldError]:
        """Return the pods that the caller may not bind: their node is not the one that they are placed on."""
        if BINDING in self._sends:
            return {}
        pods = {
            at: each.event.pod
            for at, each in events.items()
            if isinstance(each.event, PodUpserted)
            and each.event.pod.node_name
            and not each.event.pod.finished
        }
        placed = await _placements(store, sorted({pod.key for pod in pods.values()})) if pods else {}
        return {
            at: FieldError(
                "object.spec.nodeName",
                f"{self._who} may not bind a pod, and {pod.key} was not placed on {pod.node_name}; "
                f"leave nodeName out, or use a key with {BINDING}",
            )
            for at, pod in pods.items()
            if placed.get(pod.key) != (pod.uid, pod.node_name)
        }


async def _placements(store: Store, pods: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """Return uid and node of the pods whose last decision holds a node."""
    decided = [decision_of(row, store.seen) for row in await store.latest_decisions(pods)]
    return {
        f"{each.pod.namespace}/{each.pod.name}": (each.pod.uid, each.node)
        for each in decided
        if each.outcome in _HOLDS
    }


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
