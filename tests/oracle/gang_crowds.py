"""Crowds with gangs: the scheduler beside an oracle that places each gang in its turn, whole or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from domain.engine.verdicts import Placement
from domain.model.config import POD_GROUP, PodGroup
from domain.model.decisions import Outcome
from domain.model.events import ConfigDeleted, ConfigUpserted, Event
from domain.model.pods import PodSpec
from domain.model.signature import signature
from tests.oracle.between_pods import ZONE
from tests.oracle.crowd_pair import CrowdPair
from tests.oracle.crowds import NAMESPACES, RACK, Crowd, Shape, Size
from tests.oracle.gangs import Answer, Gang, place
from tests.oracle.placing import Oracle, OraclePod
from tests.values import GIB

NAMES = ("g1", "g2", "g3", "g4")


class GangCrowd(Crowd):
    """A crowd in which many pods name a gang, and PodGroups come, change and go."""

    def _pod(self, shape: Shape) -> PodSpec:
        made = super()._pod(shape)
        return self._in_gang(made) if self._random.random() < 0.7 else made

    def _in_gang(self, made: PodSpec) -> PodSpec:
        name = self._random.choice(NAMES)
        template = msgspec.structs.replace(made.template, gang=f"{made.namespace}/{name}")
        return msgspec.structs.replace(made, template=template, signature=signature(template))

    def _changed(self, known: PodSpec) -> PodSpec:
        changed = super()._changed(known)
        if self._random.random() < 0.2:
            changed = self._in_gang(changed)
        self.pods[known.key] = changed
        return changed

    def beginning(self) -> list[Event]:
        return [*super().beginning(), *(self._pod_group(s, n) for s in NAMESPACES for n in NAMES)]

    def changes(self, count: int) -> list[Event]:
        random = self._random
        groups = [self._pod_group(random.choice(NAMESPACES), random.choice(NAMES)) for _ in range(count // 3)]
        return [*super().changes(count), *groups]

    def _pod_group(self, namespace: str, name: str) -> Event:
        random = self._random
        if random.random() < 0.1:
            return ConfigDeleted(POD_GROUP, namespace, name, self._next_version())
        least = {"cpu": random.choice((1_000, 30_000, 200_000)), "memory": GIB}
        content = PodGroup(
            min_member=random.choice((1, 2, 2, 3, 5, 8, 20)),
            min_resources=least if random.random() < 0.3 else {},
            topology_key=random.choice(("", "", ZONE, RACK)),
            is_preferred=random.random() < 0.5,
        )
        return ConfigUpserted(POD_GROUP, namespace, name, content, self._next_version())


class GangOracle(Oracle):
    """An oracle that knows gangs."""

    def __init__(self, crowd: Crowd) -> None:
        super().__init__(crowd.profiles, seed=crowd.size.seed)
        self.groups: dict[str, PodGroup] = {}
        self.seen: Counter[str] = Counter()

    def take(self, event: Event) -> None:
        if isinstance(event, ConfigUpserted | ConfigDeleted) and event.kind == POD_GROUP:
            self.groups.pop(f"{event.namespace}/{event.name}", None)
            if isinstance(event, ConfigUpserted):
                assert isinstance(event.content, PodGroup)
                self.groups[f"{event.namespace}/{event.name}"] = event.content
        else:
            super().take(event)

    def _turns(self) -> Iterator[tuple[int, int, str]]:
        """Yield (minus priority, arrival, pod or gang) of all that wait."""
        gangs: dict[str, tuple[int, int]] = {}
        for key, pod in self.pods.items():
            turn, gang = (-pod.spec.template.priority, pod.arrival), pod.spec.template.gang
            if not pod.node and gang:
                known = gangs.get(gang, turn)
                gangs[gang] = min(known[0], turn[0]), min(known[1], turn[1])
            elif not pod.node:
                yield (*turn, key)
        yield from ((*turn, f"gang:{gang}") for gang, turn in gangs.items())

    def turns(self) -> tuple[list[tuple[str, str]], dict[str, Outcome]]:
        """Place all that can be; return (pod, node) in order, and what new pods without a node are told."""
        placed: list[tuple[str, str]] = []
        told: dict[str, Outcome] = {}
        for _, _, key in sorted(self._turns()):
            if key.startswith("gang:"):
                found, missing = self._place_gang(key.removeprefix("gang:"))
                placed += found
                told |= missing
                continue
            look = self._try(self.pods[key])
            if look.node:
                placed.append((key, look.node))
            elif look.first:
                told[key] = Outcome.UNRESOLVABLE if look.hopeless else Outcome.UNSCHEDULABLE
        return placed, told

    def _place_gang(self, name: str) -> tuple[list[tuple[str, str]], dict[str, Outcome]]:
        mine = {key: pod for key, pod in self.pods.items() if pod.spec.template.gang == name}
        waiting = sorted(
            (key for key, pod in mine.items() if not pod.node), key=lambda key: mine[key].arrival
        )
        running = [key for key, pod in mine.items() if pod.node]
        spec = self.groups.get(name)
        answer = Answer()
        if spec is not None:
            gang = Gang(waiting, spec.min_member, running, spec.min_resources)
            gang.topology_key, gang.is_preferred = spec.topology_key, spec.is_preferred
            answer = place(self, gang)
        lacks = spec is None or len(running) + len(answer.nodes) < spec.min_member
        new = [key for key in waiting if key not in answer.nodes and not mine[key].tried]
        self._count(lacks=lacks, answer=answer, running=running, is_known=spec is not None)
        if spec is not None and spec.topology_key and answer.nodes:
            of = {self.nodes[node].spec.labels.get(spec.topology_key) for node in answer.nodes.values()}
            assert spec.is_preferred or len(of) == 1
            self.seen["in one domain" if len(of) == 1 else "in several"] += 1
        for key in waiting:
            mine[key].tried = True
        lacks = lacks or bool(answer.short)
        return list(answer.nodes.items()), {key: self._told_to(mine[key], lacks=lacks) for key in new}

    def _told_to(self, pod: OraclePod, *, lacks: bool) -> Outcome:
        return Outcome.GANG_WAITING if lacks else Outcome.UNSCHEDULABLE

    def _count(self, *, lacks: bool, answer: Answer, running: list[str], is_known: bool) -> None:
        self.seen["unknown"] += not is_known
        self.seen["short"] += bool(answer.short)
        self.seen["placed"] += bool(answer.nodes)
        self.seen["joined"] += bool(answer.nodes and running)
        self.seen["in part"] += bool(answer.nodes and answer.failed)
        self.seen["undone"] += lacks and len(answer.failed) > 0


class GangPair(CrowdPair):
    """A scheduler and the oracle on a crowd with gangs."""

    oracle: GangOracle

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.crowd = GangCrowd(size)
        self.oracle = GangOracle(self.crowd)

    def cycle(self) -> None:
        had_work = self.scheduler.has_work
        result = self.scheduler.cycle()
        placed, told = self.oracle.turns()
        assert had_work or not placed, f"asleep, though {placed[0]} fits"
        found = [(v.pod.key, v.node) for v in result.verdicts if isinstance(v, Placement)]
        assert found == placed
        outcomes = {
            v.pod.key: result.attempts[v.attempt].outcome_at_failure
            for v in result.tried
            if not isinstance(v, Placement)
        }
        for key, outcome in outcomes.items():
            if outcome is Outcome.UNRESOLVABLE and self.crowd.pods[key].template.gang:
                outcomes[key] = Outcome.UNSCHEDULABLE  # the oracle of gangs does not tell them apart
        assert outcomes == told
        for key, node in placed:
            self.crowd.bind(key, node)
        self.placed_count += len(placed)


def size_of(seed: int) -> Size:
    """Return the size of a seed's crowd: small, with many cycles, so that gangs come bit by bit."""
    return Size(
        seed=seed,
        nodes=1 + seed % 23,
        shapes=1 + seed % 7,
        pods=20 + seed * 7 % 90,
        cycles=2 + seed % 7,
        changes=seed * 3 % 14,
    )
