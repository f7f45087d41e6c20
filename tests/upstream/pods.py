"""Draws pods: each feature of a family changes a pod with some probability."""

from __future__ import annotations

import copy
from collections.abc import Callable

from tests.upstream.draw import HOSTNAME, LABELS, NAMESPACES, TOPOLOGY_KEYS, ZONE, Draw, Json, keys_of
from tests.upstream.nodes import IMAGES, TAINTS

COMPARING = ("Lt", "Gt")
"""Operators of tolerations that the API server takes only from pods that have them already."""

_NAMES = ("main", "side", "third")
_PORTS = (8080, 8081, 9000)
_TERMINATED_AT = "2026-01-01T00:00:00Z"


def template(draw: Draw, features: frozenset[str], of: float) -> Json:
    """Return a pod without a name, with each of the features in a share of the draws."""
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": draw.choice(("default", *NAMESPACES)), "labels": draw.labels()},
        "spec": {"containers": [_container(draw, name) for name in draw.some(_NAMES, 1, 2)]},
    }
    for name, change in FEATURES_OF_PODS.items():
        if name in features and draw.chance(of):
            change(draw, pod)
    return pod


def named(pod: Json, name: str) -> Json:
    """Return a pod of a template."""
    made = copy.deepcopy(pod)
    made["metadata"]["name"] = name
    return made


def bound(draw: Draw, pod: Json, node: str, features: frozenset[str]) -> Json:
    """Change a pod into one that is on a node already, and return it."""
    pod["spec"]["nodeName"] = node
    if draw.chance(0.08):
        pod["metadata"] |= {"deletionTimestamp": _TERMINATED_AT, "deletionGracePeriodSeconds": 30}
    if draw.chance(0.05):
        pod["status"] = {"phase": draw.choice(("Succeeded", "Failed", "Running"))}
    if "resize" in features and draw.chance(0.6):
        _resized(draw, pod)
    return pod


def _container(draw: Draw, name: str) -> Json:
    container: Json = {"name": name, "image": draw.choice(("web", "web:v1", "tiny:1"))}
    requests: Json = {}
    if draw.chance(0.75):
        requests["cpu"] = draw.cpu(50, 1500)
    if draw.chance(0.75):
        requests["memory"] = draw.memory(50, 2500)
    if draw.chance(0.03):
        requests["cpu"] = "0"
    if draw.chance(0.05):
        requests["ephemeral-storage"] = draw.memory(100, 5000)
    if requests:
        container["resources"] = {"requests": requests}
        if draw.chance(0.1):
            container["resources"] = {"limits": requests}  # the API server makes requests of them
    return container


# -------------------------------------------------------------------------------------------- resources


def _large(draw: Draw, pod: Json) -> None:
    requests = {"cpu": draw.cpu(1000, 12000), "memory": draw.memory(1000, 20000)}
    pod["spec"]["containers"][0]["resources"] = {"requests": dict(draw.some(list(requests.items()), 1, 2))}


def _extended(draw: Draw, pod: Json) -> None:
    container = draw.choice(pod["spec"]["containers"])
    amounts: Json = {"cpu": draw.cpu(50, 900)}
    if draw.chance(0.7):
        amounts["example.com/gpu"] = str(draw.choice((0, 1, 1, 2, 4, 9)))
    if draw.chance(0.3):
        amounts["hugepages-2Mi"] = f"{2 * draw.randint(1, 150)}Mi"
    if draw.chance(0.1):
        amounts["example.com/nowhere"] = "1"
    container["resources"] = {"limits": amounts, "requests": dict(amounts)}


def _init(draw: Draw, pod: Json) -> None:
    made = []
    for i in range(draw.randint(1, 3)):
        container = _container(draw, f"init-{i}")
        if draw.chance(0.5):
            container["restartPolicy"] = "Always"
        made.append(container)
    pod["spec"]["initContainers"] = made


def _overhead(draw: Draw, pod: Json) -> None:
    pod["spec"]["overhead"] = {"cpu": draw.cpu(10, 400), "memory": draw.memory(10, 400)}
    pod["spec"]["runtimeClassName"] = "kata"


def _pod_level(draw: Draw, pod: Json) -> None:
    """Ask for more than the containers together, as validation demands."""
    spec = pod["spec"]
    alone = draw.chance(0.5)
    for container in (*spec["containers"], *spec.get("initContainers", [])):
        container.pop("resources", None)
        if not alone and draw.chance(0.7):
            container["resources"] = {"requests": {"cpu": draw.cpu(50, 300), "memory": draw.memory(50, 300)}}
    whole = {"cpu": draw.cpu(1600, 4000), "memory": draw.memory(1800, 5000)}
    part = dict(draw.some(list(whole.items()), 1, 2))
    spec["resources"] = draw.choice(
        ({"requests": part}, {"limits": part}, {"requests": part, "limits": part})
    )


