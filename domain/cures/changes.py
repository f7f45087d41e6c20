"""The changes that may cure a waiting pod, each of which says itself what it makes of a pod or of a node."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, islice
from typing import get_args

import msgspec

from domain.model.nodes import NodeSpec, Taint
from domain.model.pods import HostPort, NodeAffinity, NodeSelectorTerm, PodTemplate, Requirement, Toleration

HOSTNAME = "kubernetes.io/hostname"
OF_NODES = "node.kubernetes.io/"
"""Taints with this prefix say how a node is: they go when it is well, so no pod has to tolerate them."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that somebody may change. What is not changed by it is returned as it is."""

    def of_template(self, template: PodTemplate) -> PodTemplate:
        """Return what the change makes of the group's template."""
        return template

    def of_node(self, spec: NodeSpec) -> NodeSpec:
        """Return what the change makes of a node."""
        return spec

    @property
    def size(self) -> int:
        """How much it changes, compared with changes of the same kind."""
        return 1


class RepairNode(Change, frozen=True, kw_only=True, tag="repair-node"):
    """A node is uncordoned, and well again: the taints go that say how it is."""

    node: str
    cordoned: bool
    taints: tuple[Taint, ...] = ()

    def of_node(self, spec: NodeSpec) -> NodeSpec:
        """See ``Change``."""
        if spec.name != self.node:
            return spec
        left = tuple(each for each in spec.taints if each not in self.taints)
        return msgspec.structs.replace(spec, taints=left, unschedulable=False)

    @property
    def size(self) -> int:
        """See ``Change``."""
        return self.cordoned + len(self.taints)


class LiftGates(Change, frozen=True, kw_only=True, tag="lift-gates"):
    """The scheduling gates of the pods are lifted."""

    gates: tuple[str, ...]

    def of_template(self, template: PodTemplate) -> PodTemplate:
        """See ``Change``."""
        return msgspec.structs.replace(template, gates=())

    @property
    def size(self) -> int:
        """See ``Change``."""
        return len(self.gates)


class Tolerate(Change, frozen=True, kw_only=True, tag="tolerate"):
    """The pods tolerate some taints."""

    taints: tuple[Taint, ...]

    def of_template(self, template: PodTemplate) -> PodTemplate:
        """See ``Change``."""
        added = (Toleration(each.key, "Equal", each.value, each.effect) for each in self.taints)
        return msgspec.structs.replace(template, tolerations=(*template.tolerations, *added))

    @property
    def size(self) -> int:
        """See ``Change``."""
        return len(self.taints)


class DropSelector(Change, frozen=True, kw_only=True, tag="drop-selector"):
    """The pods select no node by one label any more. ``excluded_count`` nodes do not have it."""

    key: str
    value: str
    excluded_count: int

    def of_template(self, template: PodTemplate) -> PodTemplate:
        """See ``Change``."""
        left = {key: value for key, value in template.node_selector.items() if key != self.key}
        return msgspec.structs.replace(template, node_selector=left)


class DropRequirement(Change, frozen=True, kw_only=True, tag="drop-requirement"):
    """A term of the required node affinity asks for one thing less; an empty term goes with all others.

    ``term`` is its place. ``excluded_count`` nodes do not meet the requirement, which is one of
    ``matchFields`` where ``is_field``.
    """

    term: int
    requirement: Requirement
    is_field: bool
    excluded_count: int

    def of_template(self, template: PodTemplate) -> PodTemplate:
        """See ``Change``."""
        affinity = template.node_affinity
        assert affinity is not None
        assert affinity.required is not None
        terms = list(affinity.required)
        term = terms[self.term]
        name = "match_fields" if self.is_field else "match_expressions"
        left = tuple(each for each in getattr(term, name) if each != self.requirement)
        terms[self.term] = msgspec.structs.replace(term, **{name: left})
        required = None if terms[self.term] == NodeSelectorTerm() else tuple(terms)
        changed: NodeAffinity | None = msgspec.structs.replace(affinity, required=required)
        return msgspec.structs.replace(template, node_affinity=changed)


class DropPort(Change, frozen=True, kw_only=True, tag="drop-port"):
    """The pods take one port of their node less."""

    port: HostPort

    def of_template(self, template: PodTemplate) -> PodTemplate:
        """See ``Change``."""
        left = tuple(each for each in template.host_ports if each != self.port)
        return msgspec.structs.replace(template, host_ports=left)


class RelaxSpread(Change, frozen=True, kw_only=True, tag="relax-spread"):
    """A topology spread constraint, at place ``at``, lets domains differ by more.

    ``max_skew`` is the smallest that was found to do, None: the constraint has to become ``ScheduleAnyway``.
    """

    at: int
    topology_key: str
    max_skew: int | None

    def of_template(self, template: PodTemplate) -> PodTemplate:
        """See ``Change``."""
        constraints = list(template.spread)
        of = constraints[self.at]
        changed = {"hard": False, "min_domains": 1} if self.max_skew is None else {"max_skew": self.max_skew}
        constraints[self.at] = msgspec.structs.replace(of, **changed)
        return msgspec.structs.replace(template, spread=tuple(constraints))

    @property
    def size(self) -> int:
        """See ``Change``."""
        return 1 << 30 if self.max_skew is None else self.max_skew


