"""Which topology spread constraints hold for a pod: its own, or the profile's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from domain.manifests.between_pods import WireSpread, read_spreads
from domain.manifests.objects import convert_manifest
from domain.model.errors import FieldError
from domain.model.selectors import LabelRequirement, LabelSelector, SpreadConstraint
from domain.plugins.arguments import Arguments
from domain.plugins.counting import CounterSpec, Eligible, Incoming
from domain.plugins.weighers import Match, Weigher

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

_SYSTEM, _LIST = "System", "List"
_SYSTEM_DEFAULTS = (
    SpreadConstraint(topology_key=HOSTNAME, max_skew=3, hard=False),
    SpreadConstraint(topology_key=ZONE, max_skew=5, hard=False),
)
_DEFAULT_FIELDS = (
    "maxSkew",
    "topologyKey",
    "whenUnsatisfiable",
    "minDomains",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
)
_REPLICATION_CONTROLLER = "ReplicationController"
_OWNERS = (_REPLICATION_CONTROLLER, "ReplicaSet", "StatefulSet")


class Constraint(NamedTuple):
    """A constraint, and the pods that it counts; None: it counts none, not even the pod itself."""

    spread: SpreadConstraint
    match: Match | None


class Constraints(NamedTuple):
    """The hard or the soft constraints of a pod.

    ``requires_all``: a node without one of the keys has no score, and its pods do not count.
    """

    items: list[Constraint]
    requires_all: bool

    @property
    def keys(self) -> tuple[str, ...]:
        """All topology keys, sorted."""
        return tuple(sorted({each.spread.topology_key for each in self.items}))


class SpreadDefaults:
    """The arguments ``defaultConstraints`` and ``defaultingType``.

    Default constraints hold for pods without any of their own. They count the pods that every Service of the
    pod's namespace selects that selects the pod, and that the ReplicationController, ReplicaSet or
    StatefulSet selects that made it. Where that object is not known, they count the pods with the same
    controller. Where nothing selects the pod, there are none.

    Source: kube-scheduler plugin PodTopologySpread (the rule for unknown objects is berth's own).
    """

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("defaultConstraints", "defaultingType"))
        items = given.items("defaultConstraints")
        self._requires_all = given.choice("defaultingType", (_SYSTEM, _LIST)) == _LIST
        if items and not self._requires_all:
            raise FieldError(
                given.at("defaultingType"), f"is {_SYSTEM}; allowed with defaultConstraints is {_LIST}"
            )
        for at, item in items:
            Arguments(item, at, _DEFAULT_FIELDS)
        wires = [convert_manifest(item, WireSpread, at) for at, item in items]
        at = given.at("defaultConstraints")
        self._constraints = read_spreads(wires, {}, at) if self._requires_all else _SYSTEM_DEFAULTS

    def constraints(self, pod: Incoming, *, hard: bool) -> Constraints:
        """Return the constraints of a pod that are hard (``DoNotSchedule``), or those that are not."""
        own = pod.template.spread
        if own:
            found = [Constraint(each, _match(each.selector, pod)) for each in own if each.hard == hard]
            return Constraints(found, True)
        spreads = [each for each in self._constraints if each.hard == hard]
        match = _default_match(pod) if spreads else None
        found = [] if match is None else [Constraint(each, match) for each in spreads]
        return Constraints(found, self._requires_all)


def counter_of(
    constraint: Constraint,
    pod: Incoming,
    keys: tuple[str, ...],
    *,
    by_row: bool = False,
    missing_is_empty: bool = False,
) -> CounterSpec:
    """Return the counter of a constraint, on the nodes that have all ``keys`` and that its policies include.

    With ``by_row`` each node counts its own pods, whatever the policies.
    """
    spread, match = constraint
    # A selector without requirements matches the pod itself, and yet counts no other.
    counts = match is not None and (match.selector.requirements or match.controller_uid)
    weigher = Weigher(matches=(((match,), 1),) if counts and match else (), with_terminating=False)
    if by_row:
        return CounterSpec(spread.topology_key, weigher, by_row=True)
    template, affinity = pod.template, pod.template.node_affinity
    eligible = Eligible(
        keys=tuple(key for key in keys if key != spread.topology_key),
        node_selector=tuple(sorted(template.node_selector.items())) if spread.honours_affinity else (),
        required=affinity.required if affinity is not None and spread.honours_affinity else None,
        tolerations=template.tolerations if spread.honours_taints else None,
    )
    counted_on = eligible if eligible != Eligible() else None
    return CounterSpec(spread.topology_key, weigher, counted_on, missing_is_empty=missing_is_empty)


def _match(selector: LabelSelector | None, pod: Incoming, controller_uid: str = "") -> Match | None:
    if selector is None:
        return None
    return Match(selector=selector, namespaces=(pod.namespace,), controller_uid=controller_uid)


def _default_match(pod: Incoming) -> Match | None:
    """Return the pods that default constraints count, None where nothing selects the pod."""
    found: dict[LabelRequirement, None] = {}
    for service in pod.pods.services(pod.namespace):
        if service.matches(pod.labels):
            found.update(dict.fromkeys(service.requirements))
    controller, uid = pod.controller, ""
    if controller is not None and controller.kind in _OWNERS:
        owner = pod.pods.owner(pod.namespace, controller)
        if owner is None:
            uid = controller.uid
        else:
            if controller.kind == _REPLICATION_CONTROLLER:  # its selector need not match the pod, and wins
                keys = {each.key for each in owner.requirements}
                found = dict.fromkeys(each for each in found if each.key not in keys)
            found.update(dict.fromkeys(owner.requirements))
    if not found and not uid:
        return None
    return _match(LabelSelector(tuple(sorted(found))), pod, uid)