def _resized(draw: Draw, pod: Json) -> None:
    status = pod.setdefault("status", {})
    statuses: Json = {"containerStatuses": [], "initContainerStatuses": []}
    for key, name in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")):
        for container in pod["spec"].get(name, []):
            found: Json = {
                "name": container["name"], "image": "i", "imageID": "i", "ready": True, "restartCount": 0,
            }  # fmt: skip
            if draw.chance(0.7):
                found["resources"] = {"requests": _some_requests(draw)} if draw.chance(0.9) else {}
            if draw.chance(0.7):
                found["allocatedResources"] = _some_requests(draw)
            if draw.chance(0.9):
                statuses[key].append(found)
    status |= {key: value for key, value in statuses.items() if value}
    if draw.chance(0.5):
        status["conditions"] = [
            {"type": kind, "status": "True", "reason": draw.choice(("Infeasible", "Deferred"))}
            for kind in draw.choice(
                (["PodResizePending"], ["PodReady", "PodResizePending"], ["PodResizeInProgress"])
            )
        ]
    if "resources" in pod["spec"]:
        if draw.chance(0.7):
            status["resources"] = {"requests": _some_requests(draw)}
        if draw.chance(0.7):
            status["allocatedResources"] = _some_requests(draw)


def _some_requests(draw: Draw) -> Json:
    amounts = {"cpu": draw.cpu(50, 2500), "memory": draw.memory(50, 3500)}
    return dict(draw.some(list(amounts.items()), 1, 2))


# ---------------------------------------------------------------------------------- nodes that it wants


