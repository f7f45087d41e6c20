"""Do pods of three qualities go where a plain reading of what is lent puts them?

The plain reading keeps no columns: it adds up, for each pod and node anew, what was measured, what is kept
free, and what every pod that no measurement covers is expected to use.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Failure, Placement
from domain.model.colocation import Amounts, UseByQuality
from domain.model.events import NodeDeleted, NodeUpserted, NodeUsed, PodDeleted, PodUpserted
from domain.model.nodes import NodeSpec
from domain.model.pods import CpuClaim, MemoryClaim, PodSpec, PodTemplate
from domain.model.profiles import PluginUse, Profile
from domain.model.signature import signature
from domain.model.usage import NodeUsage
from domain.state.steps import Written
from tests.depth import some

GIB = 1 << 30
PROFILES = {
    arithmetic: Profile(
        name="lends",
        filters=(PluginUse(name="NodeResourcesFit"), PluginUse(name="ColocationFit")),
        scores=(PluginUse(name="ColocationScore", args={"arithmetic": arithmetic}),),
    )
    for arithmetic in ("real", "integer")
}
SETTLE_MS, AGE_MS = 60_000, 90_000
WEAKER = {"Burstable": ("Guaranteed", "Burstable"), "BestEffort": ("Guaranteed", "Burstable", "BestEffort")}


@dataclass
class Pod:
    """A pod as the plain reading knows it: what it requests and is expected to use, and where it is."""

    spec: PodSpec
    cpu: int
    memory: int
    node: str = ""
    placed_ms: int | None = None

    @property
    def qos(self) -> str:
        return self.spec.template.qos_class


@dataclass
class Plain:
    """The cluster by the issue's formulas, for cpu (0) and memory (1)."""

    nodes: dict[str, tuple[int, int]] = field(default_factory=dict)
    measured: dict[str, tuple[int, UseByQuality]] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    is_whole: bool = False

    def room(self, node: str, qos: str, resource: int, now_ms: int) -> int:
        """Return what a node lends to a further pod: 0 and less is nothing."""
        at_ms, use = self.measured.get(node, (-(10**15), UseByQuality()))
        room = 0
        if now_ms - at_ms <= AGE_MS:
            whole = self.nodes[node][resource]
            room = whole - use.system[resource] - use.high[resource] - whole // 10 - use.mid[resource]
            if qos == "BestEffort":
                room -= use.low[resource]
        recent = [p for p in self.pods.values() if p.node == node and p.qos in WEAKER[qos]]
        recent = [p for p in recent if p.placed_ms is None or p.placed_ms > at_ms - SETTLE_MS]
        return max(room, 0) - sum((p.cpu, p.memory)[resource] for p in recent)

    def why_not(self, node: str, pod: Pod, now_ms: int) -> str:
        """Return the reason code for which a node refuses a pod, "" where it does not."""
        asked = pod.spec.template.requests
        held = [p.spec.template.requests for p in self.pods.values() if p.node == node]
        lacks = [
            f"insufficient:{name}"
            for i, name in enumerate(("cpu", "memory"))
            if asked.get(name, 0) and asked[name] > self.nodes[node][i] - sum(r.get(name, 0) for r in held)
        ]
        if not lacks and pod.qos != "Guaranteed":
            wanted = pod.cpu, pod.memory
            lacks = [
                f"insufficient-room:{name}"
                for i, name in enumerate(("cpu", "memory"))
                if wanted[i] and wanted[i] > self.room(node, pod.qos, i, now_ms)
            ]
        return ",".join(lacks)

    def score(self, node: str, pod: Pod, now_ms: int) -> float:
        qos = "Burstable" if pod.qos == "Guaranteed" else pod.qos
        wanted = pod.cpu, pod.memory
        left = [self.room(node, qos, i, now_ms) - wanted[i] for i in (0, 1)]
        score = min(100.0 * max(each, 0) / whole for each, whole in zip(left, self.nodes[node], strict=True))
        return float(int(score)) if self.is_whole else score


