"""The plain oracle: every pod looks at every node from scratch; no numpy, no cache, no equivalence.

It is written from the documented rules, not from the code that it checks, and keeps a cluster of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from domain.model.nodes import NodeSpec, Taint
from domain.model.pods import HostPort, NodeSelectorTerm, PodSpec, PodTemplate, Requirement, Toleration
from domain.model.profiles import PluginUse, Profile

TOP = 5
REASON_LINES = 32
MASK = (1 << 64) - 1
REPELLING = ("NoSchedule", "NoExecute")
CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
ANY_ADDRESS = ("0.0.0.0", "")


@dataclass
class OracleNode:
    """A node that exists, and how many joined before it (from 1)."""

    spec: NodeSpec
    ordinal: int


@dataclass
class OraclePod:
    """A pod that exists; it waits while ``node`` is empty, and is new until it was tried once."""

    spec: PodSpec
    arrival: int
    node: str = ""
    tried: bool = False


@dataclass
class Refusal:
    """Why a node will not do; ``order`` sorts the lines of a reason table."""

    code: str
    unresolvable: bool
    order: tuple[int, int, bool]


@dataclass
class Look:
    """What one pod saw at one attempt, and where it went ("": nowhere)."""

    pod: PodSpec
    first: bool  # the pod was never tried before
    reasons: dict[str, int]
    unresolvable_count: int
    hopeless: bool  # not even evicting every other pod would help
    candidates: list[tuple[str, float, dict[str, float]]] = field(default_factory=list)
    node: str = ""
    score: float = 0.0


class Oracle:
    """A cluster and the one obvious way to place pods on it."""

    def __init__(self, profiles: Mapping[str, Profile], *, seed: int) -> None:
        self.profiles = profiles
        self.seed = seed
        self.nodes: dict[str, OracleNode] = {}
        self.pods: dict[str, OraclePod] = {}
        self.ordinals: dict[str, int] = {}
        self.arrivals = 0
        self._on: dict[str, list[PodSpec]] = {}

    # ------------------------------------------------------------------------------------------ events

    def put_node(self, spec: NodeSpec) -> None:
        """Add or change a node."""
        ordinal = self.ordinals.setdefault(spec.name, len(self.ordinals) + 1)
        self.nodes[spec.name] = OracleNode(spec, ordinal)

    def drop_node(self, name: str) -> None:
        """Remove a node; its pods keep counting on it, should it come back."""
        self.nodes.pop(name, None)

    def put_pod(self, spec: PodSpec) -> None:
        """Add or change a pod."""
        known = self.pods.get(spec.key)
        if spec.finished:
            self.pods.pop(spec.key, None)
        elif known is None or (
            not known.node and not spec.node_name and known.spec.template != spec.template
        ):
            self.arrivals += 1
            self.pods[spec.key] = OraclePod(spec, self.arrivals, spec.node_name)
        else:
            known.spec = spec
            known.node = spec.node_name or known.node

    def drop_pod(self, key: str) -> None:
        """Remove a pod."""
        self.pods.pop(key, None)

    # ------------------------------------------------------------------------------------------- cycle

    def cycle(self) -> list[Look]:
        """Try every waiting pod, one after another."""
        waiting = [pod for pod in self.pods.values() if not pod.node]
        waiting.sort(key=lambda pod: (-pod.spec.template.priority, pod.arrival))
        looks = []
        for pod in waiting:
            look = self._look(pod)
            pod.node, pod.tried = look.node, True
            looks.append(look)
        return looks

    def _look(self, pod: OraclePod) -> Look:
        template, signature = pod.spec.template, pod.spec.signature
        held = self._held_by(template)
        if held:
            count = len(self.nodes)
            return Look(pod.spec, not pod.tried, dict.fromkeys(held, count), count, True)
        if not self.nodes:
            return Look(pod.spec, not pod.tried, {"no-nodes": 0}, 0, False)
        profile = self.profiles[template.profile]
        self._on = {name: [] for name in self.nodes}
        for other in self.pods.values():
            self._on.setdefault(other.node, []).append(other.spec)
        refusals: list[Refusal] = []
        feasible: list[tuple[float, int, str]] = []
        for name, node in self.nodes.items():
            refusal = self._filter(profile, template, node)
            if refusal is None:
                feasible.append((-self._score(profile, template, node), self._tie(name, signature), name))
            else:
                refusals.append(refusal)
        feasible.sort()
        reasons, hopeless = count_reasons(refusals)
        look = Look(pod.spec, not pod.tried, reasons, hopeless, hopeless == len(self.nodes))
        for score, _, name in feasible[:TOP]:
            look.candidates.append((name, -score, self._parts(profile, template, self.nodes[name])))
        if feasible:
            look.node, look.score = look.candidates[0][:2]
        return look

    def _held_by(self, template: PodTemplate) -> list[str]:
        if template.profile not in self.profiles:
            return [f"unknown-profile:{template.profile}"]
        gates = [f"scheduling-gated:{gate}" for gate in template.gates]
        return gates + [f"unsupported:{what}" for what in template.unsupported]

    def _tie(self, name: str, signature: bytes) -> int:
        """Of equal scores the smallest wins: the finaliser of splitmix64 over hash(name) xor hash(group)."""
        key = self.seed.to_bytes(8, "big", signed=True)
        of_node = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8, key=key).digest(), "big")
        of_group = int.from_bytes(hashlib.blake2b(signature, digest_size=8).digest(), "big")
        value = of_node ^ of_group
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
        value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
        return value ^ value >> 31

    # ----------------------------------------------------------------------------------------- filters

    def _filter(self, profile: Profile, template: PodTemplate, node: OracleNode) -> Refusal | None:
        """Return what the first filter says that refuses the node."""
        for position, use in enumerate(profile.filters):
            refusal = self._ask(use.name, position, template, node.spec)
            if refusal is not None:
                return refusal
        return None

    def _ask(self, filter_: str, position: int, template: PodTemplate, node: NodeSpec) -> Refusal | None:
        static = (0, position, False)
        match filter_:
            case "NodeUnschedulable":
                if node.unschedulable and not tolerated(CORDON, template.tolerations):
                    return Refusal("node-unschedulable", True, static)
            case "NodeName":
                if template.node_name and template.node_name != node.name:
                    return Refusal("node-name", True, static)
            case "TaintToleration":
                repelling = [taint for taint in node.taints if taint.effect in REPELLING]
                if not all(tolerated(taint, template.tolerations) for taint in repelling):
                    return Refusal("untolerated-taint", True, static)
            case "NodeAffinity":
                if not selects(template, node):
                    return Refusal("node-affinity", True, static)
            case "NodePorts":
                held = [port for pod in self._on[node.name] for port in pod.template.host_ports]
                if any(collide(a, b) for a in template.host_ports for b in held):
                    return Refusal("host-port-conflict", False, (1, 0, False))
            case "NodeResourcesFit":
                return self._fit(template, node)
            case _:
                raise AssertionError(filter_)
        return None

    def _fit(self, template: PodTemplate, node: NodeSpec) -> Refusal | None:
        first = [name for name in ("cpu", "memory", "ephemeral-storage") if name in template.requests]
        names = ["pods", *first, *sorted(set(template.requests) - set(first))]
        short, bits, hopeless = [], 0, False
        for i, name in enumerate(names):
            asked = 1 if name == "pods" else template.requests[name]
            capacity = node.allocatable.get(name, 0)
            if asked > capacity - self._requested(node.name, name):
                short.append("too-many-pods" if name == "pods" else f"insufficient:{name}")
                bits += 1 << i
                hopeless = hopeless or asked > capacity
        return Refusal(",".join(short), hopeless, (2, bits, hopeless)) if short else None

    def _requested(self, node: str, resource: str) -> int:
        on_it = self._on[node]
        return len(on_it) if resource == "pods" else sum(p.template.requests.get(resource, 0) for p in on_it)

    # ------------------------------------------------------------------------------------------ scores

    def _score(self, profile: Profile, template: PodTemplate, node: OracleNode) -> float:
        """Sum what depends on the spec alone first, then the rest, each in the profile's order."""
        total = 0.0
        for use in sorted(profile.scores, key=lambda use: use.name != "FirstFit"):
            total += use.weight * self._rate(use, template, node)
        return total

    def _parts(self, profile: Profile, template: PodTemplate, node: OracleNode) -> dict[str, float]:
        return {use.name: self._rate(use, template, node) for use in profile.scores}

    def _rate(self, use: PluginUse, template: PodTemplate, node: OracleNode) -> float:
        if use.name == "FirstFit":
            return 100.0 / node.ordinal
        strategy = use.args["scoringStrategy"]
        resources = strategy.get("resources") or [{"name": "cpu"}, {"name": "memory"}]
        total = weights = 0.0
        for resource in resources:
            name, weight = resource["name"], float(resource.get("weight", 1))
            if "/" in name and not template.requests.get(name):
                continue
            capacity = node.spec.allocatable.get(name, 0)
            if capacity == 0:
                continue
            used = scoring(template, name) + sum(
                scoring(pod.template, name) for pod in self._on[node.spec.name]
            )
            share = max(capacity - used, 0) if strategy["type"] == "LeastAllocated" else min(used, capacity)
            total += weight * (share * 100.0 / capacity)
            weights += weight
        return total / weights if weights else 0.0


