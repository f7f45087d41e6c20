"""What the holder of a key may send: which kinds, to which namespaces, and what a pod may claim."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from domain.manifests.config_objects import NAME_LABEL
from domain.model.decisions import Outcome
from domain.model.devices import DEVICES_KEY
from domain.model.errors import FieldError
from domain.model.events import BindFailed, PodUpserted
from domain.model.pods import PodSpec
from domain.model.priorities import SYSTEM_PREFIX, USER_PRIORITY_MAX
from domain.model.selectors import AffinityTerm
from domain.model.validation import key_path
from domain.plugins.spread_constraints import HOSTNAME
from services.api.caller import AGENT, Caller
from services.api.explanation import decision_of
from services.codec.envelope import KINDS, NAMESPACED_KINDS
from services.codec.gateway import Outgoing
from services.ports.store import Grant, Store

BINDING = "Pod/binding"
"""The grant to say by ``spec.nodeName`` that a pod runs on a node where berth did not place it, and by its
annotation which devices it has there."""

PRIORITY = "Pod/priority"
"""The grant to ask for any priority, those that Kubernetes keeps for the system included."""

ANTI_AFFINITY = "Pod/anti-affinity"
"""The grant to keep pods of other namespaces off more than a node: off a rack, a zone, the cluster."""

EVICTION = "Pod/eviction"
"""The grant of an agent to say that a pod has failed that is placed on its node."""

GRANTS = (*KINDS, BINDING, PRIORITY, ANTI_AFFINITY)
"""What ``kinds`` of a key may name."""

OF_TEAMS = frozenset(NAMESPACED_KINDS)
OF_CLUSTER = frozenset(KINDS) - OF_TEAMS
SENT_BY: Mapping[str, frozenset[str]] = {
    "producer": OF_TEAMS,
    "operator": OF_CLUSTER | {BINDING, PRIORITY},
    "auditor": frozenset(),
    AGENT: frozenset({"NodeUsage", "NodeAction", EVICTION}),
    "admin": frozenset(GRANTS),
}
"""What each role may send."""

_SHUNS = "object.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_DEVICES = key_path("object.metadata.annotations", DEVICES_KEY)
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


def priority_max(grant: Grant) -> int | None:
    """Return the highest priority that the pods of a key may ask for; None: any, or the key sends no pods.

    A key that is limited to namespaces or to priority classes has 0, where it does not say another.
    """
    sends = sent_by(grant.roles, grant.kinds, everywhere=grant.namespaces is None)
    if PRIORITY in sends or "Pod" not in sends:
        return None
    if grant.priority_max is not None:
        return grant.priority_max
    return USER_PRIORITY_MAX if grant.namespaces is None and grant.priority_classes is None else 0


class Scope:
    """What one caller may send."""

    def __init__(self, caller: Caller) -> None:
        self._who = "this caller" if caller.name is None else f"the key {caller.name}"
        self._namespaces = caller.namespaces
        self._sends = sent_by(caller.roles, caller.kinds, everywhere=caller.namespaces is None)
        self._priority_max = None if caller.grant is None else priority_max(caller.grant)
        self._classes = None if caller.grant is None else _classes(caller.grant)
        self._node = caller.node

    def check(self, event: Outgoing) -> None:
        """Raise ``FieldError`` if the caller may not send this event; it names what is allowed."""
        if self._node is not None and event.kind == "Pod":
            self._check_eviction(event, self._node)
            return
        if event.kind not in self._sends:
            allowed = ", ".join(each for each in KINDS if each in self._sends) or "nothing"
            limited = "" if self._namespaces is None else f", and only in {_listed(self._namespaces)}"
            message = f"{self._who} may not send a {event.kind}; it may send {allowed}{limited}"
            raise FieldError("object.kind", message)
        if self._node is not None and event.entry.key != self._node.encode():
            message = f"{self._who} may send what is of {self._node} alone"
            raise FieldError("object.metadata.name", message)
        if self._namespaces is not None and event.namespace not in self._namespaces:
            message = (
                f"{self._who} may not send to {event.namespace}; it may send to {_listed(self._namespaces)}"
            )
            raise FieldError("object.metadata.namespace", message)
        pod = event.event.pod if isinstance(event.event, BindFailed) else event.event
        if isinstance(pod, PodUpserted):
            self._check_priority(pod)
            self._check_terms(pod)

    def _check_eviction(self, event: Outgoing, node: str) -> None:
        """Refuse all that an agent says of pods but that one of its node has failed."""
        pod = event.event.pod if isinstance(event.event, PodUpserted) else None
        if pod is None or _phase_of(event) != "Failed":
            told = f"{self._who} may say of a pod that it has failed, and nothing else"
            raise FieldError("object.status.phase", told)
        if pod.node_name != node:
            raise FieldError("object.spec.nodeName", f"{self._who} may end pods of {node} alone")

    def _check_priority(self, event: PodUpserted) -> None:
        """Refuse a priority above the key's, by number or by class; of a class only the name counts."""
        most, named, asked = self._priority_max, event.priority_class, event.pod.template.priority
        if most is None:
            return
        if named:
            if self._classes is None and named.startswith(SYSTEM_PREFIX):
                told = f"{self._who} may not ask for a priority of the system; a key with {PRIORITY} may"
                raise FieldError("object.spec.priorityClassName", told)
            if self._classes is not None and named not in self._classes:
                allowed = _listed(self._classes) or "none"
                told = f"{self._who} may not name the priority class {named}; it may name {allowed}"
                remedy = f"a key whose priority_classes have {named} may"
                raise FieldError("object.spec.priorityClassName", f"{told}; {remedy}")
        elif named is not None and most < 0:
            told = f"is missing, so that the default class decides; {self._who} may ask for {most} and less"
            raise FieldError("object.spec.priority", told)
        elif named is None and asked > most:
            told = f"{self._who} may not ask for priority {asked}; it may ask for {most} and less"
            remedy = PRIORITY if asked > USER_PRIORITY_MAX else f"priority_max {asked}"
            raise FieldError("object.spec.priority", f"{told}; a key with {remedy} may")

    def _check_terms(self, event: PodUpserted) -> None:
        """Refuse required anti-affinity by which a pod keeps others' pods off more than its node."""
        shunned = event.pod.template.pod_anti_affinity
        if self._namespaces is None or ANTI_AFFINITY in self._sends or shunned is None:
            return
        for index, term in enumerate(shunned.required):
            field = _reaches(term, self._namespaces)
            if field and term.topology_key != HOSTNAME:
                told = f"{self._who} may not keep pods beyond {_listed(self._namespaces)} away by"
                remedy = f"give the topologyKey {HOSTNAME}, or use a key with {ANTI_AFFINITY}"
                raise FieldError(f"{_SHUNS}[{index}].{field}", f"{told} {term.topology_key}; {remedy}")

    async def foreign_bindings(self, store: Store, events: Mapping[int, Outgoing]) -> dict[int, FieldError]:
        """Return the pods that the caller may not bind: node or devices are not those that they got.

        Of an agent, they are the pods that it may not end: those that are not placed on its node.
        """
        if BINDING in self._sends:
            return {}
        pods = {
            at: each.event.pod
            for at, each in events.items()
            if isinstance(each.event, PodUpserted)
            and each.event.pod.node_name
            and (self._node is not None or not each.event.pod.finished)
        }
        placed = await _placements(store, sorted({pod.key for pod in pods.values()})) if pods else {}
        foreign = {at: self._foreign(pod, placed.get(pod.key)) for at, pod in pods.items()}
        return {at: error for at, error in foreign.items() if error is not None}

    def _foreign(self, pod: PodSpec, given: _Given | None) -> FieldError | None:
        if self._node is not None:
            is_there = given is not None and (given.uid, given.node) == (pod.uid, self._node)
            told = f"{self._who} may not end {pod.key}: it is not placed on {self._node}, or has another uid"
            return None if is_there else FieldError("object.metadata.uid", told)
        remedy = f"or use a key with {BINDING}"
        if given is None or (given.uid, given.node) != (pod.uid, pod.node_name):
            told = f"{self._who} may not bind a pod, and {pod.key} was not placed on {pod.node_name}"
            return FieldError("object.spec.nodeName", f"{told}; leave nodeName out, {remedy}")
        if pod.devices and pod.devices != given.devices:
            told = f"{self._who} may not say which devices a pod has; {pod.key} was given "
            told += " and ".join(map(str, given.devices)) or "none"
            return FieldError(_DEVICES, f"{told}; leave the annotation out, {remedy}")
        return None


