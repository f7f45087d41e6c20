"""What events say, read in plain Python: nothing here is shared with the code under test."""

from __future__ import annotations

import dataclasses
import datetime
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from domain.model.pods import POD_GROUP_LABEL
from services.codec.partition import partition_for
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, TICKS_TOPIC, USAGE_TOPIC, Record

Json = dict[str, Any]
Letter = tuple[str, int, int, str]
"""A dead letter: topic, partition and offset of its record, and the id of the event in it."""

_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_AHEAD_MS_MAX = 60_000
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def amount(resource: str, text: str) -> int:
    """Return a quantity: CPU in thousandths, anything else in its own unit."""
    if text.endswith("m"):
        return int(text[:-1])
    number = int(text[:-2]) * _UNITS[text[-2:]] if text[-2:] in _UNITS else int(text)
    return number * 1000 if resource == "cpu" else number


@dataclasses.dataclass(frozen=True, slots=True)
class Pod:
    """A pod as one event describes it."""

    uid: str
    key: str
    version: int
    requests: Mapping[str, int]
    limits: Mapping[str, int]
    ports: frozenset[int]
    selector: Mapping[str, str]
    tolerations: tuple[Json, ...]
    labels: Mapping[str, str]
    avoids: tuple[tuple[str, Mapping[str, str]], ...]  # topology key, labels of pods that it keeps away from
    spread: tuple[tuple[str, int, Mapping[str, str]], ...]  # topology key, largest skew, labels that count
    node: str
    finished: bool
    profile: str
    priority: int
    may_preempt: bool
    gang: str
    named_node: str  # by another scheduler, which ended pods there for it
    leaves: bool  # another scheduler ended it for another pod
    terminating: bool = False
    is_controlled: bool = False

    @property
    def quality(self) -> str:
        """What the pod was promised: see docs/colocation.md."""
        if not self.requests and not self.limits:
            return "low"
        return "high" if self.requests == self.limits else "mid"

    @property
    def borrows(self) -> bool:
        """Whether the pod goes where what is idle suffices."""
        return self.profile == "colocation" and self.quality != "high"


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A node as one event describes it."""

    gone: bool
    offers: Mapping[str, int] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    taints: tuple[Json, ...] = ()


class Measurement(NamedTuple):
    """What was used on a node by quality at a moment, and the counters of pods by uid, as written."""

    node: str
    at_ms: int
    use: Json
    pods: Json


def moment_ms(text: str) -> int:
    """Return a moment in milliseconds."""
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)


def read_pod(manifest: Json) -> Pod:
    """Return what a pod's manifest says."""
    meta, spec = manifest["metadata"], manifest["spec"]
    container = spec["containers"][0]
    resources = container["resources"]
    requests, limits = (
        {name: amount(name, text) for name, text in resources.get(which, {}).items()}
        for which in ("requests", "limits")
    )
    terms = spec.get("affinity", {}).get("podAntiAffinity", {})
    ended = [each["reason"] for each in manifest["status"].get("conditions", ())]
    return Pod(
        uid=meta["uid"],
        key=f"{meta['namespace']}/{meta['name']}",
        version=int(meta["resourceVersion"]),
        requests=requests,
        limits=limits,
        ports=frozenset(port["hostPort"] for port in container.get("ports", ())),
        selector=spec.get("nodeSelector", {}),
        tolerations=tuple(spec.get("tolerations", ())),
        labels=meta.get("labels", {}),
        avoids=tuple(
            (term["topologyKey"], term["labelSelector"]["matchLabels"])
            for term in terms.get("requiredDuringSchedulingIgnoredDuringExecution", ())
        ),
        spread=tuple(
            (each["topologyKey"], each["maxSkew"], each["labelSelector"]["matchLabels"])
            for each in spec.get("topologySpreadConstraints", ())
        ),
        node=spec.get("nodeName", ""),
        finished=manifest["status"]["phase"] in ("Succeeded", "Failed"),
        profile=spec.get("schedulerName", "default-scheduler"),
        priority=spec.get("priority", 0),
        may_preempt=spec.get("preemptionPolicy") != "Never",
        gang=gang_of(manifest),
        named_node=manifest["status"].get("nominatedNodeName", ""),
        leaves="deletionTimestamp" in meta and "PreemptionByScheduler" in ended,
        terminating="deletionTimestamp" in meta,
        is_controlled="ownerReferences" in meta,
    )


def gang_of(manifest: Json) -> str:
    """Return the gang that a pod names, "" if none: a PodGroup, or WORKLOAD:GROUP[:REPLICA]."""
    if ref := manifest.get("spec", {}).get("workloadRef"):
        return ":".join(filter(None, map(ref.get, ("name", "podGroup", "podGroupReplicaKey"))))
    return str((manifest["metadata"].get("labels") or {}).get(POD_GROUP_LABEL, ""))