def scoring(template: PodTemplate, resource: str) -> int:
    """Return what a pod counts in a score: for cpu and memory the non-zero request."""
    match resource:
        case "cpu":
            return template.scoring_cpu_milli
        case "memory":
            return template.scoring_memory_bytes
        case _:
            return template.requests.get(resource, 0)


def count_reasons(refusals: list[Refusal]) -> tuple[dict[str, int], int]:
    """Count nodes per code and the unresolvable ones; lines beyond the table's end join its last line."""
    lines: dict[tuple[int, int, bool], tuple[Refusal, int]] = {}
    for refusal in refusals:
        lines[refusal.order] = (refusal, lines.get(refusal.order, (refusal, 0))[1] + 1)
    table = [lines[order] for order in sorted(lines)]
    counts: dict[str, int] = {}
    hopeless = 0
    for i, (_, count) in enumerate(table):
        refusal = table[min(i, REASON_LINES - 1)][0]
        counts[refusal.code] = counts.get(refusal.code, 0) + count
        hopeless += count if refusal.unresolvable else 0
    return counts, hopeless


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Say whether any toleration covers the taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator == "Equal":
        return toleration.key != "" and toleration.value == taint.value
    theirs, ours = integer(taint.value), integer(toleration.value)
    if theirs is None or ours is None:
        return False
    return theirs < ours if toleration.operator == "Lt" else theirs > ours


