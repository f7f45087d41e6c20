"""Draws the records of a day on which nodes lend: policies, measurements, and what agents did."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import orjson

from domain.model.pods import COLOCATION_PROFILE
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, Entry
from tests.simulation.agents import METER, METERED, POLICIES, Agents
from tests.simulation.faults import Fault, Faults

Item = tuple[str, Entry]
_TWICE = 0.3
"""How often an agent sends an earlier report again instead of a new one."""

_CHOOSY = ("nodeSelector", "affinity", "topologySpreadConstraints", "nodeName")
"""What most low pods do not ask for: so they meet where anything is idle."""


class Drawn(Protocol):
    """What a scenario drew so far, and how it goes on."""

    nodes: dict[str, dict[str, Any]]
    pods: dict[str, dict[str, Any]]
    sent: list[Item]

    def keep(self, topic: str, key: str, value: bytes) -> Item:
        """Remember a record that is sent."""

    def event(self, type_: str, manifest: dict[str, Any]) -> bytes:
        """Return an event, of a producer whose clock may be wrong."""

    def next_version(self) -> int:
        """Return the next resource version."""


class Lending:
    """Draws one record after another beside those of a scenario.

    ``now_ms`` tells the time to those that measure, and ``bound`` the uids and nodes of pods that were told
    lately that they are bound.
    """

    def __init__(
        self,
        drawn: Drawn,
        rng: random.Random,
        faults: Faults,
        now_ms: Callable[[], int],
        bound: Callable[[], Iterable[tuple[str, str]]],
    ) -> None:
        self._drawn, self._rng, self._faults, self._bound = drawn, rng, faults, bound
        self._agents = Agents(rng, now_ms)
        self._unmetered = list(METERED)  # pods whose use is followed to the end, and that are yet to come

    def opening(self) -> list[Item]:
        """Return the policy of the beginning, the node whose pods' use is followed, and its measurement."""
        drawn = self._drawn
        policy = self._config_of(self._agents.policy(POLICIES[0], drawn.next_version()), "ADDED")
        node = drawn.event("ADDED", self._agents.meter(drawn.next_version()))
        return [policy, drawn.keep(NODES_TOPIC, METER, node), self._report(METER, ())]

    def closing(self, name: str) -> list[Item]:
        """Let a node lend all that it has, to the end of the day, and the rest of the metered pods come."""
        agents, drawn = self._agents, self._drawn
        items = [
            self._config_of(agents.policy(each, drawn.next_version()), "DELETED") for each in POLICIES[1:]
        ]
        items.append(
            self._config_of(agents.policy(POLICIES[0], drawn.next_version(), lasts=True), "MODIFIED")
        )
        return [
            *items,
            self._report(name, (), idle=True),
            *(self._meter() for _ in range(len(self._unmetered))),
        ]

    def last_reports(self) -> list[Item]:
        """Return the last report of the pods whose use is followed, twice, for when all are known."""
        report = self._report(METER, METERED, idle=True)
        return [report, report]

    def next(self, node_names: Sequence[str]) -> Item:
        """Measure a node, let a policy come, change or go, or say what an agent did.

        ``node_names`` are those that nodes may have.
        """
        drawn, draw = self._drawn, self._rng.random()
        if draw < 0.1:
            name, kind = self._rng.choice(POLICIES), self._rng.choice(("ADDED", "MODIFIED", "DELETED"))
            return self._config_of(self._agents.policy(name, drawn.next_version()), kind)
        if draw < 0.15 and self._unmetered:
            return self._meter()
        if draw < 0.27:
            return self._report(METER, [uid for uid in METERED if uid not in self._unmetered])
        name = self._rng.choice(sorted(drawn.nodes) if drawn.nodes and draw < 0.9 else node_names)
        if draw < 0.35:
            return drawn.keep(USAGE_TOPIC, name, self._agents.action(name, drawn.next_version()))
        return self._report(name, [uid for uid, node in self._bound() if node == name])

    def borrow(self, spec: dict[str, Any]) -> None:
        """Let a pod take part in co-location, by the profile, as a high, a mid or a low one."""
        spec["schedulerName"] = COLOCATION_PROFILE
        resources = spec["containers"][0]["resources"]
        draw = self._rng.random()
        if draw < 0.6:
            resources.clear()
            for name in _CHOOSY if self._rng.random() < 0.7 else ():
                spec.pop(name, None)
        elif draw < 0.9:
            cpu_milli = int(resources["requests"]["cpu"][:-1]) + self._rng.choice((100, 400, 2_000))
            resources["limits"] = {"cpu": f"{cpu_milli}m", "memory": "128Mi"}
        else:
            resources["limits"] = dict(resources["requests"])

    def end_on_node(self) -> list[Item]:
        """End a low pod by its node's agent, which says so in an action and, of the pod, that it failed."""
        drawn = self._drawn
        pods = {pod["metadata"]["uid"]: name for name, pod in drawn.pods.items() if _is_low(pod)}
        found = [(pods[uid], uid, node) for uid, node in self._bound() if uid in pods]
        if not found:
            return []
        name, uid, node = self._rng.choice(found)
        del drawn.pods[name]
        action = self._agents.action(node, drawn.next_version(), ended=(name, uid))
        gone = orjson.dumps(self._agents.ended(name, uid, node))
        items = [(USAGE_TOPIC, node, action), (PODS_TOPIC, f"sim/{name}", gone)]
        self._rng.shuffle(items)
        return [drawn.keep(*item) for item in items]

    def _report(self, node: str, uids: Collection[str], *, idle: bool = False) -> Item:
        """Measure a node, and what its pods have used; a report may come late, or be one that came before."""
        drawn = self._drawn
        said = [item for item in drawn.sent if item[0] == USAGE_TOPIC and item[1].key == node.encode()]
        if said and not idle and self._rng.random() < _TWICE:
            self._faults.counts[Fault.DUPLICATE] += 1
            return self._rng.choice(said)
        report = self._agents.report(node, uids, drawn.next_version(), idle=idle)
        return drawn.keep(USAGE_TOPIC, node, report)

    def _meter(self) -> Item:
        """Let a pod come whose use is followed: it runs to the end of the day."""
        uid = self._unmetered.pop(0)
        pod = self._agents.metered(uid, self._drawn.next_version())
        return self._drawn.keep(PODS_TOPIC, f"{uid}/{uid}", self._drawn.event("ADDED", pod))

    def _config_of(self, policy: dict[str, Any], kind: str) -> Item:
        key = f"CoLocationPolicy/{policy['metadata']['name']}"
        return self._drawn.keep(CONFIG_TOPIC, key, self._drawn.event(kind, policy))


def resize(resources: dict[str, Any], cpu_milli: int) -> None:
    """Let a container request another amount of cpu, if it requests any; its limit goes with it."""
    for name in resources:
        is_mid = name == "limits" and resources["limits"] != resources["requests"]
        resources[name] = {**resources[name], "cpu": f"{cpu_milli * (1 + is_mid)}m"}


def _is_low(pod: Mapping[str, Any]) -> bool:
    return not pod["spec"]["containers"][0]["resources"] and pod["status"]["phase"] == "Pending"
