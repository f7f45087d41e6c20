"""Random clusters whose pods ask for and shun one another, and what happens to them; made from a seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from domain.model.config import Namespace, Selecting
from domain.model.events import (
    ConfigDeleted,
    ConfigUpserted,
    Event,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
)
from domain.model.nodes import NodeImage, NodeSpec, Taint
from domain.model.pods import (
    Controller,
    NodeAffinity,
    NodeSelectorTerm,
    PodSpec,
    PodTemplate,
    PreferredTerm,
    Requirement,
    Toleration,
)
from domain.model.profiles import PluginUse, Profile
from domain.model.selectors import (
    AffinityTerm,
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    SpreadConstraint,
    WeightedAffinityTerm,
)
from tests.oracle.between_pods import HOSTNAME, ZONE
from tests.values import GIB, node, pod, template

RACK, NOWHERE = "rack", "nowhere"
KEYS = (ZONE, ZONE, HOSTNAME, RACK, RACK)
NAMESPACES = ("default", "a", "b", "unknown")
LABELS: Mapping[str, Sequence[str]] = {"app": ("web", "db", "mq"), "tier": ("front", "back"), "x": ("", "1")}
TEAMS: Mapping[str, Sequence[str]] = {"team": ("red", "blue"), "env": ("prod",)}
OWNERS = ("ReplicaSet", "StatefulSet", "ReplicationController", "Job")
TAINTS = (Taint("team", "blue"), Taint("team", "red", "NoExecute"), Taint("team", "red", "PreferNoSchedule"))
FILTERS = (
    "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit",
    "PodTopologySpread", "InterPodAffinity",
)  # fmt: skip
ARITHMETIC: tuple[dict[str, Any], ...] = ({}, {"arithmetic": "integer"})
SCORES = (
    "NodeResourcesFit", "NodeResourcesBalancedAllocation", "TaintToleration", "NodeAffinity",
)  # fmt: skip


@dataclass(frozen=True)
class Size:
    """How large a crowd is, and for how long it is watched; everything else follows from the seed."""

    seed: int
    nodes: int
    shapes: int
    pods: int
    cycles: int
    changes: int


def size_of(seed: int, *, work_max: int) -> Size:
    """Return the size of a seed's crowd: 1 to 300 nodes, 1 to 500 pods; ``work_max`` bounds nodes × pods²."""
    random = Random(seed)
    nodes = min(300, int(10 ** random.uniform(0, 2.5)))
    pods = min(500, int(10 ** random.uniform(0, 2.75)))
    while pods > 1 and (nodes + pods) * pods > work_max:
        pods = pods * 2 // 3
    return Size(
        seed=seed,
        nodes=nodes,
        shapes=random.choice((1, 2, 3, 5, 12)),
        pods=pods,
        cycles=random.randint(1, 5),
        changes=random.choice((0, 2, 6, 15)),
    )


@dataclass(frozen=True)
class Shape:
    """What the pods of one workload have in common."""

    namespace: str
    labels: dict[str, str]
    template: PodTemplate
    controller: Controller | None


