"""The plain oracle: every pod looks at every node from scratch; no numpy, no cache, no equivalence.

It is written from the documented rules, not from the code that it checks, and keeps a cluster of its own.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import groupby

import msgspec

from domain.model.events import (
    ConfigDeleted,
    ConfigUpserted,
    Event,
    NodeDeleted,
    NodeUpserted,
    NodeUsed,
    PodDeleted,
    PodUpserted,
)
from domain.model.limits import reasons_per_cycle_max, usage_window_seconds
from domain.model.nodes import NodeSpec, Taint
from domain.model.pods import PodSpec, PodTemplate
from domain.model.profiles import PluginUse, Profile
from domain.model.usage import Measured, NodeUsage
from tests.oracle import between_pods, devices
from tests.oracle.between_pods import Around, Refused, has_keys, spreads_of
from tests.oracle.rules import collide, may_name, selects, tolerated
from tests.oracle.scoring import Seen, most, rate

TOP = 5
MASK = (1 << 64) - 1
REPELLING = ("NoSchedule", "NoExecute")
CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
DAY_MS = 86_400_000
SETTLE_MS = 60_000
STATIC, LIMIT, RULE, FIT = range(4)
RULES = (
    "topology-spread", "topology-spread-missing-label",
    "pod-affinity", "pod-anti-affinity", "existing-pod-anti-affinity",
)  # fmt: skip
STATIC_SCORES = {
    "FirstFit", "ImageLocality", "LoadVariationRiskBalancing", "NodeAffinity", "NodeResourcesAllocatable",
    "Peaks", "TaintToleration",
}  # fmt: skip
BETWEEN_PODS = {"PodTopologySpread": "spread", "InterPodAffinity": "affinity"}


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
    placed_ms: int = 0  # log time, where it is known
    devices: tuple[int, ...] = ()


@dataclass
class Refusal:
    """The reason why a node refuses a pod; ``order`` sorts the lines of a reason table."""

    code: str
    unresolvable: bool
    order: tuple[int, int, bool]
    is_hopeless: bool = False  # for another reason of the same filter


@dataclass
class Look:
    """What one pod saw at one attempt, and its node ("": none)."""

    pod: PodSpec
    first: bool  # the pod was never tried before
    reasons: dict[str, int]
    unresolvable_count: int
    hopeless: bool  # not even evicting every other pod would help
    candidates: list[tuple[str, float, dict[str, float]]] = field(default_factory=list)
    node: str = ""
    score: float = 0.0
    totals: dict[str, float] = field(default_factory=dict)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    infeasible: dict[str, Refusal] = field(default_factory=dict)


class Oracle:
    """A cluster and the one obvious way to place pods on it."""

    def __init__(self, profiles: Mapping[str, Profile], *, seed: int) -> None:
        self.profiles = profiles
        self.seed = seed
        self.nodes: dict[str, OracleNode] = {}
        self.pods: dict[str, OraclePod] = {}
        self.ordinals: dict[str, int] = {}
        self.arrivals = 0
        self.promised: dict[str, str] = {}  # key of a waiting pod -> the node that is promised to it
        self._on: dict[str, list[OraclePod]] = {}
        self.around = Around()
        self.rules = between_pods
        self._without_keys: set[str] = set()
        self._between: dict[int, Mapping[str, Refused]] = {}  # position of a filter -> nodes that it refuses
        self.home: Collection[str] | None = None  # names of the nodes that are tried first; None: no node is
        self._figures: dict[str, dict[str, tuple[int, Measured]]] = {}  # node -> resource -> when, what
        self._peaks: dict[str, dict[str, dict[int, float]]] = {}  # node -> resource -> day -> highest
        self._measured_at: dict[str, int] = {}

    # ------------------------------------------------------------------------------------------ events

    def take(self, event: Event) -> None:
        """Note what happened."""
        match event:
            case ConfigUpserted() | ConfigDeleted():
                self.around.configure(event)
            case NodeUpserted():
                self.put_node(event.node)
            case NodeDeleted():
                self.drop_node(event.name)
            case PodUpserted():
                self.put_pod(event.pod)
            case PodDeleted():
                self.drop_pod(f"{event.namespace}/{event.name}")
            case NodeUsed():
                self.measure(event.usage)

    def put_node(self, spec: NodeSpec) -> None:
        """Add or change a node."""
        ordinal = self.ordinals.setdefault(spec.name, len(self.ordinals) + 1)
        self.nodes[spec.name] = OracleNode(spec, ordinal)
        for _, pod in sorted(self.pods.items()):
            if pod.node == spec.name:
                self._give_devices(pod)

    def _give_devices(self, pod: OraclePod) -> None:
        """Give a placed pod that has none devices of its node."""
        if pod.node in self.nodes and not pod.devices:
            held = [
                (other.spec.template, other.devices) for other in self.pods.values() if other.node == pod.node
            ]
            free = devices.free_on(self.nodes[pod.node].spec, held)
            pod.devices = pod.spec.devices or devices.pick(free, pod.spec.template)

    def drop_node(self, name: str) -> None:
        """Remove a node; its pods keep counting on it, should it come back."""
        if self.nodes.pop(name, None) is not None:
            for known in (self._figures, self._peaks, self._measured_at):
                known.pop(name, None)

    def measure(self, usage: NodeUsage) -> None:
        """Take a measurement, newer than all before, of a node: figures are those of the latest event."""
        if usage.node not in self.nodes and usage.node in self.ordinals:
            return
        self._measured_at[usage.node] = usage.at_ms
        figures, peaks = self._figures.setdefault(usage.node, {}), self._peaks.setdefault(usage.node, {})
        for resource, measured in usage.window.items():
            figures[resource] = (usage.at_ms, measured)
            if measured.latest is not None:
                of_day = peaks.setdefault(resource, {})
                day = usage.at_ms // DAY_MS
                of_day[day] = max(of_day.get(day, 0.0), measured.latest)

    def is_in_flight(self, pod: OraclePod) -> bool:
        """Say whether the latest measurement of its node does not cover a pod, which had not settled yet."""
        latest_ms = self._measured_at.get(pod.node, 0)
        return not 0 < pod.placed_ms <= latest_ms - SETTLE_MS

    def usage_of(self, node: str) -> dict[str, Measured]:
        """Return what is known of a node's usage as of its latest measurement."""
        now, found = self._measured_at.get(node, 0), {}
        for resource in self._figures.get(node, {}).keys() | self._peaks.get(node, {}).keys():
            at_ms, measured = self._figures[node].get(resource, (-1, Measured()))
            if at_ms <= now - usage_window_seconds * 1000:
                measured = Measured()
            peak = self._peaks[node].get(resource, {}).get(now // DAY_MS - 1)
            found[resource] = msgspec.structs.replace(measured, peak=peak)
        return found

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
            other_ask = devices.wants(known.spec.template) != devices.wants(spec.template)
            if other_ask or (known.node and known.node != (spec.node_name or known.node)):
                known.devices = ()
            if known.node != (spec.node_name or known.node):
                known.placed_ms = 0
            known.spec = spec
            known.node = spec.node_name or known.node
        if spec.key in self.pods:
            self._give_devices(self.pods[spec.key])

    def drop_pod(self, key: str) -> None:
        """Remove a pod."""
        self.pods.pop(key, None)

    # ------------------------------------------------------------------------------------------- cycle

    def cycle(self) -> list[Look]:
        """Try every waiting pod, one after another.

        Where some nodes are home, each priority is tried there first, then on all: pods that found no home
        node, and those whose static scores differ between nodes.
        """
        waiting = [pod for pod in self.pods.values() if not pod.node and pod.spec.key not in self.promised]
        waiting.sort(key=lambda pod: (-pod.spec.template.priority, pod.arrival))
        if not self.home or len(self.home) == len(self.nodes):
            return [self._try(pod) for pod in waiting]
        looks = []
        for _, band in groupby(waiting, key=lambda pod: pod.spec.template.priority):
            pods = list(band)
            at_home = [self._try(pod, self.home) for pod in pods if not self.prefers(pod)]
            looks += [look for look in at_home if look.node]
            looks += [self._try(pod) for pod in pods if not pod.node]
        return looks

    def prefers(self, pod: OraclePod) -> bool:
        """Return whether some static score rates nodes differently, be they feasible or not."""
        profile = self.profiles.get(pod.spec.template.profile)
        if profile is None:
            return False
        every = self._survey(pod)
        static = msgspec.structs.replace(
            profile,
            scores=[
                use for use in profile.scores if use.name in STATIC_SCORES and not use.args.get("inFlight")
            ],
        )
        parts, _ = rate(static, pod.spec.template, every, every, {})
        return any(len(set(of_node.values())) > 1 for of_node in parts.values())

    def _try(self, pod: OraclePod, among: Collection[str] | None = None) -> Look:
        look = self.look(pod, among)
        self.place(pod, look.node)
        pod.tried = pod.tried or among is None or bool(look.node)
        return look

    def place(self, pod: OraclePod, node: str) -> None:
        """Put a waiting pod on a node, where it gets devices; "" leaves it waiting."""
        pod.node = node
        self._give_devices(pod)

    def look(self, pod: OraclePod, among: Collection[str] | None = None) -> Look:
        """Evaluate a waiting pod over all nodes, or over some alone; nothing is changed."""
        template, signature = pod.spec.template, pod.spec.signature
        held = self._held_by(template)
        if held:
            count = len(self.nodes)
            return Look(pod.spec, not pod.tried, dict.fromkeys(held, count), count, True)
        if not self.nodes:
            return Look(pod.spec, not pod.tried, {"no-nodes": 0}, 0, False)
        profile = self.profiles[template.profile]
        promised = self._among_promised(pod)
        every = self._survey(pod)
        refusals: dict[str, Refusal] = {}
        feasible: list[Seen] = []
        hopeless = 0
        for node in every:
            if among is not None and node.spec.name not in among:
                continue
            without = self._asked(profile, template, node)
            among_promised = promised.get(node.spec.name, without)
            found = [each for each in map(first_of, without, among_promised) if each is not None]
            if found:
                refusals[node.spec.name] = found[0]
                both = [each for each in (*without, *among_promised) if each is not None]
                hopeless += any(refusal.unresolvable or refusal.is_hopeless for refusal in both)
            else:
                feasible.append(node)
        allowed = [node.spec for node in feasible]
        between = {
            i: getattr(self.rules, BETWEEN_PODS[use.name] + "_scores")(
                pod.spec, use.args, self.around, allowed
            )
            for i, use in enumerate(profile.scores)
            if use.name in BETWEEN_PODS
        }
        parts, totals = rate(profile, template, every, feasible, between)
        best = sorted((-total, self._tie(name, signature), name) for name, total in totals.items())
        reasons, unresolvable = count_reasons(refusals.values())
        look = Look(pod.spec, not pod.tried, reasons, unresolvable, hopeless == len(self.nodes))
        look.totals, look.parts, look.infeasible = totals, parts, refusals
        for score, _, name in best[:TOP]:
            of_node = {label: scores[name] for label, scores in parts.items()}
            look.candidates.append((name, -score, of_node))
        if best:
            look.node, look.score = look.candidates[0][:2]
        return look

    def _among_promised(self, pod: OraclePod) -> dict[str, list[Refusal | None]]:
        """Return what each filter says of each node if all promised pods of no lower priority were there.

        There is nothing to say where there are none.
        """
        there = [
            self.pods[key]
            for key in self.promised
            if key != pod.spec.key and self.pods[key].spec.template.priority >= pod.spec.template.priority
        ]
        for each in there:
            each.node = self.promised[each.spec.key]
        profile, every = self.profiles[pod.spec.template.profile], self._survey(pod) if there else []
        found = {node.spec.name: self._asked(profile, pod.spec.template, node) for node in every}
        for each in there:
            each.node = ""
        return found

    def passes(self, pod: OraclePod, name: str) -> bool:
        """Say whether every filter lets a pod onto a node as the cluster is."""
        (node,) = (each for each in self._survey(pod) if each.spec.name == name)
        return not self._filter(self.profiles[pod.spec.template.profile], pod.spec.template, node)

    def _survey(self, pod: OraclePod) -> list[Seen]:
        """Return all nodes as a pod sees them, and note what rules between pods refuse."""
        profile = self.profiles[pod.spec.template.profile]
        self._on = {name: [] for name in self.nodes}
        for other in self.pods.values():
            self._on.setdefault(other.node, []).append(other)
        every = [self._seen(name) for name in self.nodes]
        self.around.nodes = [node.spec for node in every]
        self.around.pods = [
            (o.spec, self.nodes[o.node].spec) for o in self.pods.values() if o.node in self.nodes
        ]
        self._between = {
            i: getattr(self.rules, BETWEEN_PODS[use.name] + "_refusals")(pod.spec, use.args, self.around)
            for i, use in enumerate(profile.filters)
            if use.name in BETWEEN_PODS
        }
        self._without_keys = self._lacking(pod.spec, profile)
        return every

    def _seen(self, name: str) -> Seen:
        node, on_it = self.nodes[name], self._on[name]
        return Seen(
            node.spec,
            node.ordinal,
            [pod.spec.template for pod in on_it],
            [pod.spec.template for pod in on_it if self.is_in_flight(pod)],
            self.usage_of(name),
            devices.free_on(node.spec, [(pod.spec.template, pod.devices) for pod in on_it]),
        )

    def _lacking(self, pod: PodSpec, profile: Profile) -> set[str]:
        """Return the nodes that lack a key of a hard spread constraint, whichever refuses them first."""
        uses = [use for use in profile.filters if use.name == "PodTopologySpread"]
        spreads = [each for use in uses for each in spreads_of(pod, use.args, self.around, hard=True)]
        return {name for name, node in self.nodes.items() if not has_keys(spreads, node.spec)}

    def _held_by(self, template: PodTemplate) -> list[str]:
        if template.profile not in self.profiles:
            return [f"unknown-profile:{template.profile}"]
        gates = [f"scheduling-gated:{gate}" for gate in template.gates]
        return gates + list(template.missing) + [f"unsupported:{what}" for what in template.unsupported]

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

    def _filter(self, profile: Profile, template: PodTemplate, node: Seen) -> list[Refusal]:
        """Return the refusals of the node by each filter, in the profile's order."""
        return [refusal for refusal in self._asked(profile, template, node) if refusal is not None]

    def _asked(self, profile: Profile, template: PodTemplate, node: Seen) -> list[Refusal | None]:
        asked = [self._ask(use, i, template, node) for i, use in enumerate(profile.filters)]
        for i, use in enumerate(profile.filters):
            if use.name == "NodeAffinity" and not may_name(template, node.spec):
                asked.insert(0, Refusal("node-affinity", True, (STATIC, i * 100, False)))
        return asked

    def _ask(self, use: PluginUse, position: int, template: PodTemplate, seen: Seen) -> Refusal | None:
        node, static = seen.spec, (STATIC, position * 100, False)
        match use.name:
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
                held = [port for pod in seen.pods for port in pod.host_ports]
                if any(collide(a, b) for a in template.host_ports for b in held):
                    return Refusal("host-port-conflict", False, (RULE, position * 10, False))
            case "NodeResourcesFit":
                return self._fit(template, seen)
            case "PodTopologySpread" | "InterPodAffinity":
                if node.name in self._between[position]:
                    code, unresolvable = self._between[position][node.name]
                    order = (RULE, position * 10 + RULES.index(code), False)
                    return Refusal(code, unresolvable, order, node.name in self._without_keys)
            case "NodeDeclaredFeatures":
                if not all(each in node.declared_features for each in template.features):
                    return Refusal("node-declared-features", True, static)
            case "MasterShare":
                return self._master_share(use.args.get("share", 50), position, template, seen)
            case "MaxMemorySum":
                own, bound = most(template, "memory"), use.args.get("share", 100) * seen.has("memory")
                if (own + sum(most(pod, "memory") for pod in seen.pods)) * 100 > bound:
                    is_hopeless = own * 100 > bound
                    return Refusal("max-memory-sum", is_hopeless, (LIMIT, position * 100, is_hopeless))
            case "PeakUsage" | "ResourceThreshold":
                return self._threshold(use, position, template, seen)
            case _:
                raise AssertionError(use.name)
        return None

    def _master_share(self, share: float, position: int, template: PodTemplate, seen: Seen) -> Refusal | None:
        if template.role != "master":
            return None
        masters = [p for p in self.pods.values() if p.spec.template.role == "master"]
        count = sum(p.spec.template.cluster == template.cluster for p in masters)
        here = sum(pod.role == "master" and pod.cluster == template.cluster for pod in seen.pods)
        if here >= max(1, math.floor(share * count / 100)):
            return Refusal("master-share", False, (RULE, position * 10, False))
        return None

    def _threshold(self, use: PluginUse, position: int, template: PodTemplate, seen: Seen) -> Refusal | None:
        """PeakUsage and ResourceThreshold: what was measured first, then what is requested."""
        peak = use.name == "PeakUsage"
        measured = [each for each in use.args["resources"] if peak or each.get("of") == "measured"]
        for i, each in enumerate(measured):
            name = each["name"]
            percent = seen.usage.get(name, Measured()).peak if peak else seen.percent(name)
            if percent is not None and use.args.get("inFlight") and name in ("cpu", "memory"):
                left = (each["threshold"] - percent) * seen.has(name)
                if seen.expected(name, template) * 100 > left:
                    return Refusal(f"over-threshold-measured:{name}", True, (LIMIT, position * 100 + i, True))
                continue
            if percent is not None and percent > each["threshold"]:
                code = "peak-usage" if peak else "over-threshold-measured"
                return Refusal(f"{code}:{name}", True, (STATIC, position * 100 + i, False))
        requested = [each for each in use.args["resources"] if each not in measured]
        first = len(measured) if use.args.get("inFlight") else 0
        for i, each in enumerate(requested, start=first):
            name, bound = each["name"], each["threshold"] * seen.offers(each["name"])
            own = 1 if name == "pods" else template.requests.get(name, 0)
            if (own + seen.requested(name)) * 100 > bound:
                order = (LIMIT, position * 100 + i, own * 100 > bound)
                return Refusal(f"over-threshold:{name}", own * 100 > bound, order)
        return None

    def _fit(self, template: PodTemplate, node: Seen) -> Refusal | None:
        first = [name for name in ("cpu", "memory", "ephemeral-storage") if name in template.requests]
        names = ["pods", *first, *sorted(set(template.requests) - set(first))]
        short, bits, hopeless = [], 0, False
        for i, name in enumerate(names):
            asked = 1 if name == "pods" else template.requests[name]
            held = [(pod.spec.template, pod.devices) for pod in self._on[node.spec.name]]
            lacks = devices.shortage(name, node.spec, template, held)
            if lacks is not None:
                if lacks[0]:
                    short.append(f"insufficient:{name}")
                    bits += 1 << i
                    hopeless = hopeless or lacks[1]
                continue
            if asked > node.offers(name) - node.requested(name):
                short.append("too-many-pods" if name == "pods" else f"insufficient:{name}")
                bits += 1 << i
                hopeless = hopeless or (name != "pods" and asked > node.offers(name))
        return Refusal(",".join(short), hopeless, (FIT, bits, hopeless)) if short else None


def first_of(without: Refusal | None, among_promised: Refusal | None) -> Refusal | None:
    """Return what a filter says of a node that has to pass it without the promised pods and with them.

    What lacks room lacks it beside all that is promised.
    """
    if among_promised is not None and among_promised.order[0] != RULE:
        return among_promised
    return without or among_promised


def count_reasons(refusals: Collection[Refusal]) -> tuple[dict[str, int], int]:
    """Count nodes per code, and the unresolvable ones. Combinations beyond the limit count as ``others``."""
    lines: dict[tuple[int, bool, int], tuple[Refusal, int]] = {}
    for refusal in refusals:
        kind, which, hopeless = refusal.order
        order = (kind, hopeless, which) if kind == FIT else (kind, False, which * 2 + hopeless)
        lines[order] = (refusal, lines.get(order, (refusal, 0))[1] + 1)
    counts: dict[str, int] = {}
    for i, order in enumerate(sorted(lines)):
        refusal, count = lines[order]
        code = refusal.code if order[0] != FIT or i < reasons_per_cycle_max - 2 else "others"
        counts[code] = counts.get(code, 0) + count
    return counts, sum(refusal.unresolvable for refusal in refusals)


def as_told(told: Mapping[str, int], counted: Mapping[str, int]) -> dict[str, int]:
    """Return counts per reason, where many were told with what was told as ``others``.

    Of a reason that evicting can help on some nodes only, the nodes where it cannot may be among the others.
    """
    if "others" not in told:
        return dict(counted)
    named = {code: min(count, counted.get(code, 0)) for code, count in told.items() if code != "others"}
    assert len(named) >= (reasons_per_cycle_max - 2) // 2
    return named | {"others": sum(counted.values()) - sum(named.values())}