def read_node(manifest: Json) -> Node:
    """Return what a node's manifest says."""
    spec = manifest["spec"]
    cordon = (_UNSCHEDULABLE,) if spec.get("unschedulable") else ()
    return Node(
        gone=False,
        offers={name: amount(name, text) for name, text in manifest["status"]["allocatable"].items()},
        labels=manifest["metadata"]["labels"],
        taints=(*spec.get("taints", ()), *cordon),
    )


def why_not(node: Node, there: Iterable[Pod], pod: Pod) -> str:
    """Return why a node refuses a pod beside those that are there, "" where it does not."""
    if node.gone:
        return "gone"
    for taint in node.taints:
        if taint["effect"] != "PreferNoSchedule" and not any(_tolerates(t, taint) for t in pod.tolerations):
            return f"taint {taint['key']}"
    if any(node.labels.get(key) != value for key, value in pod.selector.items()):
        return "selector"
    used = dict(pod.requests) | {"pods": 1}
    for other in there:
        if other.ports & pod.ports:
            return f"port of {other.uid}"
        if why := _why_apart(node, node, other, pod):
            return why
        used["pods"] += 1
        for name in pod.requests:
            used[name] += other.requests.get(name, 0)
    over = [name for name, value in used.items() if value > node.offers.get(name, 0)]
    return f"over {', '.join(over)}" if over else ""


def why_not_beside(node: Node, placed: Iterable[tuple[Node, Pod]], others: Iterable[Node], pod: Pod) -> str:
    """Return why pods of any node refuse a pod there by what topology keys say, "" where they do not.

    ``placed`` are all pods with their nodes, and ``others`` all nodes.
    """
    placed = list(placed)
    for on, other in placed:
        if why := _why_apart(on, node, other, pod):
            return why
    keys = [key for key, _, _ in pod.spread]
    counted = [
        each
        for each in others
        if all(key in each.labels for key in keys)
        and all(each.labels.get(key) == value for key, value in pod.selector.items())
    ]
    for key, skew_max, labels in pod.spread:
        if key not in node.labels:
            return f"no {key}"
        if not any(node is each for each in counted):
            continue  # the node itself refuses the pod
        counts = dict.fromkeys((each.labels[key] for each in counted), 0)
        for on, other in placed:
            if any(on is each for each in counted) and _has(other.labels, labels):
                counts[on.labels[key]] += 1
        skew = counts[node.labels[key]] + _has(pod.labels, labels) - min(counts.values())
        if skew > skew_max:
            return f"skew {skew} by {key}"
    return ""


def _why_apart(on: Node, node: Node, other: Pod, pod: Pod) -> str:
    """Return why a pod does not come to a node while another one is ``on`` its own."""
    for key, labels in pod.avoids:
        if key in node.labels and on.labels.get(key) == node.labels[key] and _has(other.labels, labels):
            return f"avoids {other.uid} by {key}"
    for key, labels in other.avoids:
        if key in node.labels and on.labels.get(key) == node.labels[key] and _has(pod.labels, labels):
            return f"avoided by {other.uid} by {key}"
    return ""


def _tolerates(toleration: Json, taint: Json) -> bool:
    same_value: bool = toleration.get("operator") == "Exists" or toleration.get("value") == taint.get(
        "value", ""
    )
    same_effect: bool = toleration.get("effect", taint["effect"]) == taint["effect"]
    return bool(toleration["key"] == taint["key"]) and same_value and same_effect