def _tolerations(draw: Draw, pod: Json) -> None:
    made: list[Json] = []
    for key, values in draw.some(TAINTS, 1, 2):
        toleration: Json = {"key": key}
        if draw.chance(0.4):
            toleration["operator"] = "Exists"
        else:
            toleration["value"] = draw.choice(values)
            if draw.chance(0.5):
                toleration["operator"] = "Equal"
        if draw.chance(0.5):
            toleration["effect"] = draw.choice(("NoSchedule", "PreferNoSchedule", "NoExecute"))
        made.append(toleration)
    if draw.chance(0.1):
        made.append({"operator": "Exists"})
    if draw.chance(0.1):
        made.append({"key": "sla", "operator": draw.choice(COMPARING), "value": "5"})
    if draw.chance(0.2):
        made.append({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"})
    pod["spec"]["tolerations"] = made


def _node_affinity(draw: Draw, pod: Json) -> None:
    affinity: Json = {}
    if draw.chance(0.3):
        pod["spec"]["nodeSelector"] = {"disk": draw.choice(("ssd", "hdd"))}
    if draw.chance(0.6):
        terms = [_node_term(draw) for _ in range(draw.randint(1, 2))]
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if draw.chance(0.7):
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": draw.randint(1, 100), "preference": _node_term(draw)}
            for _ in range(draw.randint(1, 3))
        ]
    pod["spec"].setdefault("affinity", {})["nodeAffinity"] = affinity


def _node_term(draw: Draw) -> Json:
    term: Json = {}
    if draw.chance(0.9):
        term["matchExpressions"] = [_node_requirement(draw) for _ in range(draw.randint(1, 2))]
    if draw.chance(0.15):
        operator = draw.choice(("In", "In", "NotIn"))
        field = {"key": "metadata.name", "operator": operator, "values": [f"n{draw.randint(0, 6)}"]}
        term["matchFields"] = [field, *([field] if draw.chance(0.2) else [])]
    return term


def _node_requirement(draw: Draw) -> Json:
    if draw.chance(0.3):
        operator, value = draw.choice(("Gt", "Lt")), draw.choice(("0", "1", "2", "5"))
        return {"key": "gen", "operator": operator, "values": [value]}
    values = {"disk": ("ssd", "hdd"), ZONE: ("a", "b", ""), HOSTNAME: ("n0", "n1", "n2", "shared")}
    key = draw.choice(list(values))
    return draw.requirement(key, values[key])


def _ports(draw: Draw, pod: Json) -> None:
    spec = pod["spec"]
    if draw.chance(0.1):
        spec["hostNetwork"] = True
        spec["containers"][0]["ports"] = [{"containerPort": draw.choice(_PORTS)}]
        return
    taken = set()
    containers = [*spec["containers"], *spec.get("initContainers", [])]
    for _ in range(draw.randint(1, 3)):
        port: Json = {"containerPort": 80, "hostPort": draw.choice(_PORTS)}
        if draw.chance(0.4):
            port["hostIP"] = draw.choice(("0.0.0.0", "127.0.0.1", "10.0.0.7", "::"))
        if draw.chance(0.3):
            port["protocol"] = draw.choice(("TCP", "UDP"))
        written = (port["hostPort"], port.get("hostIP", ""), port.get("protocol", "TCP"))
        if written not in taken:
            taken.add(written)
            draw.choice(containers).setdefault("ports", []).append(port)


def _images(draw: Draw, pod: Json) -> None:
    spec, names = pod["spec"], [*IMAGES, "unheard-of"]
    for container in (*spec["containers"], *spec.get("initContainers", [])):
        container["image"] = draw.choice(names)
    if draw.chance(0.3):
        spec["volumes"] = [
            {"name": f"data-{i}", "image": {"reference": draw.choice(names)}}
            for i in range(draw.randint(1, 2))
        ]


def _restart_rules(draw: Draw, pod: Json) -> None:
    action = draw.choice(("RestartAllContainers", "RestartAllContainers", "Restart"))
    rule = {"action": action, "exitCodes": {"operator": "In", "values": [42]}}
    pod["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}


# ------------------------------------------------------------------------------------------- other pods


def _spread(draw: Draw, pod: Json) -> None:
    made: list[Json] = []
    for _ in range(draw.randint(1, 3)):
        constraint: Json = {
            "topologyKey": draw.choice(TOPOLOGY_KEYS),
            "whenUnsatisfiable": draw.choice(("DoNotSchedule", "ScheduleAnyway", "ScheduleAnyway")),
            "maxSkew": draw.choice((1, 1, 2, 3, 5)),
        }
        if any(
            all(constraint[key] == each[key] for key in ("topologyKey", "whenUnsatisfiable")) for each in made
        ):
            continue
        selector = draw.selector()
        if draw.chance(0.4):
            selector = {"matchLabels": dict(draw.some(list(pod["metadata"]["labels"].items()), 1, 1))}
        if selector is not None:
            constraint["labelSelector"] = selector
            keys = sorted(set(LABELS) - keys_of(selector))
            if keys and draw.chance(0.25):
                constraint["matchLabelKeys"] = draw.some(keys, 1, 2)
        if constraint["whenUnsatisfiable"] == "DoNotSchedule" and draw.chance(0.3):
            constraint["minDomains"] = draw.randint(1, 5)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if draw.chance(0.3):
                constraint[policy] = draw.choice(("Honor", "Ignore"))
        made.append(constraint)
    pod["spec"]["topologySpreadConstraints"] = made


def _inter_pod(draw: Draw, pod: Json) -> None:
    affinity = pod["spec"].setdefault("affinity", {})
    for kind in draw.some(("podAffinity", "podAntiAffinity"), 1, 2):
        terms: Json = {}
        if draw.chance(0.6):
            terms["requiredDuringSchedulingIgnoredDuringExecution"] = [
                _term(draw, pod) for _ in range(draw.randint(1, 2))
            ]
        if draw.chance(0.6):
            terms["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": draw.randint(1, 100), "podAffinityTerm": _term(draw, pod)}
                for _ in range(draw.randint(1, 3))
            ]
        affinity[kind] = terms


def _term(draw: Draw, pod: Json) -> Json:
    term: Json = {"topologyKey": draw.choice(TOPOLOGY_KEYS)}
    selector = draw.selector()
    if draw.chance(0.4):
        selector = {"matchLabels": dict(draw.some(list(pod["metadata"]["labels"].items()), 1, 1))}
    if selector is not None:
        term["labelSelector"] = selector
        keys = sorted(set(LABELS) - keys_of(selector))
        draw.shuffle(keys)
        if keys and draw.chance(0.2):
            term["matchLabelKeys"] = [keys.pop()]
        if keys and draw.chance(0.2):
            term["mismatchLabelKeys"] = [keys.pop()]
    if draw.chance(0.25):
        term["namespaces"] = draw.some(NAMESPACES, 1, 2)
    if draw.chance(0.3):
        term["namespaceSelector"] = _namespace_selector(draw)
    return term


def _namespace_selector(draw: Draw) -> Json:
    if draw.chance(0.3):
        return {}
    if draw.chance(0.3):
        key = "kubernetes.io/metadata.name"
        return {"matchExpressions": [draw.requirement(key, NAMESPACES)]}
    return {"matchExpressions": [draw.requirement("team", ("red", "blue"))]}


def _owner(draw: Draw, pod: Json) -> None:
    version, kind = draw.choice(
        (
            ("v1", "ReplicationController"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"),
            ("batch/v1", "Job"), ("apps/v1beta1", "ReplicaSet"),
        )
    )  # fmt: skip
    name = f"owner-{draw.randint(0, 3)}"
    pod["metadata"]["ownerReferences"] = [
        {
            "apiVersion": version,
            "kind": kind,
            "name": name,
            "uid": f"{kind}-{name}",
            "controller": draw.chance(0.9),
        }
    ]


FEATURES_OF_PODS: dict[str, Callable[[Draw, Json], None]] = {
    "large": _large,
    "init": _init,
    "extended": _extended,
    "overhead": _overhead,
    "pod-level": _pod_level,
    "taints": _tolerations,
    "node-affinity": _node_affinity,
    "ports": _ports,
    "images": _images,
    "declared": _restart_rules,
    "spread": _spread,
    "inter-pod": _inter_pod,
    "owners": _owner,
}
"""Features of pods, in the order in which they change one."""
