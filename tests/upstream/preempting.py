"""Draws clusters that are nearly full, and one pod that finds no node unless others go."""

from __future__ import annotations

from tests.upstream.draw import LABELS, Draw, Json
from tests.upstream.nodes import namespaces, nodes
from tests.upstream.pods import named, template

_PRIORITIES = (-10, 0, 0, 5, 5, 10, 100)
_PREEMPTORS = (0, 5, 10, 10, 100, 100, 1000, 1000)
_HOMES = ("default", "default", "default", "team-a")
_STARTS = 60
_EVICTED_AT = "2026-01-01T02:00:00Z"


def preempting(draw: Draw, features: frozenset[str]) -> tuple[list[Json], Json]:
    """Return the objects of a cluster, and the pod that comes."""
    count = draw.randint(1, 8) if draw.chance(0.9) else draw.randint(8, 25)
    objects = [*namespaces(draw), *nodes(draw, count, features)]
    of = draw.choice((0.15, 0.3, 0.6))
    shapes = [_shape(draw, features, of) for _ in range(draw.randint(1, 5))]
    is_plain = draw.chance(0.25)  # pods are much alike, so that nodes are equally good
    fewest, most = draw.choice(((0, 9), (3, 6), (4, 9)))
    number = 0
    for node in range(count):
        ports: set[tuple[int, str]] = set()
        starts = draw.sample(range(most if is_plain else _STARTS), most)  # none twice on a node
        for start in starts[: draw.randint(fewest, most)]:
            pod = _placed(draw, named(draw.choice(shapes), f"old-{number}"), f"n{node}", start)
            if is_plain:
                pod["spec"]["priority"] = 0
            if "spread" in features:
                _stay(pod)
            _hold(pod, ports)
            objects.append(pod)
            number += 1
        if draw.chance(0.1) and objects[-1]["kind"] == "Pod":
            objects[-1]["status"].pop("startTime", None)
    objects += [_budget(draw, f"budget-{i}", number) for i in range(draw.choice((0, 0, 1, 2, 4)))]
    pod = named(_shape(draw, features, of), "new")
    if draw.chance(0.8):
        _ask(draw, pod, 500, 5000)
    _count_somebody(pod)
    pod["spec"]["priority"] = draw.choice(_PREEMPTORS)
    if draw.chance(0.5):
        pod["metadata"]["labels"] = draw.choice(shapes)["metadata"]["labels"]
    if draw.chance(0.03):
        pod["spec"]["preemptionPolicy"] = draw.choice(("Never", "Never", "PreemptLowerPriority"))
    if "nominated" in features:
        for i in range(draw.choice((0, 1, 2, 4))):
            other = named(draw.choice(shapes), f"nominated-{i}")
            other["spec"]["priority"] = draw.choice(_PREEMPTORS)
            other["status"] = {"nominatedNodeName": f"n{draw.randrange(count)}"}
            objects.append(other)
        if draw.chance(0.5):
            pod["status"] = {"nominatedNodeName": f"n{draw.randrange(count)}"}
    return objects, pod


def _shape(draw: Draw, features: frozenset[str], of: float) -> Json:
    pod = template(draw, features, of)
    pod["metadata"]["namespace"] = draw.choice(_HOMES)
    if draw.chance(0.7):
        _ask(draw, pod, 300, 2500)
    return pod


def _ask(draw: Draw, pod: Json, low: int, high: int) -> None:
    """Ask for much in one container, and for nothing in the others."""
    first, *others = pod["spec"]["containers"]
    for each in others:
        each.pop("resources", None)
    first["resources"] = {"requests": {"cpu": draw.cpu(low, high), "memory": draw.memory(low, high)}}


def _placed(draw: Draw, pod: Json, node: str, start: int) -> Json:
    pod["spec"] |= {"nodeName": node, "priority": draw.choice(_PRIORITIES)}
    pod["status"] = {"startTime": f"2026-01-01T00:{start:02}:00Z"}
    if draw.chance(0.3):
        pod["metadata"]["labels"] = draw.labels()
    if draw.chance(0.1):
        pod["metadata"] |= {"deletionTimestamp": _EVICTED_AT, "deletionGracePeriodSeconds": 30}
        if draw.chance(0.6):
            reason = draw.choice(("PreemptionByScheduler", "PreemptionByScheduler", "EvictionByEvictionAPI"))
            pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": reason}]
    return pod


def _stay(pod: Json) -> None:
    """Let a pod not be leaving: upstream counts such a pod in no spread, and yet one less when it is gone."""
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        pod["metadata"].pop(key, None)


def _count_somebody(pod: Json) -> None:
    """Drop hard constraints that select all pods: upstream counts none, and yet one less when one is gone."""
    constraints = pod["spec"].get("topologySpreadConstraints", [])
    hard = [each for each in constraints if each["whenUnsatisfiable"] == "DoNotSchedule"]
    for each in hard:
        if each.get("labelSelector") == {}:
            constraints.remove(each)


def _hold(pod: Json, taken: set[tuple[int, str]]) -> None:
    """Take the host ports of a pod away where another pod of the node has one of them.

    Two pods never hold one port, and upstream frees it as soon as one of them goes.
    """
    spec = pod["spec"]
    containers = [*spec["containers"], *spec.get("initContainers", [])]
    ports = [port for each in containers for port in each.get("ports", [])]
    own = {(port.get("hostPort", port["containerPort"]), port.get("protocol", "TCP")) for port in ports}
    if own & taken:
        spec.pop("hostNetwork", None)
        for each in containers:
            each.pop("ports", None)
    else:
        taken |= own


def _budget(draw: Draw, name: str, pods_count: int) -> Json:
    """Return a budget with a status: kube-scheduler itself takes one without a status for exhausted."""
    selector = draw.selector()
    if draw.chance(0.5):
        selector = {"matchExpressions": [draw.requirement("app", LABELS["app"])]}
    spec: Json = {draw.choice(("minAvailable", "maxUnavailable")): draw.choice((0, 1, 2, "50%"))}
    if selector is not None:
        spec["selector"] = selector
    status: Json = {
        "disruptionsAllowed": draw.choice((0, 0, 1, 1, 2, 4)),
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    }
    if draw.chance(0.3) and pods_count:
        status["disruptedPods"] = {
            f"old-{draw.randrange(pods_count)}": _EVICTED_AT for _ in range(draw.randint(1, 4))
        }
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": draw.choice(_HOMES)},
        "spec": spec,
        "status": status,
    }