class _Status(msgspec.Struct):
    phase: str | None = None


class _Object(msgspec.Struct):
    status: _Status | None = None


class _Event(msgspec.Struct):
    object: _Object


def _phase_of(event: Outgoing) -> str | None:
    """Return the phase of a pod, as its record has it."""
    status = msgspec.json.decode(event.entry.value or b"", type=_Event).object.status
    return None if status is None else status.phase


def _classes(grant: Grant) -> frozenset[str] | None:
    """Return the priority classes that pods of a key may name; None: any but those of the system."""
    if grant.priority_classes is None and grant.priority_max is None and grant.namespaces is None:
        return None
    return frozenset(grant.priority_classes or ())


def _reaches(term: AffinityTerm, own: Collection[str]) -> str:
    """Return the field by which a term looks at namespaces that are not among these, "" where none does."""
    if not set(term.namespaces) <= set(own):
        return "namespaces"
    selector = term.namespace_selector
    if selector is None or any(
        (each.key, each.operator) == (NAME_LABEL, "In") and set(each.values) <= set(own)
        for each in selector.requirements
    ):
        return ""
    return "namespaceSelector"


class _Given(NamedTuple):
    """What a pod was given, as the last decision about it says."""

    uid: str
    node: str | None
    devices: tuple[int, ...]


async def _placements(store: Store, pods: Sequence[str]) -> dict[str, _Given]:
    """Return what the pods were given whose last decision holds a node."""
    decided = [decision_of(row, store.seen) for row in await store.latest_decisions(pods)]
    return {
        f"{each.pod.namespace}/{each.pod.name}": _Given(each.pod.uid, each.node, tuple(each.devices))
        for each in decided
        if each.outcome in _HOLDS
    }


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