def _has(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


class Events:
    """The fold of all events, in the order in which the log took them.

    ``shards_count`` is the most shards that there ever were, and ``letters`` are the dead letters.

    Attributes
    ----------
    said : dict
        (uid, version) -> the pod as that event describes it.
    alive : dict
        Key -> the newest pod of that name, if it neither finished nor was deleted.
    ended : set of str
        Uids of pods that finished, were deleted, or made way for another one of their name.
    homes : dict
        Key of a pod -> the partitions that held records of it, and the homes of the gangs that it named.
    nodes : dict
        Name -> all states that the node was in, one after another.
    broken : list
        (topic, partition, offset) of records that make no sense, each as often as it was taken.
    gangs : dict
        Name -> version and least number of members of all states of its PodGroup; None: it was deleted. A
        group of a Workload is WORKLOAD:GROUP.
    failed : set
        Uid and node of pods that could not be bound there.
    actions : Counter
        Node, moment and reason of what agents did -> how often it was said.
    measured : list of Measurement
        What was measured by quality, in the order of the log.
    refused : list of str
        Nodes of measurements that became dead letters, as the node's capacity was not known to the worker.
    policies : list
        Name and spec of each policy whenever it came, changed or went (None).
    """

    def __init__(self, shards_count: int = 1, letters: Collection[Letter] = ()) -> None:
        self._shards_count = shards_count  # there were never more
        self._letters = letters
        self.said: dict[tuple[str, int], Pod] = {}
        self.alive: dict[str, Pod] = {}
        self.ended: set[str] = set()
        self.homes: dict[str, set[int]] = {}
        self.nodes: dict[str, list[Node]] = {}
        self.broken: list[tuple[str, int, int]] = []
        self.profiles: dict[str, list[tuple[int, Json | None]]] = {}
        self.usage: dict[str, list[tuple[int, float]]] = {}
        self.gangs: dict[str, list[tuple[int, int | None]]] = {}
        self.failed: set[tuple[str, str]] = set()
        self.actions: Counter[tuple[str, int, str]] = Counter()
        self.measured: list[Measurement] = []
        self.refused: list[str] = []
        self.policies: list[tuple[str, Json | None]] = []
        self._policy_versions: dict[str, int] = {}
        self._pod_versions: dict[str, int] = {}  # key -> the newest version that counted
        self._node_versions: dict[str, int] = {}
        self._workload_versions: dict[str, int] = {}
        self._uids: set[str] = set()  # of all pods that were read
        self._end_versions: dict[str, int] = {}  # uid -> the version that ended it

    def fold(self, record: Record) -> None:
        """Take the next record."""
        if record.topic == TICKS_TOPIC:
            return
        if b"broken" in (record.key or b""):
            self.broken.append((record.topic, record.partition, record.offset))
            return
        event = orjson.loads(record.value or b"")
        kind, thing = event["type"], event["object"]
        version = int(thing["metadata"].get("resourceVersion", 0))
        if record.topic == PODS_TOPIC:
            homes = self.homes.setdefault((record.key or b"").decode(), set())
            homes.add(record.partition)
            if gang := gang_of(thing):
                of_gang = f"{thing['metadata']['namespace']}/{gang}".encode()
                homes |= {partition_for(of_gang, None, count + 1) for count in range(self._shards_count)}
            if "resourceVersion" not in thing["metadata"] and kind == "MODIFIED":
                self._fold_evicted((record.key or b"").decode(), thing["metadata"]["uid"])
            elif "spec" in thing:
                pod = read_pod(thing)
                if kind == "BIND_FAILED":
                    self.failed.add((pod.uid, pod.node))
                    pod = dataclasses.replace(pod, node="")
                self._fold_pod(kind, pod)
            else:
                self._fold_ended((record.key or b"").decode(), thing["metadata"]["uid"])
        elif record.topic == NODES_TOPIC:
            self._fold_node(kind, thing, version)
        elif record.topic == USAGE_TOPIC:
            self._fold_usage(record, event, thing)
        elif record.topic == CONFIG_TOPIC and thing["kind"] == "CoLocationPolicy":
            self._fold_policy(kind, thing, version)
        elif record.topic == CONFIG_TOPIC and thing["kind"] == "PodGroup":
            states = self.gangs.setdefault(thing["metadata"]["name"], [])
            known = states[-1][0] if states else 0
            if kind == "DELETED" and states and version >= known:
                states.append((version, None))
            elif kind != "DELETED" and version > known:
                states.append((version, thing["spec"]["minMember"]))
        elif record.topic == CONFIG_TOPIC and thing["kind"] == "Workload":
            self._fold_workload(kind, thing, version)
        elif record.topic == CONFIG_TOPIC and thing["kind"] == "SchedulingProfile":
            if kind != "DELETED" and "Broken" in str(thing["spec"]):
                self.broken.append((record.topic, record.partition, record.offset))
                return
            revisions = self.profiles.setdefault(thing["metadata"]["name"], [])
            if not revisions or version > revisions[-1][0]:
                revisions.append((version, None if kind == "DELETED" else thing["spec"]))

    def _fold_workload(self, kind: str, workload: Json, version: int) -> None:
        """Give each group of a Workload its least number; None to those that it does not have any more."""
        name, groups = workload["metadata"]["name"], workload["spec"]["podGroups"]
        known = self._workload_versions.get(name, 0)
        if version < known or (version == known and kind != "DELETED"):
            return
        self._workload_versions[name] = version
        of_policy = {f"{name}:{each['name']}": each["policy"].get("gang") for each in groups}
        before = [gang for gang in self.gangs if gang.startswith(f"{name}:")]
        for gang in {**dict.fromkeys(before), **of_policy}:
            least = of_policy[gang]["minCount"] if of_policy.get(gang) else 1
            there = gang in of_policy and kind != "DELETED"
            self.gangs.setdefault(gang, []).append((version, least if there else None))

    def states_of(self, gang: str) -> list[tuple[int, int | None]]:
        """Return all states of what a gang is one of, a PodGroup or a group of a Workload."""
        return self.gangs.get(":".join(gang.split(":")[:2]), [])

    def _fold_ended(self, key: str, uid: str) -> None:
        """Take the word of an executor that a pod is gone; it knows no version."""
        known = self.alive.get(key)
        self._uids.add(uid)
        if known is not None and known.uid == uid:
            self._end(known, known.version)
        elif uid not in self.ended:
            self.ended.add(uid)
            self._end_versions[uid] = sys.maxsize

    def _fold_evicted(self, key: str, uid: str) -> None:
        """Take the word of an agent that it ended a pod, which it knows by its uid, without a version."""
        known = self.alive.get(key)
        if known is not None and known.uid != uid and uid not in self._uids:
            self._end(known, known.version)  # the log lost its end, and the beginning of this one
        self._fold_ended(key, uid)

    def _fold_pod(self, kind: str, pod: Pod) -> None:
        # Who is read for the first time, and late: the log lost what came before, and a name says nothing.
        is_new = pod.uid not in self._uids and pod.key not in self.alive
        self._uids.add(pod.uid)
        if kind != "DELETED":
            self.said.setdefault((pod.uid, pod.version), pod)
        known = self.alive.get(pod.key)
        if kind == "DELETED":
            if known is not None and known.uid == pod.uid:
                self._end(known, pod.version)
                self._pod_versions[pod.key] = max(pod.version, self._pod_versions[pod.key])
            else:
                self._miss(pod)
            return
        if pod.version <= self._pod_versions.get(pod.key, 0) and not is_new:
            return
        if pod.uid in self.ended and pod.version <= self._end_versions[pod.uid]:
            return  # a uid comes back only with a newer version than that of its end
        if pod.finished and (known is None or known.uid != pod.uid):
            self._miss(pod)
        if known is None and pod.finished:
            return
        self._pod_versions[pod.key] = pod.version
        if known is not None and (known.uid != pod.uid or pod.finished):
            self._end(known, pod.version)
        if not pod.finished:
            self.alive[pod.key] = pod

    def _end(self, pod: Pod, version: int) -> None:
        self.ended.add(pod.uid)
        self._end_versions[pod.uid] = version
        del self.alive[pod.key]

    def _miss(self, pod: Pod) -> None:
        """Remember a pod that was gone before it was known."""
        if pod.uid not in self.ended:
            self.ended.add(pod.uid)
            self._end_versions[pod.uid] = pod.version

    def _fold_usage(self, record: Record, event: Json, said: Json) -> None:
        at_ms = moment_ms(event["at"]) if "at" in event else record.timestamp_ms
        if at_ms > record.timestamp_ms + _AHEAD_MS_MAX:
            self.broken.append((record.topic, record.partition, record.offset))
            return
        node = said["metadata"]["name"]
        if said["kind"] == "NodeAction":
            self.actions[node, at_ms, said["reason"]] += 1
            return
        at = record.topic, record.partition, record.offset
        if "percent" not in said and (*at, event["id"]) in self._letters:
            self.broken.append(at)
            self.refused.append(node)
            return
        if "percent" in said:
            self.usage.setdefault(node, []).append((at_ms, float(said["percent"]["cpu"])))
        if "quality" in said:
            self.measured.append(Measurement(node, at_ms, said["quality"], said.get("pods", {})))

    def _fold_policy(self, kind: str, policy: Json, version: int) -> None:
        name = policy["metadata"]["name"]
        known = self._policy_versions.get(name)
        if version < (known or 0) or (kind == "DELETED" and known is None):
            return
        if kind == "DELETED" or version > (known or 0):
            self._policy_versions[name] = version
            self.policies.append((name, None if kind == "DELETED" else policy["spec"]))

    def _fold_node(self, kind: str, manifest: Json, version: int) -> None:
        name = manifest["metadata"]["name"]
        states = self.nodes.get(name, [])
        known = self._node_versions.get(name, 0)
        if kind == "DELETED":
            if states and not states[-1].gone:
                self.nodes[name] = [*states, Node(gone=True)]
                self._node_versions[name] = max(version, known)
            return
        node = read_node(manifest)
        if version > known and not (states and states[-1] == node):  # a heartbeat leaves no trace
            self.nodes[name] = [*states, node]
            self._node_versions[name] = version
