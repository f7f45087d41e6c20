"""A node with its agent, without a kernel and without an API: what tests of the agent share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from services.adapters.memory.cgroups import KernelFolder, memory_cgroups
from services.agent.acting import AgentSettings
from services.agent.run import Agent
from services.agent.talking import labels_of, learn

MID, LOW = "kubepods/burstable", "kubepods/besteffort"
GIB = 1 << 30
BOX_OF = {"Guaranteed": "kubepods", "Burstable": MID, "BestEffort": LOW}
WALL_MS = 1_700_000_000_000


def pod(name: str, qos: str, *, cpu: str = "0", memory: str = "0", priority: int = 0) -> dict[str, Any]:
    """Return a pod as the API lists it; its uid is its name."""
    return {
        "uid": name,
        "namespace": "default",
        "name": name,
        "qos_class": qos,
        "priority": priority,
        "requests": {"cpu": cpu, "memory": memory},
        "silent_containers": 1 if qos == "BestEffort" else 0,
    }


class FakeApi:
    """Answers as the API does, and keeps what it was sent. ``is_away``: it does not answer."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []
        self.policies: dict[str, Any] = {}
        self.labels: dict[str, str] = {}
        self.sent: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.status = 200
        self.refused: list[dict[str, Any]] = []

    async def request(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Answer."""
        self.asked.append(target)
        if self.status != 200:
            return self.status, json.dumps({"error": {"code": "x", "message": "not now"}}).encode()
        if method == "POST":
            self.sent += json.loads(body or b"[]")
            return 202, json.dumps({"errors": self.refused}).encode()
        path, asked = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if path == "/v1/nodes/n1":
            return 200, json.dumps({"name": "n1", "labels": self.labels}).encode()
        items = {
            "/v1/pods": self.pods,
            "/v1/config": [
                {"name": name, "object": spec, "resource_version": 7} for name, spec in self.policies.items()
            ],
        }[path]
        at = int(asked.get("cursor", ["0"])[0])
        page = items[at : at + 2]  # pages of two
        following = str(at + 2) if at + 2 < len(items) else None
        return 200, json.dumps({"items": page, "next": following}).encode()

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of a kind that were sent."""
        return [each for each in self.sent if each["object"]["kind"] == kind]


class World:
    """A node of 4 cores and 8 GiB: pods use what a test says, second by second."""

    def __init__(
        self, version: int = 2, *, dry_run: bool = False, latency_dir: Path | None = None, **kernel: Any
    ) -> None:
        self.kernel, self.api = KernelFolder(version, **kernel), FakeApi()
        for box in (MID, LOW):
            self.kernel.make(box)
        self.cgroups = memory_cgroups(self.kernel)
        self.said: list[str] = []
        self.ms = 0
        self._cpu_us = 0.0
        self._groups: dict[str, str] = {}
        self.settings = AgentSettings("n1", "r1", dry_run, grace_seconds=5, latency_dir=latency_dir)
        self.agent = self.start()

    def start(self) -> Agent:
        """Return a new agent on this node."""
        self.agent = Agent(self.cgroups, self.settings, self, lambda: self.ms, self.said.append)
        return self.agent

    def now_ms(self) -> int:
        """Return wall time."""
        return WALL_MS + self.ms

    def run(self, name: str, qos: str, **more: Any) -> None:
        """Let a pod run that the API knows."""
        self.begin(name, qos)
        self.api.pods.append(pod(name, qos, **more))

    def begin(self, name: str, qos: str) -> None:
        """Let a pod run, with one process."""
        group = self._groups[name] = f"{BOX_OF[qos]}/pod{name}"
        self.kernel.make(group)
        self.kernel.spawn(group, 100 + len(self._groups))

    def second(
        self, milli: Mapping[str, float], *, memory: Mapping[str, int] | None = None, system: float = 100
    ) -> None:
        """Let a second pass in which pods use so much cpu, and hold so much memory; then the agent acts."""
        memory = memory or {}
        self.ms += 1_000
        for name, group in self._groups.items():
            if group in self.kernel.alive.values():
                self.kernel.use(
                    group, cpu_us=int(milli.get(name, 0) * 1_000), memory_bytes=memory.get(name, 0)
                )
                self._cpu_us += milli.get(name, 0) * 1_000
            else:
                self.kernel.use(group, memory_bytes=0)
        self._cpu_us += system * 1_000
        alive = {name for name, group in self._groups.items() if group in self.kernel.alive.values()}
        for box in ("kubepods", MID, LOW):
            held = sum(
                memory.get(name, 0)
                for name, group in self._groups.items()
                if name in alive and group.startswith(box)
            )
            self.kernel.use(box, memory_bytes=held)
        total = sum(memory.get(name, 0) for name in alive)
        self.kernel.node(cpu_us=int(self._cpu_us), memory_bytes=total + memory.get("system", 0))
        self.agent.tick()

    async def learn(self) -> None:
        """Let the agent ask the API."""
        self.agent.learned = await learn(self.api, "n1", await labels_of(self.api, "n1"))

    async def send(self) -> None:
        """Let the agent send what there is."""
        await self.agent.outbox.send(self.api)

    def quota(self, box: str) -> int | None:
        """Return the quota of a box in µs of 100 ms."""
        found = self.cgroups.quota(box)
        assert found is not None
        return found.quota_us