class Day:
    """Random events, told to a scheduler and to the plain reading alike."""

    def __init__(self, seed: int) -> None:
        self.random, self.now_ms, self.count = Random(seed), 1_000_000, 0
        is_whole = seed % 2 == 1
        self.scheduler = Scheduler({"lends": PROFILES["integer" if is_whole else "real"]}, seed=seed)
        self.plain, self.seen = Plain(is_whole=is_whole), Counter[str]()
        for _ in range(4):
            self._node()

    def happen(self) -> None:
        self.now_ms += self.random.choice((1, 1_000, 10_000, 40_000))
        draw = self.random.random()
        if draw < 0.45:
            self._pod()
        elif draw < 0.85:
            self._measure()
        elif draw < 0.95:
            self._leave()
        elif len(self.plain.nodes) < 6:
            self._node()
        else:
            self._lose()

    def _node(self) -> None:
        self.count += 1
        name = f"n{self.count}"
        whole = self.random.choice((4_000, 8_000)), self.random.choice((8, 16)) * GIB
        offers = {"cpu": whole[0], "memory": whole[1], "pods": 110}
        self.plain.nodes[name] = whole
        self.scheduler.fold(
            NodeUpserted(NodeSpec(name=name, uid=name, resource_version=None, allocatable=offers))
        )

    def _lose(self) -> None:
        name = self.random.choice(list(self.plain.nodes))
        if any(p.node == name for p in self.plain.pods.values()):
            return
        del self.plain.nodes[name]
        self.plain.measured.pop(name, None)
        self.scheduler.fold(NodeDeleted(name))

    def _pod(self) -> None:
        random = self.random
        self.count += 1
        cpu, memory = random.choice((100, 700, 1_500)), random.choice((1, 3)) * GIB
        match random.choice(("Guaranteed", "Burstable", "BestEffort", "BestEffort")):
            case "Guaranteed" as qos:
                asked: dict[str, int] = {"cpu": cpu, "memory": memory}
                claims, expected = (CpuClaim(fixed_milli=cpu), MemoryClaim(fixed_bytes=memory)), (cpu, memory)
            case "Burstable" as qos:
                asked = {"cpu": cpu}
                claims, expected = (
                    (CpuClaim(requested_milli=cpu), MemoryClaim(silent_count=1)),
                    (cpu * 3 // 2, GIB),
                )
            case qos:
                asked, claims, expected = (
                    {},
                    (CpuClaim(silent_count=1), MemoryClaim(silent_count=1)),
                    (1_000, GIB),
                )
        template = PodTemplate(
            requests=asked, profile="lends", qos_class=qos, cpu_claim=claims[0], memory_claim=claims[1]
        )
        bound = random.choice(list(self.plain.nodes)) if random.random() < 0.15 else ""
        spec = PodSpec(
            f"u{self.count}", f"ns/p{self.count}", None, template, signature(template), node_name=bound
        )
        pod = self.plain.pods[spec.key] = Pod(spec, *expected, node=bound)
        self.scheduler.fold(PodUpserted(spec))
        if bound:
            pod.placed_ms = self.now_ms
            self.scheduler.fold(Written({spec.key: self.now_ms}))

    def _leave(self) -> None:
        if self.plain.pods:
            key = self.random.choice(list(self.plain.pods))
            del self.plain.pods[key]
            namespace, name = key.split("/")
            self.scheduler.fold(PodDeleted(namespace, name))

    def _measure(self) -> None:
        random, name = self.random, self.random.choice(list(self.plain.nodes))
        cpu, memory = self.plain.nodes[name]
        shares = [Amounts(random.randrange(cpu // 4), random.randrange(memory // 4)) for _ in range(4)]
        use = UseByQuality(
            high=shares[0], mid=shares[1], low=shares[2], system=Amounts(*(s // 8 for s in shares[3]))
        )
        at_ms = self.now_ms - random.choice((0, 0, 0, 30_000))
        if at_ms > self.plain.measured.get(name, (0, use))[0]:
            self.plain.measured[name] = at_ms, use
        usage = NodeUsage(node=name, at_ms=at_ms, percent={"cpu": 1.0}, quality=use)
        self.scheduler.fold(NodeUsed(usage))

    def place(self) -> None:
        """Run cycles until nothing is tried, and hold each verdict against the plain reading."""
        while self.scheduler.has_work:
            placed: dict[str, int] = {}
            result, told = self.scheduler.cycle(self.now_ms), set[int]()
            for verdict in result.verdicts:
                pod = self.plain.pods[verdict.pod.key]
                refused = {
                    n: why for n in self.plain.nodes if (why := self.plain.why_not(n, pod, self.now_ms))
                }
                scores = {
                    n: self.plain.score(n, pod, self.now_ms) for n in self.plain.nodes if n not in refused
                }
                self.seen.update(why.partition(":")[0] for why in refused.values())
                if isinstance(verdict, Placement):
                    assert verdict.node in scores, (pod, refused)
                    assert verdict.score == pytest.approx(max(scores.values()), abs=1e-4)
                    assert scores[verdict.node] == pytest.approx(max(scores.values()), abs=1e-4)
                    pod.node, placed[verdict.pod.key] = verdict.node, self.now_ms
                    self.seen[pod.qos] += 1
                else:
                    assert isinstance(verdict, Failure)
                    assert not scores, (pod, scores)
                    attempt = result.attempts[verdict.attempt]
                    if attempt.looked_at_ms == self.now_ms and verdict.attempt not in told:
                        assert attempt.reasons_at_failure == Counter(refused.values())
                    told.add(verdict.attempt)  # the next ones are told the same, whatever came between
            self.scheduler.fold(Written(placed))
            for key, at_ms in placed.items():
                self.plain.pods[key].placed_ms = at_ms
        for pod in self.plain.pods.values():
            if not pod.node:
                left = [n for n in self.plain.nodes if not self.plain.why_not(n, pod, self.now_ms)]
                assert not left, f"{pod.spec.key} was not woken, though {left} would take it"


def lived(seed: int) -> Counter[str]:
    """Live a day; return how often nodes refused for which reason, and pods of which class were placed."""
    day = Day(seed)
    for _ in range(120):
        day.happen()
        if day.random.random() < 0.7:
            day.place()
    return day.seen


@pytest.mark.parametrize("seed", some(range(90)))
def test_each_pod_goes_where_a_plain_reading_puts_it(seed: int) -> None:
    assert lived(seed)["insufficient-room"]


def test_these_days_show_what_matters() -> None:
    seen = sum((lived(seed) for seed in (0, 1, 2)), Counter[str]())
    for found in ("insufficient", "insufficient-room", "Guaranteed", "Burstable", "BestEffort"):
        assert seen[found] >= 5, (found, seen)
