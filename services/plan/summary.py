"""The summary of a plan: placed pods by node pool, waiting pods by reason, and the missing resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from domain.engine.evaluate import Verdict
from domain.model.decisions import GangSeen
from domain.model.nodes import NodeSpec
from domain.plugins.view import NodeView
from domain.state.cluster import ClusterState
from services.plan.plan import Planned

POOL_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "node.cluster.x-k8s.io/nodepool",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
)
"""Labels by which clusters name their node pools, the most specific first."""

POOLS_MAX = 12
WAITING_MAX = 8
_OTHERS_MAX = 2
_NOT_OF_A_POOL = ("pods", "ephemeral-storage")


class Pool(NamedTuple):
    """Nodes that belong together: how many, how many of the planned pods went there, what is requested now.

    ``used`` maps a resource to percent of what its nodes offer.
    """

    name: str
    nodes_count: int
    placed_count: int
    used: dict[str, float]


class Waiting(NamedTuple):
    """Pods that wait for reasons of the same kinds, or for the others of one gang.

    ``reasons`` counts nodes per reason as the first of the pods saw them; a node that lacks two resources
    counts for both. ``nodes_count`` is that of all nodes. ``gang`` says what a gang lacks.
    """

    pods_count: int
    example: str
    reasons: dict[str, int]
    nodes_count: int
    gang: GangSeen | None


class Summary(NamedTuple):
    """A plan in a few lines.

    ``grouped_by`` is the label that names the pools, or empty where nodes that offer the same are one pool.
    ``short_of`` sums the requests of the waiting pods for resources that nodes lacked. ``free`` is what all
    nodes together have left of them.
    """

    pods_count: int
    placed_count: int
    nodes_count: int
    nodes_used_count: int
    grouped_by: str
    pools: list[Pool]
    waiting: list[Waiting]
    short_of: dict[str, int]
    free: dict[str, int]


def summarise(state: ClusterState, planned: Sequence[Planned]) -> Summary:
    """Return the summary of a plan."""
    label, names = pool_names(state.table.specs)
    nodes = [each.node for each in planned if each.node is not None]
    waiting = [each for each in planned if each.node is None]
    short_of = _short_of(waiting)
    view = NodeView(state)
    rows = view.all_rows()
    free = {
        name: int(np.maximum(view.allocatable(name, rows) - view.requested(name, rows), 0).sum())
        for name in short_of
    }
    return Summary(
        pods_count=len(planned),
        placed_count=len(nodes),
        nodes_count=state.table.count,
        nodes_used_count=len(set(nodes)),
        grouped_by=label,
        pools=_pools(state, names, nodes),
        waiting=_waiting(waiting),
        short_of=short_of,
        free=free,
    )


def pool_names(specs: Sequence[NodeSpec]) -> tuple[str, list[str]]:
    """Return the label that names the pools (empty: there is none), and per node the name of its pool."""
    for label in POOL_LABELS:
        if 2 * sum(label in spec.labels for spec in specs) > len(specs):
            return label, [spec.labels.get(label, "(none)") for spec in specs]
    return "", [_offers(spec) for spec in specs]


def imbalance(state: ClusterState, resource: str = "cpu") -> float:
    """Return the standard deviation over all nodes of what is requested, in percent of what is offered."""
    view = NodeView(state)
    rows = view.all_rows()
    offered = view.allocatable(resource, rows)
    if not (offered > 0).any():
        return 0.0
    return float(np.std(100.0 * view.requested(resource, rows)[offered > 0] / offered[offered > 0]))


def in_units(name: str, value: int) -> str:
    """Return an amount as a person says it: ``12 nvidia.com/gpu``, ``300 cpu``, ``1.2Ti memory``."""
    number = value / 1000 if name == "cpu" else float(value)
    suffix = ""
    if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
        for unit in ("Ki", "Mi", "Gi", "Ti", "Pi"):
            if number < 1024:
                break
            number, suffix = number / 1024, unit
    return f"{number:,.0f}{suffix} {name}" if number >= 100 else f"{number:.3g}{suffix} {name}"


def compact(planned: Planned) -> dict[str, object]:
    """Return a pod's answer without its nodes; counts and candidates are those of its group's attempt."""
    attempt = planned.attempt
    return {
        "pod": planned.pod.key,
        "outcome": planned.outcome,
        "node": planned.node,
        "score": planned.score,
        "reasons": attempt.reasons if planned.node else attempt.reasons_at_failure,
        "warnings": list(attempt.warnings or ()),
        "candidates": [msgspec.to_builtins(each) for each in attempt.candidates] if planned.node else [],
        **({"devices": list(planned.pod.devices)} if planned.pod.devices else {}),
        **({"gang": msgspec.to_builtins(attempt.gang)} if attempt.gang else {}),
        **({"rules": msgspec.to_builtins(attempt.rules)} if attempt.rules else {}),
    }


def full(verdict: Verdict) -> dict[str, object]:
    """Return a pod's answer with every node; what is about preemption, only where it could be needed."""
    found: dict[str, object] = msgspec.to_builtins(verdict)
    silent = ["warnings", "rules", "gang", "devices"]
    if verdict.feasible or verdict.held_by:
        silent += ["preemption_might_help", "victims", "pdb_violations", "pdb_groups", "evictions"]
    for name in silent:
        if not found[name]:
            del found[name]
    return found