class DropTerm(Change, frozen=True, kw_only=True, tag="drop-term"):
    """A required term of the pods' affinity to other pods goes, or (``is_anti``) of their anti-affinity."""

    is_anti: bool
    at: int
    topology_key: str

    def of_template(self, template: PodTemplate) -> PodTemplate:
        """See ``Change``."""
        name = "pod_anti_affinity" if self.is_anti else "pod_affinity"
        affinity = getattr(template, name)
        required = affinity.required[: self.at] + affinity.required[self.at + 1 :]
        changed = msgspec.structs.replace(affinity, required=required)
        is_empty = not (changed.required or changed.preferred)
        return msgspec.structs.replace(template, **{name: None if is_empty else changed})


class MoreRoom(Change, frozen=True, kw_only=True, tag="more-room"):
    """One node has more of some resources, in their canonical units; ``zone`` is its zone, "" if it has none.

    It is the same room, whether the node grows, or what is on it asks for less.
    """

    node: str
    zone: str
    amounts: dict[str, int]
    part: int  # of what a pod asks for, in thousandths, summed over the resources

    def of_node(self, spec: NodeSpec) -> NodeSpec:
        """See ``Change``."""
        if spec.name != self.node:
            return spec
        more = {name: spec.allocatable.get(name, 0) + amount for name, amount in self.amounts.items()}
        return msgspec.structs.replace(spec, allocatable={**spec.allocatable, **more})

    @property
    def size(self) -> int:
        """See ``Change``."""
        return self.part


class Leave(Change, frozen=True, kw_only=True, tag="leave"):
    """Pods (keys) of a priority below ``below`` leave a node, "": several, for a gang.

    ``budgets`` that count them do not let all of them go now.
    """

    node: str
    pods: tuple[str, ...]
    below: int
    budgets: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """See ``Change``."""
        return len(self.pods) + (1 << 20 if self.budgets else 0)


class RaisePriority(Change, frozen=True, kw_only=True, tag="raise-priority"):
    """The pods have a higher priority: then ``victims_count`` pods of lower priority would leave in all.

    ``node`` is where all of these are; "": they are on several.
    """

    priority: int
    node: str
    victims_count: int

    def of_template(self, template: PodTemplate) -> PodTemplate:
        """See ``Change``."""
        return msgspec.structs.replace(template, priority=self.priority, priority_class="")

    @property
    def size(self) -> int:
        """See ``Change``."""
        return self.victims_count


class SmallerGang(Change, frozen=True, kw_only=True, tag="smaller-gang"):
    """The PodGroup is content with fewer pods; ``before`` is what it asks for now."""

    gang: str
    min_member: int
    before: int

    @property
    def size(self) -> int:
        """See ``Change``."""
        return self.before - self.min_member


class MoreNodes(Change, frozen=True, kw_only=True, tag="more-nodes"):
    """So many more nodes come as one that is there, when it is well: with its labels, but for the name."""

    like: str
    count: int = 1

    @property
    def size(self) -> int:
        """See ``Change``."""
        return self.count

    def made(self, of: NodeSpec, taken: Mapping[str, object]) -> list[NodeSpec]:
        """Return the nodes, whole and empty, under names that none has."""
        taints = tuple(each for each in of.taints if not each.key.startswith(OF_NODES))
        like = msgspec.structs.replace(of, unschedulable=False, taints=taints)
        names = (f"{of.name}-more-{number}" for number in count(1))
        return [_named(like, name) for name in islice((n for n in names if n not in taken), self.count)]


def _named(node: NodeSpec, name: str) -> NodeSpec:
    labels = node.labels if HOSTNAME not in node.labels else {**node.labels, HOSTNAME: name}
    return msgspec.structs.replace(node, name=name, uid=f"uid-of-{name}", labels=labels)


AnyChange = (
    RepairNode
    | LiftGates
    | SmallerGang
    | Tolerate
    | DropSelector
    | DropRequirement
    | DropPort
    | RelaxSpread
    | DropTerm
    | MoreRoom
    | Leave
    | RaisePriority
    | MoreNodes
)
ANY: tuple[type[Change], ...] = get_args(AnyChange)
"""Every kind of change: of two that change as much, the one that stands first here comes first."""


class Cure(msgspec.Struct, frozen=True, kw_only=True):
    """Changes, at most two, with which a dry run placed pods of the group.

    ``pods_count`` of ``counted_count`` copies of the pod were placed: as many as wait, or as were tried at
    most. Of a gang they are its members.
    """

    changes: tuple[AnyChange, ...]
    pods_count: int
    counted_count: int

    @property
    def cures_all(self) -> bool:
        """Whether every pod was placed that was tried."""
        return self.pods_count == self.counted_count

    @property
    def order(self) -> tuple[object, ...]:
        """What comes first is smaller: cures of all pods, then fewer changes, then smaller ones."""
        kinds = tuple(ANY.index(type(each)) for each in self.changes)
        return (not self.cures_all, len(self.changes), kinds, tuple(each.size for each in self.changes))


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found.

    Attributes
    ----------
    reasons : dict
        Nodes per reason code of the first filter that refuses the pod now.
    unresolvable : bool
        Whether no node could take it, whatever pods left.
    held_by : tuple of str
        Reason codes for which no node is looked at.
    fits_on : str
        The node that would take the pod as things stand: nothing needs a cure. "": none would.
    nominated_on : str
        The node that is set aside for it, while others leave. "": none is.
    cures : list of Cure
        In order. Each was placed by a dry run.
    dry_runs_count : int
        How many of these were made.
    reached : bool
        Whether the search came to its end: False where its budget ended first.
    """

    reasons: dict[str, int]
    unresolvable: bool = False
    held_by: tuple[str, ...] = ()
    fits_on: str = ""
    nominated_on: str = ""
    cures: list[Cure] = []
    dry_runs_count: int = 0
    reached: bool = True