class Crowd:
    """Makes the values and events of a crowd; it knows which nodes and pods it has sent."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self._random = Random(size.seed)
        self.zones = [f"z{i}" for i in range(self._random.choice((1, 2, 3, 3, 8)))]
        self.zones[-1] = "" if len(self.zones) in (2, 8) else self.zones[-1]
        self.profiles = {name: self._profile(name) for name in ("one", "two")}
        self.shapes = [self._shape() for _ in range(size.shapes)]
        self.nodes = [f"n{i}" for i in range(size.nodes)]
        self.pods: dict[str, PodSpec] = {}
        self._made = self._version = 0
        self._told: list[Event] = []

    # ---------------------------------------------------------------------------------------- events

    def history(self) -> Iterator[list[Event]]:
        """Yield the events of each cycle; ``bind`` is called for what it placed before the next ones."""
        events = self.beginning()
        for i in range(self.size.cycles):
            events += self._told
            self._told = []
            events += self.new_pods(-(-self.size.pods // self.size.cycles))
            events += self.changes(self.size.changes if i else 0)
            yield events
            events = []
        for _ in range(2):  # what waits may be cured by what goes on without new pods
            yield [*self._told, *self.changes(self.size.changes)]
            self._told = []

    def beginning(self) -> list[Event]:
        """Return the objects that are there before any pod comes."""
        random = self._random
        events: list[Event] = [NodeUpserted(self._node(name)) for name in self.nodes]
        events += [self._namespace(name) for name in NAMESPACES[:-1]]
        events += [self._service() for _ in range(random.choice((0, 0, 1, 3)))]
        events += [self._owner() for _ in range(random.choice((0, 1, 2)))]
        return events

    def new_pods(self, count: int) -> list[Event]:
        """Return pods that arrive, group after group or mixed; a few run already."""
        random = self._random
        shapes = random.sample(self.shapes, random.randint(1, min(4, len(self.shapes))))
        made = [self._pod(shapes[i * len(shapes) // count]) for i in range(count)]
        if random.random() < 0.3:
            random.shuffle(made)
        for each in made:
            self.pods[each.key] = each
        return [PodUpserted(each) for each in made]

    def changes(self, count: int) -> list[Event]:
        """Return things that happen to what exists."""
        return [event for _ in range(count) for event in self._change()]

    def _change(self) -> list[Event]:
        random = self._random
        match random.choice(("node", "node-gone", "pod", "pod", "pod", "pod-gone", "object")):
            case "node":
                return [NodeUpserted(self._node(random.choice(self.nodes)))]
            case "node-gone":
                return [NodeDeleted(random.choice(self.nodes), resource_version=self._next_version())]
            case "object":
                return [random.choice((self._service, self._owner, self._any_namespace))()]
            case kind if self.pods:
                known = self.pods[random.choice(sorted(self.pods))]
                if kind == "pod":
                    return [PodUpserted(self._changed(known))]
                del self.pods[known.key]
                if random.random() < 0.3:
                    version = self._next_version()
                    return [
                        PodUpserted(msgspec.structs.replace(known, finished=True, resource_version=version))
                    ]
                return [PodDeleted(known.namespace, known.name, known.uid, self._next_version())]
        return []

    def _changed(self, known: PodSpec) -> PodSpec:
        """Return a pod with other labels, or one that is about to go."""
        version = self._next_version()
        if known.node_name and self._random.random() < 0.4:
            changed = msgspec.structs.replace(known, terminating=True, resource_version=version)
        else:
            labels = {**self._labels(), "index": known.labels.get("index", "")}
            changed = msgspec.structs.replace(known, labels=labels, resource_version=version)
        self.pods[known.key] = changed
        return changed

    def bind(self, key: str, on: str) -> None:
        """Note that a pod was placed. The log tells of half of these, one batch later."""
        if self._random.random() < 0.5:
            bound = msgspec.structs.replace(
                self.pods[key], node_name=on, resource_version=self._next_version()
            )
            self.pods[key] = bound
            self._told.append(PodUpserted(bound))

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    # ------------------------------------------------------------------------------- nodes and objects

    def _node(self, name: str) -> NodeSpec:
        random = self._random
        host = name if random.random() < 0.92 else "shared"
        labels = {HOSTNAME: host, ZONE: random.choice(self.zones), RACK: random.choice(("r1", "r2", ""))}
        for key in (HOSTNAME, ZONE, RACK):
            if random.random() < (0.4 if key == RACK else 0.06):
                del labels[key]
        if random.random() < 0.2:
            labels["disk"] = "ssd"
        made = node(
            name,
            cpu=random.choice((2_000, 4_000, 16_000, 64_000)),
            memory=random.choice((8, 16, 64)) * GIB,
            pods=random.choice((4, 30, 110, 110)),
            version=self._next_version(),
            labels=labels,
            taints=tuple(random.sample(TAINTS, random.choice((0, 0, 0, 0, 1, 2)))),
            unschedulable=random.random() < 0.04,
        )
        images = (NodeImage(("web:latest",), 300 << 20),) if random.random() < 0.3 else ()
        return msgspec.structs.replace(made, images=images)

    def _any_namespace(self) -> Event:
        return self._namespace(self._random.choice(NAMESPACES))

    def _namespace(self, name: str) -> Event:
        random = self._random
        labels = {key: random.choice(values) for key, values in TEAMS.items() if random.random() < 0.6}
        return self._object("Namespace", "", name, Namespace(labels=labels))

    def _service(self) -> Event:
        random = self._random
        selector = None if random.random() < 0.1 else self._equal()
        name = random.choice(("s", "t"))
        return self._object("Service", random.choice(NAMESPACES), name, Selecting(selector=selector))

    def _equal(self) -> LabelSelector:
        """Return a selector that a Service or ReplicationController can have."""
        random = self._random
        labels = {key: random.choice(values) for key, values in LABELS.items() if random.random() < 0.4}
        return LabelSelector(tuple(LabelRequirement(k, "In", (v,)) for k, v in sorted(labels.items())))

    def _owner(self) -> Event:
        random = self._random
        shapes = [each for each in self.shapes if each.controller is not None]
        if not shapes:
            return self._any_namespace()
        shape = random.choice(shapes)
        assert shape.controller is not None
        kind, name = shape.controller.kind, shape.controller.name
        selector = self._equal() if kind == "ReplicationController" else self._selector(shape.labels)
        selecting = Selecting(selector=selector or LabelSelector())
        return self._object(kind, shape.namespace, name, selecting)

    def _object(self, kind: str, namespace: str, name: str, content: Namespace | Selecting) -> Event:
        version = self._next_version()
        if self._random.random() < 0.15:
            return ConfigDeleted(kind, namespace, name, version)
        return ConfigUpserted(kind, namespace, name, content, version)

    # ------------------------------------------------------------------------------------------ pods

    def _pod(self, shape: Shape) -> PodSpec:
        random = self._random
        self._made += 1
        on = random.choice([*self.nodes, "n-later"]) if random.random() < 0.12 else ""
        labels = {**shape.labels, "index": str(self._made)}
        if random.random() < 0.1:
            labels |= self._labels()
        made = pod(
            f"p{self._made}", shape.template, on=on, namespace=shape.namespace, labels=labels,
            version=self._next_version(),
        )  # fmt: skip
        return msgspec.structs.replace(
            made, controller=shape.controller, terminating=bool(on) and random.random() < 0.35
        )

    def _labels(self) -> dict[str, str]:
        random = self._random
        return {key: random.choice(values) for key, values in LABELS.items() if random.random() < 0.8}

    def _shape(self) -> Shape:
        random = self._random
        namespace, labels = random.choice(NAMESPACES), self._labels()
        controller = None
        if random.random() < 0.6:
            kind, name = random.choice(OWNERS), random.choice("st")
            controller = Controller(kind, name, f"uid-{kind}-{name}-{random.choice('12')}")
        fields: dict[str, Any] = {
            "profile": random.choice([*self.profiles]),
            "priority": random.choice((0, 0, 0, 10)),
            "node_selector": {"disk": "ssd"} if random.random() < 0.07 else {},
            "node_affinity": self._node_affinity() if random.random() < 0.3 else None,
            "tolerations": (Toleration("team", "Exists"),) if random.random() < 0.3 else (),
            "images": ("web",) if random.random() < 0.3 else (),
        }
        kinds = random.choice((("spread",), ("affinity",), ("spread", "affinity"), ()))
        if "spread" in kinds:
            fields["spread"] = self._spread(labels)
        if "affinity" in kinds:
            fields |= self._affinity(labels, namespace)
        ports = (80,) if random.random() < 0.05 else ()
        asked = template(random.choice((0, 100, 500)), random.choice((0, 0, 1)) * GIB, *ports, **fields)
        return Shape(namespace, labels, asked, controller)

    def _node_affinity(self) -> NodeAffinity:
        random = self._random
        zones = tuple(random.sample(self.zones, random.randint(1, len(self.zones))))
        term = NodeSelectorTerm((Requirement(ZONE, "In", zones),))
        if random.random() < 0.5:
            return NodeAffinity(required=(term,))
        return NodeAffinity(preferred=(PreferredTerm(random.choice((1, 50)), term),))

    def _spread(self, labels: Mapping[str, str]) -> tuple[SpreadConstraint, ...]:
        """Return up to four constraints, no two of a kind by the same key."""
        random = self._random
        keys = [ZONE, HOSTNAME, RACK, *([NOWHERE] if random.random() < 0.05 else [])]
        asked = [(key, hard) for key in keys for hard in (True, False)]
        chosen = random.sample(asked, random.choice((1, 2, 2, 3, 4)))
        return tuple(
            SpreadConstraint(
                topology_key=key,
                max_skew=random.choice((1, 1, 2, 5)),
                hard=hard,
                selector=self._selector(labels),
                min_domains=random.choice((1, 1, 1, 2, 4)) if hard else 1,
                honours_affinity=random.random() < 0.6,
                honours_taints=random.random() < 0.3,
            )
            for key, hard in chosen
        )

    def _affinity(self, labels: Mapping[str, str], namespace: str) -> dict[str, PodAffinity]:
        """Return up to four terms, required and preferred, for and against."""
        random = self._random
        kinds = random.choices(
            ("affinity", "prefers", "anti", "shuns"), (4, 3, 3, 3), k=random.choice((1, 1, 2, 3, 4))
        )
        terms = [(kind, self._term(kind, labels, namespace)) for kind in kinds]

        def weighted(asked: str) -> tuple[WeightedAffinityTerm, ...]:
            found = [(random.choice((1, 29, 71, 100)), term) for kind, term in terms if kind == asked]
            return tuple(WeightedAffinityTerm(weight=weight, term=term) for weight, term in found)

        def required(asked: str) -> tuple[AffinityTerm, ...]:
            return tuple(term for kind, term in terms if kind == asked)

        towards = PodAffinity(required=required("affinity"), preferred=weighted("prefers"))
        against = PodAffinity(required=required("anti"), preferred=weighted("shuns"))
        fields = {"pod_affinity": towards, "pod_anti_affinity": against}
        return {name: value for name, value in fields.items() if value != PodAffinity()}

    def _term(self, kind: str, labels: Mapping[str, str], namespace: str) -> AffinityTerm:
        random = self._random
        selector = self._selector(labels, narrow=kind in ("anti", "affinity"))
        listed = tuple(random.sample(NAMESPACES, random.choice((0, 0, 0, 1, 2))))
        by_label = None
        if random.random() < 0.3:
            by_label = self._choose(TEAMS, random.choice((0, 1, 1, 2)))
        if not listed and by_label is None:
            listed = (namespace,)
        return AffinityTerm(
            topology_key=random.choice((*KEYS, *([NOWHERE] if random.random() < 0.05 else []))),
            selector=selector,
            namespaces=listed,
            namespace_selector=by_label,
        )

    def _selector(self, labels: Mapping[str, str], *, narrow: bool = False) -> LabelSelector | None:
        """Return a selector, most often one that the pod's own labels meet."""
        random = self._random
        if random.random() < 0.08:
            return random.choice((None, LabelSelector()))
        if labels and random.random() < 0.65:
            keys = random.sample(sorted(labels), len(labels) if narrow else 1)
            return LabelSelector(tuple(LabelRequirement(key, "In", (labels[key],)) for key in sorted(keys)))
        return self._choose(LABELS, random.choice((1, 1, 2)))

    def _choose(self, among: Mapping[str, Sequence[str]], count: int) -> LabelSelector:
        random = self._random
        requirements = []
        for key in random.sample(sorted(among), min(count, len(among))):
            operator = random.choice(("In", "In", "NotIn", "Exists", "DoesNotExist"))
            values = sorted(random.sample(among[key], random.randint(1, len(among[key]))))
            requirements.append(LabelRequirement(key, operator, tuple(values) if "In" in operator else ()))
        return LabelSelector(tuple(sorted(requirements)))

    # --------------------------------------------------------------------------------------- profiles

    def _profile(self, name: str) -> Profile:
        random = self._random
        filters = list(FILTERS)
        if random.random() < 0.4:
            left_out = random.sample(FILTERS[:6], random.choice((1, 2, 4)))
            filters = [each for each in filters if each not in left_out]
        if random.random() < 0.2:
            random.shuffle(filters)
        spread, affinity = self._spread_args(), self._affinity_args()
        args = {"PodTopologySpread": spread, "InterPodAffinity": affinity}
        scores = [
            PluginUse(name="PodTopologySpread", weight=random.choice((1.0, 2.0)), args=spread),
            PluginUse(name="InterPodAffinity", weight=random.choice((1.0, 2.0)), args=affinity),
        ]
        chosen = SCORES if random.random() < 0.4 else random.sample(SCORES, random.choice((0, 1, 2)))
        arithmetic = random.choice(ARITHMETIC)
        scores += [PluginUse(name=each, args=arithmetic) for each in chosen]
        random.shuffle(scores)
        uses = tuple(PluginUse(name=each, args=args.get(each, {})) for each in filters)
        return Profile(name=name, revision=7, filters=uses, scores=tuple(scores))

    def _spread_args(self) -> dict[str, Any]:
        random = self._random
        if random.random() < 0.4:
            return {}
        if random.random() < 0.3:
            return {"defaultingType": "System"}
        listed = [
            {"topologyKey": key, "maxSkew": random.choice((1, 3)), "whenUnsatisfiable": action}
            for key, action in random.sample(
                [(k, a) for k in (ZONE, HOSTNAME, RACK) for a in ("DoNotSchedule", "ScheduleAnyway")],
                random.choice((0, 1, 2)),
            )
        ]
        return {"defaultingType": "List", "defaultConstraints": listed}

    def _affinity_args(self) -> dict[str, Any]:
        random = self._random
        args: dict[str, Any] = {}
        if random.random() < 0.8:
            args["hardPodAffinityWeight"] = random.choice((0, 5, 50, 100))
        if random.random() < 0.3:
            args["ignorePreferredTermsOfExistingPods"] = True
        return args