def _offers(spec: NodeSpec) -> str:
    offered = [(name, value) for name, value in spec.allocatable.items() if value]
    said = (in_units(*each) for each in offered if each[0] not in _NOT_OF_A_POOL)
    return ", ".join(_short(text) for text in said) or "nothing"


def _short(amount: str) -> str:
    """Return ``8 gpu`` of ``8 nvidia.com/gpu``, ``32Gi`` of ``32Gi memory``."""
    number, _, name = amount.partition(" ")
    return number if name == "memory" else f"{number} {name.rpartition('/')[2]}"


def _pools(state: ClusterState, names: Sequence[str], nodes: Sequence[str]) -> list[Pool]:
    """Return the largest pools, the rest as one."""
    sizes: dict[str, int] = {}
    for name in names:
        sizes[name] = sizes.get(name, 0) + 1
    ordered = sorted(sizes, key=lambda name: (-sizes[name], name))
    shown = ordered if len(ordered) <= POOLS_MAX else ordered[: POOLS_MAX - 1]
    titles = [*shown, f"{len(ordered) - len(shown)} more pools"] if len(shown) < len(ordered) else shown
    place = {name: min(i, len(titles) - 1) for i, name in enumerate(ordered)}
    of_row = np.array([place[name] for name in names], dtype=np.int64)
    placed = np.bincount(of_row[[state.table.rows[node] for node in nodes]], minlength=len(titles))
    used = {
        resource: _used_percent(state, resource, of_row, len(titles)) for resource in _resources_shown(state)
    }
    return [
        Pool(
            title,
            int((of_row == i).sum()),
            int(placed[i]),
            {resource: float(percent[i]) for resource, percent in used.items() if not np.isnan(percent[i])},
        )
        for i, title in enumerate(titles)
    ]


def _used_percent(state: ClusterState, resource: str, of_row: np.ndarray, pools: int) -> np.ndarray:
    view = NodeView(state)
    rows = view.all_rows()
    requested = np.bincount(of_row, weights=view.requested(resource, rows), minlength=pools)
    offered = np.bincount(of_row, weights=view.allocatable(resource, rows), minlength=pools)
    percent = np.full(pools, np.nan)
    np.divide(100.0 * requested, offered, out=percent, where=offered > 0)
    return percent


def _resources_shown(state: ClusterState) -> list[str]:
    """Return cpu, memory, and the devices that most nodes offer."""
    counts: dict[str, int] = {}
    for spec in state.table.specs:
        for name, value in spec.allocatable.items():
            if value and "/" in name:
                counts[name] = counts.get(name, 0) + 1
    others = sorted(counts, key=lambda name: (-counts[name], name))
    return ["cpu", "memory", *others[:_OTHERS_MAX]]


def _waiting(planned: Sequence[Planned]) -> list[Waiting]:
    """Group pods that wait by their gangs or reasons, the most pods first."""
    groups: dict[str | frozenset[str], list[Planned]] = {}
    for each in planned:
        attempt = each.attempt
        of = attempt.gang.name if attempt.gang else frozenset(apart(attempt.reasons_at_failure))
        groups.setdefault(of, []).append(each)
    return [
        Waiting(
            len(group),
            group[0].pod.key,
            apart(group[0].attempt.reasons_at_failure),
            group[0].attempt.nodes_count,
            group[0].attempt.gang or None,
        )
        for group in sorted(groups.values(), key=lambda group: -len(group))
    ]


def apart(reasons: Mapping[str, int]) -> dict[str, int]:
    """Return nodes per single reason. A node that lacks cpu and memory counts for both."""
    found: dict[str, int] = {}
    for code, count in reasons.items():
        for part in code.split(","):
            found[part] = found.get(part, 0) + count
    return found


def _short_of(planned: Sequence[Planned]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in planned:
        for part in apart(each.attempt.reasons_at_failure):
            kind, _, name = part.partition(":")
            if kind == "too-many-pods":
                name = "pods"
            elif kind != "insufficient":
                continue
            asked = 1 if name == "pods" else each.pod.template.requests.get(name, 0)
            found[name] = found.get(name, 0) + asked
    return dict(sorted((name, value) for name, value in found.items() if value))
