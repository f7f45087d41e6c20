"""Makes a scenario of a seed: a small cluster, pods on it, and pods that arrive one by one."""

from __future__ import annotations

from tests.upstream.draw import Draw, Json
from tests.upstream.nodes import namespaces, nodes, selecting
from tests.upstream.pods import COMPARING, bound, named, template
from tests.upstream.preempting import preempting

FAMILIES: dict[str, frozenset[str]] = {
    "fit": frozenset(("large", "pods", "init", "extended", "overhead", "pod-level")),
    "taints": frozenset(("taints",)),
    "node-affinity": frozenset(("node-affinity",)),
    "ports": frozenset(("ports", "init")),
    "images": frozenset(("images", "init")),
    "balanced": frozenset(("overhead", "init", "pod-level", "extended")),
    "resize": frozenset(("resize", "init", "pod-level")),
    "declared": frozenset(("declared", "taints")),
    "spread": frozenset(("spread",)),
    "spread-filtered": frozenset(("spread", "taints", "node-affinity", "large")),
    "inter-pod": frozenset(("inter-pod",)),
    "defaults": frozenset(("owners",)),
    "mixed": frozenset(
        (
            "large", "pods", "init", "extended", "overhead", "pod-level", "taints", "node-affinity", "ports",
            "images", "resize", "declared", "spread", "inter-pod", "owners",
        )
    ),
}  # fmt: skip
"""What the scenarios of a family are about: names of features of nodes and pods."""

PREEMPTING: dict[str, frozenset[str]] = {
    "preempt": frozenset(("extended", "overhead", "pods")),
    "preempt-ports": frozenset(("ports", "taints")),
    "preempt-spread": frozenset(("spread",)),
    "preempt-spread-filtered": frozenset(("spread", "taints", "node-affinity")),
    "preempt-inter-pod": frozenset(("inter-pod",)),
    "preempt-mixed": frozenset(
        ("pods", "init", "extended", "taints", "node-affinity", "ports", "spread", "inter-pod")
    ),
    "preempt-nominated": frozenset(("ports", "spread", "inter-pod", "nominated")),
}
"""The same of scenarios in which one pod may make room for itself."""

_TURNS = [*FAMILIES, *PREEMPTING]


def family_of(seed: int) -> str:
    """Return the family of a seed; they take turns."""
    return _TURNS[seed % len(_TURNS)]


def scenario_of(seed: int) -> Json:
    """Return the scenario of a seed, as ``berth plan`` takes it.

    ``grandfathered`` pods pass validation; ``preempt`` says that victims are asked for.
    """
    draw, family = Draw(seed), family_of(seed)
    if family in PREEMPTING:
        objects, pod = preempting(draw, PREEMPTING[family])
        return _scenario(f"{family} {seed}", objects, [pod]) | {"preempt": True}
    features, of = FAMILIES[family], 0.25 if family == "mixed" else 0.7
    count = int(10 ** draw.uniform(0, 1.3)) if draw.chance(0.9) else draw.randint(20, 70)
    objects = [*namespaces(draw), *nodes(draw, count, features)]
    selecting_objects = selecting(draw) if "owners" in features else []
    objects += selecting_objects
    templates = [template(draw, features, of) for _ in range(draw.randint(1, 6))]
    for i in range(int(count * draw.uniform(0, 2.5))):
        pod = named(draw.choice(templates), f"old-{i}")
        pod["metadata"]["labels"] = draw.labels() if draw.chance(0.5) else pod["metadata"]["labels"]
        node = f"n{draw.randrange(count)}" if draw.chance(0.97) else "gone"
        objects.append(bound(draw, pod, node, features))
    waiting = [named(draw.choice(templates), f"new-{i}") for i in range(draw.randint(1, 12))]
    _keep_known_owners(objects + waiting, selecting_objects)
    return _scenario(f"{family} {seed}", objects, waiting)


def _scenario(name: str, objects: list[Json], waiting: list[Json]) -> Json:
    return {
        "name": name,
        "objects": objects + waiting,
        "schedule": [name_of(pod) for pod in waiting],
        "grandfathered": [name_of(each) for each in objects + waiting if _compares(each)],
    }


def name_of(thing: Json) -> str:
    """Return namespace and name of an object."""
    metadata = thing["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"


def _compares(thing: Json) -> bool:
    tolerations = thing.get("spec", {}).get("tolerations", ())
    return any(each.get("operator") in COMPARING for each in tolerations)


def _keep_known_owners(objects: list[Json], known: list[Json]) -> None:
    """Give the pods of an owner that is not there another kind of owner.

    Upstream then looks at Services alone, and berth at the pods of the same owner, which is documented.
    """
    names = {(each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]) for each in known}
    for pod in objects:
        for owner in pod["metadata"].get("ownerReferences", ()):
            if (owner["kind"], pod["metadata"]["namespace"], owner["name"]) not in names:
                owner |= {"apiVersion": "batch/v1", "kind": "Job"}
