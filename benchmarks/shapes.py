"""Shapes as a data table: what the pods of a workload ask of other pods, and which zones their nodes are in.

The shapes from ``spread-zone-hard`` to ``namespaces-affinity`` are those of kube-scheduler's own benchmark
(``test/integration/scheduler_perf``): pods that all match each other. ``deployments-500`` is what they do not
have: many selectors, each of which matches few of the pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

Json = dict[str, Any]

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
TEAM = {"team": "bench"}

Kind = Callable[[int], Json]
"""Returns the labels, the owner and the rest of the spec of a pod of a group, by the group's number."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """``kinds`` of measured pods take turns, one per group.

    ``before`` are the kinds of the pods that are there before the clock starts, () for the same. ``zones`` 0:
    nodes have no zone. The pods take turns in the ``namespaces``; where there are several, each has the
    labels ``TEAM``.
    """

    zones: int = 3
    namespaces: int = 1
    kinds: tuple[Kind, ...]
    before: tuple[Kind, ...] = ()


def _plain(_: int) -> Json:
    return {"labels": {"app": "bench"}}


def _colour(name: str, **affinity: Json) -> Json:
    return {"labels": {"colour": name}, "affinity": affinity}


def _matching(**labels: str) -> Json:
    return {"matchLabels": labels}


def _term(colour: str, topology_key: str, **more: Json) -> Json:
    return {"topologyKey": topology_key, "labelSelector": _matching(colour=colour), **more}


def _required(term: Json) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _preferred(term: Json, weight: int = 1) -> Json:
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": term}]}


def _spread(selector: Json, max_skew: int, *, hard: bool) -> Json:
    return {
        "maxSkew": max_skew,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": selector,
    }


def _spread_hard(_: int) -> Json:
    constraint = _spread(_matching(colour="blue"), 5, hard=True)
    return {"labels": {"colour": "blue"}, "topologySpreadConstraints": [constraint]}


def _spread_soft(_: int) -> Json:
    constraint = _spread(_matching(colour="blue"), 5, hard=False)
    return {"labels": {"colour": "blue"}, "topologySpreadConstraints": [constraint]}


def _affinity_required(_: int) -> Json:
    return _colour("blue", podAffinity=_required(_term("blue", ZONE)))


def _affinity_preferred(_: int) -> Json:
    return _colour("red", podAffinity=_preferred(_term("red", HOST)))


def _anti_required(_: int) -> Json:
    return _colour("green", podAntiAffinity=_required(_term("green", HOST)))


def _anti_preferred(_: int) -> Json:
    return _colour("yellow", podAntiAffinity=_preferred(_term("yellow", HOST)))


def _team_anti(_: int) -> Json:
    term = _term("green", HOST, namespaceSelector=_matching(**TEAM))
    return _colour("green", podAntiAffinity=_required(term))


def _team_affinity(_: int) -> Json:
    return _colour("blue", podAffinity=_required(_term("blue", ZONE, namespaceSelector=_matching(**TEAM))))


def _deployment(group: int) -> Json:
    """Return a pod of a Deployment: spread over zones, and over nodes where that is possible."""
    name, made = f"web-{group:05}", f"{group * 2_654_435_761 % 2**32:08x}"
    app = {"app": name}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-{made}", "uid": f"uid-{name}"}
    term = {"topologyKey": HOST, "labelSelector": _matching(**app)}
    return {
        "labels": {**app, "pod-template-hash": made},
        "ownerReferences": [{**owner, "controller": True}],
        "topologySpreadConstraints": [_spread(_matching(**app), 1, hard=True)],
        "affinity": {"podAntiAffinity": _preferred(term, 100)},
    }


SHAPES: Mapping[str, Shape] = {
    "plain": Shape(zones=0, kinds=(_plain,)),
    "plain-zones": Shape(kinds=(_plain,)),
    "spread-zone-hard": Shape(kinds=(_spread_hard,), before=(_plain,)),
    "spread-zone-soft": Shape(kinds=(_spread_soft,), before=(_plain,)),
    "affinity-zone": Shape(zones=1, kinds=(_affinity_required,)),
    "affinity-host-soft": Shape(kinds=(_affinity_preferred,)),
    "anti-host": Shape(kinds=(_anti_required,)),
    "anti-host-soft": Shape(kinds=(_anti_preferred,)),
    "mixed": Shape(
        zones=1,
        kinds=(_plain, _affinity_required, _affinity_preferred, _anti_required, _anti_preferred),
    ),
    "namespaces-anti": Shape(namespaces=100, kinds=(_team_anti,)),
    "namespaces-affinity": Shape(zones=1, namespaces=100, kinds=(_team_affinity,)),
    "deployments": Shape(kinds=(_deployment,)),
}
"""All shapes by name."""