def selects(template: PodTemplate, node: NodeSpec) -> bool:
    """Say whether the node selector and the required affinity both match."""
    if any(node.labels.get(key) != value for key, value in template.node_selector.items()):
        return False
    affinity = template.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(_matches(term, node) for term in affinity.required)


def _matches(term: NodeSelectorTerm, node: NodeSpec) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_holds(each, node.labels) for each in term.match_expressions) and all(
        _holds(each, fields) for each in term.match_fields
    )


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    present, value = requirement.key in labels, labels.get(requirement.key, "")
    match requirement.operator:
        case "In":
            return present and value in requirement.values
        case "NotIn":
            return not present or value not in requirement.values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case operator:
            number, bound = integer(value), integer(requirement.values[0])
            if number is None or bound is None:
                return False
            return number > bound if operator == "Gt" else number < bound


def integer(text: str) -> int | None:
    """Read a 64-bit decimal integer as Go's ``strconv.ParseInt`` does."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits or any(c not in "0123456789" for c in digits):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def collide(a: HostPort, b: HostPort) -> bool:
    """Say whether two host ports cannot be held on one node."""
    same_address = a.host_ip == b.host_ip or a.host_ip in ANY_ADDRESS or b.host_ip in ANY_ADDRESS
    return (a.host_port, a.protocol) == (b.host_port, b.protocol) and same_address
