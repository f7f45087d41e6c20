"""A day with everything on: also gangs, bindings that fail, nodes that lend, and agents that end pods."""

from __future__ import annotations

import time
from typing import Any

import orjson

from domain.model.decisions import Outcome
from domain.model.pods import POD_GROUP_LABEL
from services.codec.envelope import BIND_FAILED
from services.ports.log import CONFIG_TOPIC, PODS_TOPIC, Entry
from tests.simulation.scenario import Kind, Scenario

GANGS = {f"team{i}": 2 + i % 4 for i in range(8)}
"""Name of each gang, and how many of its pods run together at least."""

_GANG_SHARE, _FAILED_SHARE, _ENDED_SHARE = 0.15, 0.03, 0.06
_MORE_MEMBERS = 2
_API = "scheduling.x-k8s.io/v1alpha1"

Item = tuple[str, Entry]


class Everything(Scenario):
    """Draws records of gangs, of bindings that failed and of pods that agents ended between the others."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._bound: dict[str, str] = {}  # uid -> node, as far as heard
        self._begun: list[Item] = []  # what is yet to come of what belongs together
        kwargs["now_ms"], kwargs["bound"] = lambda: time.time_ns() // 1_000_000, self._bound.items
        super().__init__(*args, kind=Kind(preempts=True, lends=True), **kwargs)

    def hear(self, uid: str, outcome: str, node: str | None) -> None:
        """Take a decision. Nothing more is said of a pod that has to go: its end is the executor's word."""
        self._bound.pop(uid, None)
        if outcome == Outcome.BOUND and node:
            self._bound[uid] = node
        if outcome == Outcome.EVICTED:
            self.end(uid)

    def next(self) -> Item:
        """Return the next record."""
        if self._begun:
            return self._begun.pop(0)
        draw = self._rng.random()
        if draw > 1 - _ENDED_SHARE and (ended := self.lending.end_on_node()):
            self._begun += ended[1:]
            return ended[0]
        if draw < _GANG_SHARE:
            gang = self._rng.choice(list(GANGS))
            return self._group_of(gang) if self._rng.random() < 0.2 else self._member(gang)
        if draw < _GANG_SHARE + _FAILED_SHARE and (failed := self._failed()) is not None:
            return failed
        return super().next()

    def closing(self) -> list[Item]:
        """Return also the PodGroups, of which some may never have come."""
        return [*self._begun, *super().closing(), *map(self._group_of, GANGS)]

    def _group_of(self, gang: str) -> Item:
        self._version += 1
        meta = {"name": gang, "namespace": "sim", "resourceVersion": str(self._version)}
        made = {"apiVersion": _API, "kind": "PodGroup", "metadata": meta, "spec": {"minMember": GANGS[gang]}}
        return self.keep(CONFIG_TOPIC, f"PodGroup/sim/{gang}", self.event("ADDED", made))

    def _member(self, gang: str) -> Item:
        """Return a new pod of a gang, maybe in place of another one of its name."""
        self._version += 1
        self._uid += 1
        name = f"{gang}-{self._rng.randrange(GANGS[gang] + _MORE_MEMBERS)}"
        labels = {"app": "web", POD_GROUP_LABEL: gang}
        meta = {"name": name, "namespace": "sim", "uid": f"uid-{self._uid}", "labels": labels}
        requests = {"cpu": f"{self._rng.choice((100, 500))}m", "memory": "64Mi"}
        self.pods[name] = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": meta | {"resourceVersion": str(self._version)},
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}], "priority": 5},
            "status": {"phase": "Pending"},
        }
        return self.keep(PODS_TOPIC, f"sim/{name}", self.event("ADDED", self.pods[name]))

    def _failed(self) -> Item | None:
        """Return that a pod could not be bound to the node that was chosen for it."""
        found = [
            (name, self._bound[pod["metadata"]["uid"]])
            for name, pod in self.pods.items()
            if pod["metadata"]["uid"] in self._bound and not pod["spec"].get("nodeName")
        ]
        if not found:
            return None
        name, node = self._rng.choice(found)
        self._version += 1
        pod = orjson.loads(orjson.dumps(self.pods[name]))
        pod["metadata"]["resourceVersion"] = str(self._version)
        self.pods[name] = orjson.loads(orjson.dumps(pod))
        pod["spec"]["nodeName"] = node
        return self.keep(PODS_TOPIC, f"sim/{name}", self.event(BIND_FAILED, pod))
