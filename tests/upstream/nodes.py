"""Draws nodes, namespaces, and the objects whose selectors default constraints are made of."""

from __future__ import annotations

from tests.upstream.draw import HOSTNAME, LABELS, NAMESPACES, ZONE, Draw, Json

IMAGES = {
    "web:v1": 310_000_000,
    "db:14.2": 97_500_000,
    "registry.local/cache": 1_420_000_000,
    "registry.local:5000/tool:2": 24_117_249,
    "registry.local/model@sha256:" + "0" * 64: 2_900_000_000,
    "tiny:1": 5_000_000,
}
"""Images with their sizes. A size is the same on all nodes: upstream takes that of the first it saw."""

TAINTS = (
    ("dedicated", ("gpu", "db")),
    ("maintenance", ("", "soon")),
    ("spot", ("true",)),
    ("sla", ("3", "7")),
)
DECLARED = ("RestartAllContainersOnContainerExits", "InPlacePodLevelResourcesVerticalScaling")


def nodes(draw: Draw, count: int, features: frozenset[str]) -> list[Json]:
    """Return nodes ``n0`` and on."""
    sizes = [_allocatable(draw, features) for _ in range(draw.randint(1, 4))]
    return [_node(draw, f"n{i}", draw.choice(sizes), features) for i in range(count)]


def _allocatable(draw: Draw, features: frozenset[str]) -> Json:
    amounts: Json = {"cpu": draw.cpu(1500, 9000), "memory": draw.memory(1500, 16000), "pods": "110"}
    if "pods" in features:
        amounts["pods"] = str(draw.choice((0, 1, 2, 3, 110)))
    if draw.chance(0.4):
        amounts["ephemeral-storage"] = draw.memory(2000, 90000)
    if "extended" in features:
        if draw.chance(0.6):
            amounts["example.com/gpu"] = str(draw.randint(0, 8))
        if draw.chance(0.3):
            amounts["hugepages-2Mi"] = f"{2 * draw.randint(0, 256)}Mi"
        if draw.chance(0.2):
            amounts["attachable-volumes-csi-x"] = str(draw.randint(0, 9))
        if draw.chance(0.05):
            del amounts[draw.choice(("cpu", "memory"))]
    return amounts


def _node(draw: Draw, name: str, allocatable: Json, features: frozenset[str]) -> Json:
    labels = {HOSTNAME: name}
    if draw.chance(0.05):
        labels[HOSTNAME] = draw.choice(("n0", "shared", ""))  # upstream takes what is written
    if draw.chance(0.05):
        del labels[HOSTNAME]
    if draw.chance(0.9):
        labels[ZONE] = draw.choice(("a", "a", "b", "c", "d", ""))
    if draw.chance(0.6):
        labels["rack"] = draw.choice(("r1", "r2", "r3"))
    if draw.chance(0.5):
        labels["disk"] = draw.choice(("ssd", "hdd"))
    if draw.chance(0.5):
        labels["gen"] = draw.choice(("1", "2", "7", "10", "007", "new", ""))
    spec: Json = {}
    if "taints" in features:
        if draw.chance(0.5):
            spec["taints"] = _taints(draw)
        if draw.chance(0.1):
            spec["unschedulable"] = True
    status: Json = {"allocatable": allocatable}
    if draw.chance(0.1):
        status = {"capacity": allocatable}
    if "images" in features:
        status["images"] = [
            {"names": [image if ":" in image.rpartition("/")[2] else f"{image}:latest"], "sizeBytes": size}
            for image, size in IMAGES.items()
            if draw.chance(0.4)
        ]
    if "declared" in features and draw.chance(0.7):
        status["declaredFeatures"] = sorted(draw.some(DECLARED, 0, 2))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": status,
    }


def _taints(draw: Draw) -> list[Json]:
    taints = []
    for key, values in draw.some(TAINTS, 1, 3):
        for effect in draw.some(("NoSchedule", "PreferNoSchedule", "PreferNoSchedule", "NoExecute"), 1, 1):
            taint = {"key": key, "effect": effect}
            if draw.chance(0.8):
                taint["value"] = draw.choice(values)
            taints.append(taint)
    return taints


def namespaces(draw: Draw) -> list[Json]:
    """Return a Namespace object for each namespace but the last."""
    found = []
    for name in NAMESPACES[:-1]:
        labels = {"team": draw.choice(("red", "blue"))} if draw.chance(0.7) else {}
        if draw.chance(0.7):
            labels["kubernetes.io/metadata.name"] = name  # the API server adds it where it is missing
        found.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    return found


OWNERS = (
    ("v1", "ReplicationController"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
)


def selecting(draw: Draw) -> list[Json]:
    """Return Services and owners of pods, which share a namespace with them or do not."""
    found = []
    for i in range(draw.randint(0, 4)):
        spec: Json = {"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"port": 80}]}
        if draw.chance(0.9):
            spec["selector"] = {key: draw.choice(LABELS[key]) for key in draw.some(list(LABELS), 0, 2)}
        found.append(_object(draw, "v1", "Service", f"service-{i}", spec))
    for i in range(draw.randint(0, 3)):
        version, kind = draw.choice(OWNERS)
        chosen = {key: draw.choice(LABELS[key]) for key in draw.some(list(LABELS), 1, 2)}
        selector: Json = {"matchLabels": chosen}
        if draw.chance(0.3):
            selector["matchExpressions"] = [{"key": "tier", "operator": "NotIn", "values": ["none"]}]
        spec = {
            "selector": chosen if version == "v1" else selector,
            "template": {
                "metadata": {"labels": chosen},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        }
        if kind == "StatefulSet":
            spec["serviceName"] = "s"
        found.append(_object(draw, version, kind, f"owner-{i}", spec))
    return found


def _object(draw: Draw, version: str, kind: str, name: str, spec: Json) -> Json:
    namespace = draw.choice(("default", "default", "team-a"))
    metadata = {"name": name, "namespace": namespace, "uid": f"{kind}-{name}"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
