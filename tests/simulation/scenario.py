"""A day of a small cluster, drawn from a seed: records, late duplicates of them, and broken ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson

from domain.model.pods import POD_GROUP_LABEL
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, Entry
from tests.builders import profile_manifest, usage_manifest
from tests.simulation.faults import Fault, Faults
from tests.simulation.lending import Lending, resize

_CPUS = (100, 250, 500, 1000, 2000)
_PROFILES = ("default-scheduler", "first-fit", "sim")
_STRATEGIES = ("LeastAllocated", "MostAllocated", "Broken")
WATCHED = ("watched-0", "watched-1")
"""Nodes that are measured and never come, so that their measurements stay."""

_PRIORITIES = (0, 0, 0, 5, 10, 10, 100, 1000)
_PORTS = (None, None, None, None, 8080)
_FILTERS = [
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "InterPodAffinity",
    "PodTopologySpread",
]
_APPS = ("web", "web", "web", "web", "web", "lonely", "zonal", "spread", "spread")
_APART = {"lonely": "kubernetes.io/hostname", "zonal": "zone"}
"""Pods with this label keep away from each other by this topology key."""

_GANGS = ("gang-0", "gang-1", "gang-2")
_OF_WORKLOAD = _GANGS[-1]
"""The PodGroup that is a Workload of two groups on some days."""
_IN_GANGS = 0.3
"""The share of pods in gangs, on days that have any."""

WORKLOAD = "work"
_LENDING = (3, 6, 7, 9)
"""The days of each twelve on which nodes lend: among them are some with each other feature, and without."""
_BORROWS = 0.6
"""The share of pods that take part in co-location, on days on which nodes lend."""
_LENDS = 0.25
"""The share of records of co-location, on these days."""

_TAINT = {"key": "reserved", "value": "yes", "effect": "NoSchedule"}


class Kind(NamedTuple):
    """What a day has beside pods, nodes and profiles."""

    preempts: bool = False
    has_gangs: bool = False
    fails_to_bind: bool = False
    reserves: bool = False
    has_workloads: bool = False
    names_nodes: bool = False
    lends: bool = False
    heats: bool = False

    @classmethod
    def of(cls, seed: int, *, preempts: bool) -> Kind:
        """Return the kind of a day: every second one has gangs, and every third one bindings that fail.

        Of those with gangs every second one has a Workload, too. Of those with preemption every second one
        has pods for which another scheduler names nodes. On every third one nodes lend what is idle; of the
        others with preemption some have hot nodes. None of it draws a random number.
        """
        reserves, names_nodes = preempts and seed % 4 < 2, preempts and seed % 4 in (1, 2)
        lends = seed % 12 in _LENDING
        heats = preempts and seed % 4 == 0 and not lends
        of_pods = seed % 2 == 1, seed % 3 == 0, reserves, seed % 4 == 3, names_nodes
        return cls(preempts, *of_pods, lends, heats)


_PLAIN = Kind()


class Scenario:
    """Draws one record after another, of so many pods' and nodes' names, and remembers what it drew.

    ``now_ms`` and ``bound`` as of ``Lending``, which draws where nodes lend.
    """

    def __init__(
        self,
        rng: random.Random,
        faults: Faults,
        *,
        pods: int = 41,
        nodes: int = 8,
        kind: Kind = _PLAIN,
        now_ms: Callable[[], int] = lambda: 0,
        bound: Callable[[], Iterable[tuple[str, str]]] = tuple,
    ) -> None:
        self._rng = rng
        self._kind = kind
        self._pods_max, self._nodes_max = pods - 1, nodes - 1
        self._faults = faults
        self._version = 100
        self._uid = 0
        self.nodes: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.sent: list[tuple[str, Entry]] = []
        self._touched: set[str] = set()
        self.lending = Lending(self, rng, faults, now_ms, bound)

    def opening(self) -> list[tuple[str, Entry]]:
        """Return the nodes and the PodGroups that are there from the start."""
        nodes = [self.keep(*self._node(f"node-{i}")) for i in range(self._rng.randint(1, 6))]
        policies = [self.keep(*_hot_policy())] if self._kind.heats else []
        nodes += [self.keep(*self._pod_group(name, "ADDED")) for name in self._gangs()]
        return policies + nodes + (self.lending.opening() if self._kind.lends else [])

    def closing(self) -> list[tuple[str, Entry]]:
        """Return a node with room for every pod that can be placed at all, and what they may lack beside."""
        name = "node-huge"
        self._version += 1
        node = self._manifest("Node", name, None, {"pods": "4000", "cpu": "4000", "memory": "4000Gi"})
        profile = self.keep(*self._profile("sim", "ADDED", "MostAllocated"))
        gangs = [self.keep(*self._pod_group(name, "MODIFIED")) for name in self._gangs()]
        items = [self.keep(NODES_TOPIC, name, self.event("ADDED", node)), profile, *gangs]
        return items + (self.lending.closing(name) if self._kind.lends else [])

    def _gangs(self) -> Iterable[str]:
        return _GANGS if self._kind.has_gangs else ()

    def next(self) -> tuple[str, Entry]:
        """Return the next record."""
        if self._kind.lends and self._rng.random() < _LENDS:
            return self.lending.next([f"node-{i}" for i in range(self._nodes_max + 1)])
        if self._kind.preempts and self._rng.random() < 0.03:
            return self.keep(*self._budget())
        if self._kind.has_gangs and self._rng.random() < 0.03:
            kind = self._rng.choice(("MODIFIED", "MODIFIED", "MODIFIED", "DELETED"))
            return self.keep(*self._pod_group(self._rng.choice(_GANGS), kind))
        noisy = bool(self.sent) and self._rng.random() < self._faults.noise
        draw = self._rng.uniform(0.9, 1.0) if noisy else self._rng.random()
        if draw < 0.5:
            return self.keep(*self._pod())
        if draw < 0.62 and self.pods:
            return self.keep(*self._delete_pod())
        if draw < 0.72 and self.pods:
            return self.keep(*self._touch_pod())
        if draw < 0.80:
            return self.keep(*self._node(f"node-{self._rng.randint(0, self._nodes_max)}"))
        if draw < 0.84 and self.nodes:
            return self.keep(*self._delete_node())
        if draw < 0.87 and not self._kind.heats:
            kind = self._rng.choice(("ADDED", "MODIFIED", "MODIFIED", "DELETED"))
            name, strategy = self._rng.choice(_PROFILES), self._rng.choice(_STRATEGIES)
            return self.keep(*self._profile(name, kind, strategy))
        if draw < 0.90:
            return self.keep(*self._usage())
        if draw < 0.96 and self.sent:
            self._faults.counts[Fault.DUPLICATE] += 1
            return self._rng.choice(self._of_changed_pods() or self.sent)
        self._faults.counts[Fault.BROKEN] += 1
        return self._broken()

    def _of_changed_pods(self) -> list[tuple[str, Entry]]:
        """Return what was said of pods that were there and changed since, at times."""
        keys = {f"sim/{name}".encode() for name in self._touched & self.pods.keys()}
        return [item for item in self.sent if item[1].key in keys] if self._rng.random() < 0.3 else []

    def keep(self, topic: str, key: str, value: bytes) -> tuple[str, Entry]:
        """Remember a record that is sent."""
        item = (topic, Entry(key.encode(), value))
        self.sent.append(item)
        return item

    def event(self, type_: str, manifest: dict[str, Any]) -> bytes:
        """Return an event, of a producer whose clock may be wrong."""
        event = {"type": type_, "object": manifest, "id": f"e{self._version}"}
        if self._rng.random() < 0.05:  # a producer whose clock is wrong
            self._faults.counts[Fault.OTHER_CLOCK] += 1
            event["at"] = self._rng.choice(
                ("1999-12-31T23:59:59Z", "2023-11-14T20:00:00Z", "2031-01-01T00:00:00Z")
            )
        return orjson.dumps(event)

    def _manifest(self, kind: str, name: str, uid: str | None, allocatable: dict[str, str]) -> dict[str, Any]:
        meta: dict[str, Any] = {"name": name, "uid": uid or f"uid-{name}"}
        meta |= {"resourceVersion": str(self._version), "labels": {"kubernetes.io/hostname": name}}
        return {
            "kind": kind,
            "apiVersion": "v1",
            "metadata": meta,
            "spec": {},
            "status": {"allocatable": allocatable},
        }

    def _node(self, name: str) -> tuple[str, str, bytes]:
        self._version += 1
        allocatable = {
            "cpu": str(self._rng.choice((1, 2, 4))),
            "memory": "8Gi",
            "pods": str(self._rng.choice((3, 10))),
        }
        node = self._manifest("Node", name, None, allocatable)
        node["spec"] = {"unschedulable": self._rng.random() < 0.1}
        if self._rng.random() < 0.2:
            node["spec"]["taints"] = [_TAINT]
        node["metadata"]["labels"]["zone"] = self._rng.choice("ab")
        kind = "MODIFIED" if name in self.nodes else "ADDED"
        self.nodes[name] = node
        return NODES_TOPIC, name, self.event(kind, node)

    def _profile(self, name: str, kind: str, strategy: str) -> tuple[str, str, bytes]:
        self._version += 1
        manifest = profile_manifest(name, strategy, resource_version=self._version, filters=_FILTERS)
        return CONFIG_TOPIC, f"SchedulingProfile/{name}", self.event(kind, manifest)

    def _usage(self) -> tuple[str, str, bytes]:
        """Measure a node that may be there or not, or one that never will."""
        self._version += 1
        name = self._rng.choice((f"node-{self._rng.randint(0, self._nodes_max)}", *WATCHED))
        if self._kind.heats and self.nodes and name not in WATCHED:
            name = sorted(self.nodes)[self._version % len(self.nodes)]
        manifest = usage_manifest(name, percent={"cpu": self._rng.choice((1, 20.5, 99))})
        if self._kind.heats:  # some nodes are hot, as pods wait for cpu on them
            manifest["percent"]["memory"] = 1  # else an unknown node could not be measured by quality
            manifest["quality"] = {"mid": {"cpu": "100m"}}
            manifest["pressure"] = {"cpu": 90 if self._version % 3 else 1}
        return USAGE_TOPIC, name, self.event("MODIFIED", manifest)

    def _delete_node(self) -> tuple[str, str, bytes]:
        name = self._rng.choice(sorted(self.nodes))
        node = self.nodes.pop(name)
        self._version += 1
        node["metadata"]["resourceVersion"] = str(self._version)
        return NODES_TOPIC, name, self.event("DELETED", node)

    def _pod(self) -> tuple[str, str, bytes]:
        self._version += 1
        self._uid += 1
        name = f"pod-{self._rng.randint(0, self._pods_max)}"
        spec: dict[str, Any] = {
            "containers": [
                {
                    "name": "c",
                    "resources": {"requests": {"cpu": f"{self._rng.choice(_CPUS)}m", "memory": "64Mi"}},
                }
            ],
            "priority": self._rng.choice((0, 0, 0, 10)),
            "schedulerName": self._rng.choice(_PROFILES),
        }
        if self._kind.preempts:  # few nodes, many pods, and some of them more urgent than others
            spec["priority"] = self._rng.choice(_PRIORITIES)
            spec["preemptionPolicy"] = self._rng.choice(("PreemptLowerPriority",) * 5 + ("Never",))
            if self._rng.random() < 0.7:
                spec["schedulerName"] = _PROFILES[0]
        port = self._rng.choice(_PORTS)
        if port is not None:
            spec["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
        if self._rng.random() < 0.2:
            spec["nodeSelector"] = {"zone": self._rng.choice("abc")}
        if self._rng.random() < 0.3:
            spec["tolerations"] = [{"key": "reserved", "operator": "Exists"}]
        app = self._rng.choice(_APPS)
        apart = app if app in _APART else self._rng.choice((*_APART, *[""] * 38))
        if apart:
            term = {"labelSelector": {"matchLabels": {"app": apart}}, "topologyKey": _APART[apart]}
            avoid = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            spec["affinity"] = {"podAntiAffinity": avoid}
        if app == "spread":
            constraint: dict[str, Any] = {
                "labelSelector": {"matchLabels": {"app": app}},
                "topologyKey": "zone",
            }
            constraint |= {"maxSkew": self._rng.choice((1, 1, 2)), "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [constraint]
        if self._rng.random() < 0.1:
            spec["nodeName"] = f"node-{self._rng.randint(0, self._nodes_max)}"
        if self._kind.lends and self._rng.random() < _BORROWS:
            self.lending.borrow(spec)
        meta: dict[str, Any] = {"name": name, "namespace": "sim", "uid": f"uid-{self._uid}"}
        meta |= {"resourceVersion": str(self._version), "labels": {"app": app}}
        if self._kind.heats and self._uid % 4:
            by = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"set-{self._uid % 9}"}
            meta["ownerReferences"] = [{**by, "uid": "set", "controller": True}]
        if self._kind.has_gangs and self._rng.random() < _IN_GANGS:
            gang = self._rng.choice(_GANGS)
            if gang == _OF_WORKLOAD and self._kind.has_workloads:
                spec["workloadRef"] = self._workload_ref()
            else:
                meta["labels"][POD_GROUP_LABEL] = gang
        pod = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": meta,
            "spec": spec,
            "status": {"phase": "Pending"} | self._named_node(),
        }
        if self._kind.names_nodes and "nodeName" in spec and app != "spread":
            self._leave(pod)
        self.pods[name] = pod
        return PODS_TOPIC, f"sim/{name}", self.event("ADDED", pod)

    def _workload_ref(self) -> dict[str, str]:
        """Return a group of the Workload: replicas of the first one, or the second one, which has none."""
        if self._uid % 3 == 0:
            return {"name": WORKLOAD, "podGroup": "b"}
        return {"name": WORKLOAD, "podGroup": "a", "podGroupReplicaKey": str(self._uid % 2)}

    def _named_node(self) -> dict[str, str]:
        """Return what the status of some pods says: another scheduler ended pods on a node for them."""
        there = self.pods.values() if self._kind.names_nodes else ()
        leaving = [pod["spec"] for pod in there if "deletionTimestamp" in pod["metadata"]]
        if not leaving:
            return {}
        return {"nominatedNodeName": min(leaving, key=lambda spec: int(spec["priority"]))["nodeName"]}

    def _budget(self) -> tuple[str, str, bytes]:
        """Let a budget come, change or go."""
        self._version += 1
        app = self._rng.choice(_APPS)
        meta = {"name": app, "namespace": "sim", "resourceVersion": str(self._version)}
        allowed = {self._rng.choice(("minAvailable", "maxUnavailable")): self._rng.choice((0, 1, 2, "50%"))}
        budget = {
            "kind": "PodDisruptionBudget",
            "apiVersion": "policy/v1",
            "metadata": meta,
            "spec": {"selector": {"matchLabels": {"app": app}}, **allowed},
        }
        kind = self._rng.choice(("ADDED", "MODIFIED", "MODIFIED", "DELETED"))
        return CONFIG_TOPIC, f"PodDisruptionBudget/sim/{app}", self.event(kind, budget)

    def _pod_group(self, name: str, kind: str) -> tuple[str, str, bytes]:
        """Let the PodGroup of a gang, or the Workload in its place, come, change or go."""
        self._version += 1
        least = self._rng.choice((1, 2, 2, 3))
        if name == _OF_WORKLOAD and self._kind.has_workloads:
            return self._workload(least, kind)
        group = {
            "kind": "PodGroup",
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "metadata": {"name": name, "namespace": "sim", "resourceVersion": str(self._version)},
            "spec": {"minMember": least},
        }
        return CONFIG_TOPIC, f"PodGroup/sim/{name}", self.event(kind, group)

    def _workload(self, least: int, kind: str) -> tuple[str, str, bytes]:
        """Return an event of the Workload; it lacks its second group at times."""
        groups: list[dict[str, Any]] = [{"name": "a", "policy": {"gang": {"minCount": least}}}]
        if self._version % 4:
            groups.append({"name": "b", "policy": {"basic": {}} if least == 1 else groups[0]["policy"]})
        workload = {
            "kind": "Workload",
            "apiVersion": "scheduling.k8s.io/v1alpha1",
            "metadata": {"name": WORKLOAD, "namespace": "sim", "resourceVersion": str(self._version)},
            "spec": {"podGroups": groups},
        }
        return CONFIG_TOPIC, f"Workload/sim/{WORKLOAD}", self.event(kind, workload)

    def fail_binding(self, bound: Iterable[tuple[str, str]]) -> tuple[str, Entry] | None:
        """Say of a pod that it could not be bound; ``bound`` are uids and nodes that were told lately."""
        pods = {
            pod["metadata"]["uid"]: (name, pod)
            for name, pod in self.pods.items()
            if "nodeName" not in pod["spec"] and pod["status"]["phase"] == "Pending"
        }
        found = [(*pods[uid], node) for uid, node in bound if uid in pods]
        if not found:
            return None
        name, pod, node = self._rng.choice(found)
        self._faults.counts[Fault.BIND_FAILED] += 1
        failed = {**pod, "spec": {**pod["spec"], "nodeName": node}}
        return self.keep(PODS_TOPIC, f"sim/{name}", self.event("BIND_FAILED", failed))

    def end(self, uid: str) -> None:
        """Forget a pod that somebody else ended."""
        self.pods = {name: pod for name, pod in self.pods.items() if pod["metadata"]["uid"] != uid}

    def _delete_pod(self) -> tuple[str, str, bytes]:
        name = self._rng.choice(sorted(self.pods))
        pod = self.pods.pop(name)
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        return PODS_TOPIC, f"sim/{name}", self.event("DELETED", pod)

    def _touch_pod(self) -> tuple[str, str, bytes]:
        """Change a pod: it finishes, is bound by someone else, is resized, or changes without effect."""
        name = self._rng.choice(sorted(self.pods))
        pod = orjson.loads(orjson.dumps(self.pods[name]))
        self._touched.add(name)
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        draw = self._rng.random()
        is_spread = pod["metadata"]["labels"]["app"] == "spread"
        may_leave = self._kind.preempts and bool(pod["spec"].get("nodeName")) and not is_spread
        if draw < 0.4:
            phase = self._rng.choice(("Succeeded", "Failed"))
            if may_leave and self._kind.names_nodes:
                self._leave(pod)
            else:
                pod["status"]["phase"] = phase
        elif draw < 0.6:
            pod["spec"]["nodeName"] = f"node-{self._rng.randint(0, self._nodes_max)}"
        elif draw < 0.8:
            resize(pod["spec"]["containers"][0]["resources"], self._rng.choice((*_CPUS, 8000)))
        elif may_leave:
            self._leave(pod)
        else:
            pod["metadata"]["labels"]["touched"] = str(self._version)
        self.pods[name] = pod
        return PODS_TOPIC, f"sim/{name}", self.event("MODIFIED", pod)

    def _leave(self, pod: dict[str, Any]) -> None:
        """Let a pod that runs begin to end; it takes its time."""
        pod["metadata"]["deletionTimestamp"] = "2023-11-14T22:20:00Z"
        if self._kind.names_nodes:
            ended = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
            pod["status"]["conditions"] = [ended]

    def next_version(self) -> int:
        """Return the next resource version."""
        self._version += 1
        return self._version

    def _broken(self) -> tuple[str, Entry]:
        """Return a record that must become exactly one dead letter."""
        self._version += 1
        key = f"sim/broken-{self._version}".encode()
        meta = {"name": f"broken-{self._version}", "namespace": "sim"}
        bad_request = {"name": "c", "resources": {"requests": {"cpu": "-1"}}}
        pod = {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": {"containers": [bad_request]}}
        value = self._rng.choice((b"{", b"[]", b"\xff\x00", self.event("ADDED", pod)))
        return PODS_TOPIC, Entry(key, value)


def _hot_policy() -> tuple[str, str, bytes]:
    """Return the policy by which one bad sample makes a node hot, and any pod is covered by the next one."""
    policy = {
        "apiVersion": "berth/v1",
        "kind": "CoLocationPolicy",
        "metadata": {"name": "quick"},
        "spec": {"view": {"settle": "0s"}, "hotSpot": {"badCount": 1, "goodCount": 1, "rest": "3s"}},
    }
    event = {"type": "ADDED", "object": policy, "id": "policy"}
    return CONFIG_TOPIC, "CoLocationPolicy/quick", orjson.dumps(event)
