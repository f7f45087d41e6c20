"""Does each pod of a gang come to the gang's home, once and in order, whoever dies or changes hands?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec
import pytest

from domain.model.errors import BerthError
from domain.model.events import PodDeleted, PodUpserted
from domain.model.pods import POD_GROUP_LABEL
from services.codec.partition import partition_for
from services.ports.inbox import home_of, inbox_topic
from services.ports.ledger import LedgerPart
from services.ports.log import PODS_TOPIC, Record, TopicPartition
from services.worker import planner as planner_module
from services.worker.forwarding import WAIT, Forwarding, gang_home
from services.worker.planner import Planner
from tests.builders import Json, node_manifest, pod_manifest
from tests.depth import some
from tests.property.replays import mark, replay
from tests.property.team import AT_MS, Team, audit

SHARDS = 3
NAMES = [f"p{number}" for number in range(6)]
GANGS = ["", "", "g1", "g2", "g3"]


def home(gang: str, shards: int = SHARDS) -> int:
    return partition_for(f"default/{gang}".encode(), None, shards)


def member(name: str, gang: str, uid: str, version: int, **more: str) -> Json:
    labels = {POD_GROUP_LABEL: gang} if gang else {}
    return pod_manifest(name, cpu=1, uid=uid, resource_version=version, labels={**labels, **more})


class Day:
    """A team that reads its log from where its planners are, and what its producer knows to be there."""

    def __init__(self, seed: int, *shards: list[int]) -> None:
        self.random = Random(seed)
        self.team = Team(*shards)
        self.alive: dict[str, Json] = {}
        self.sent: list[Record] = []
        self.version = 0

    def produce(self, count: int) -> None:
        """Append events of pods that come, change, go and come again; some are sent twice."""
        for _ in range(count):
            name = self.random.choice(NAMES)
            now, draw = self.alive.get(name), self.random.random()
            self.version += 1
            if draw < 0.15 and self.sent:  # a producer that is not sure sends all of its last events again
                since = self.random.randrange(max(0, len(self.sent) - 6), len(self.sent))
                self.sent = self.sent[since:]
                for old in self.sent:
                    self._append(old)
                continue
            if now is None or draw < 0.25:  # at times nobody says that the one before is gone
                pod = member(name, self.random.choice(GANGS), f"u{self.version}", self.version)
                self.alive[name] = pod
                self._tell("ADDED", pod)
            elif draw < 0.5:
                gang = self.random.choice(["", now["metadata"]["labels"].get(POD_GROUP_LABEL, ""), "g1"])
                pod = member(name, gang, now["metadata"]["uid"], self.version, changed=str(self.version))
                self.alive[name] = pod
                self._tell("MODIFIED", pod)
            else:
                self._tell(
                    "DELETED", {**now, "metadata": {**now["metadata"], "resourceVersion": str(self.version)}}
                )
                del self.alive[name]

    def _tell(self, kind: str, manifest: Json) -> None:
        self.sent.append(self.team.record(kind, manifest, AT_MS + self.version))

    def _append(self, old: Record) -> None:
        at = (old.topic, old.partition)
        self.team.ends[at] += 1
        self.team.records.append(
            old._replace(offset=self.team.ends[at] - 1, timestamp_ms=AT_MS + self.version)
        )

    def step(self, number: int, records_max: int = 5, *, follows: bool = True) -> bool:
        """Let a worker read on, plan and commit."""
        return self.team.step(number, self._next(self.team.planners[number], records_max), follows=follows)

    def _next(self, planner: Planner, records_max: int) -> list[Record]:
        positions, held = planner.positions(), Counter((r.topic, r.partition) for r in planner.held)
        found: list[Record] = []
        for shard in sorted(planner.owned):
            at = positions[TopicPartition(PODS_TOPIC, shard)] + held[PODS_TOPIC, shard]
            found += [r for r in self.team.records if r[:2] == (PODS_TOPIC, shard) and r.offset >= at]
        return sorted(found, key=lambda r: (r.timestamp_ms, r.partition, r.offset))[:records_max]

    def rest(self) -> None:
        """Let all read to the end and come to rest."""
        for _ in range(200):
            if not sum([self.step(number, 100) for number in range(len(self.team.planners))]):
                self.team.rest()
                return
        pytest.fail("the workers answer each other for ever")


def day(seed: int, rounds: int = 40) -> Day:
    """Let workers live a day in which shards change hands at any moment."""
    life = Day(seed, [0, 1, 2])
    team, random = life.team, life.random
    team.tell("ADDED", *(node_manifest(f"n{number}", cpu=3) for number in range(3)))
    mark(team)
    for _ in range(rounds):
        life.produce(random.randrange(4))
        draw = random.random()
        holders = [at for at, planner in enumerate(team.planners) if planner.owned]
        if draw < 0.12:
            giver = random.choice(holders)
            shard = random.choice(sorted(team.planners[giver].owned))
            team.give(giver, [shard])
            others = [at for at in range(len(team.planners)) if at != giver]
            if others and random.random() < 0.7:
                while team.step(taker := random.choice(others)):  # it has followed all that was done
                    pass
                team.take(team.planners[taker], [shard])
            else:
                team.join([shard])
        elif draw < 0.25:
            team.die(random.choice(holders))
        for number in random.sample(range(len(team.planners)), len(team.planners)):
            if random.random() < 0.7:
                life.step(number, random.randrange(1, 9), follows=random.random() < 0.7)
    life.rest()
    return life


def check(life: Day) -> None:
    """Compare the ledger with what the producer knows."""
    database = life.team.database
    assert not [letter for letters in database.dead_letters.values() for letter in letters]
    found: Counter[tuple[str, str]] = Counter()
    for (uid, shard), row in database.open_placements.items():
        found[row.opened.name, uid] += 1
        assert row.opened.shard == shard
    for (uid, _), waiting in database.pending.items():
        found[waiting.name, uid] += 1
    assert found == {(name, pod["metadata"]["uid"]): 1 for name, pod in life.alive.items()}
    for (shard, topic, _), lane in database.offsets.items():
        target = home_of(topic)
        if target is not None:
            assert database.offsets[target, inbox_topic(shard), target].next_offset == lane.next_offset
            rows = [each.number for each in database.inbox.handed.values() if each[:2] == (target, shard)]
            assert sorted(rows) == list(range(lane.next_offset))
    bound = Counter(each["pod"]["uid"] for each in life.team.decided() if each["outcome"] == "bound")
    assert not [uid for uid, count in bound.items() if count > 1]
    audit(life.team)


@pytest.mark.parametrize("seed", some(range(30)))
def test_no_pod_is_lost_or_decided_for_twice_whoever_dies_or_takes_over(seed: int) -> None:
    check(day(seed))


@pytest.fixture(autouse=True)
def _many_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "DIGEST_EVERY", 3)


@pytest.mark.parametrize("seed", some(range(12)))
def test_a_day_with_gangs_is_planned_again_with_the_same_bytes(seed: int) -> None:
    life = day(seed)
    outcome = replay(life.team)
    assert outcome.difference is None
    assert outcome.progress.batches_count == outcome.progress.total > 20


@pytest.mark.wide
def test_days_hand_over_much_and_some_records_wait() -> None:
    """What the tests above rest on."""
    lives = [day(seed) for seed in range(8)]
    assert sum(len(life.team.database.inbox.handed) for life in lives) > 100
    assert sum(len(life.team.planners) > 1 for life in lives) > 4


def _forget_routes(forwarding: Forwarding, part: LedgerPart) -> None:
    _TAKE(forwarding, msgspec.structs.replace(part, forwarded=[]))


def _never_wait(forwarding: Forwarding, event: PodUpserted | PodDeleted, shard: int) -> int:
    home = _HOME(forwarding, event, shard)
    if home == WAIT and isinstance(event, PodUpserted):
        return gang_home(event.pod, SHARDS) or 0
    return home


def _all_but_deletions(forwarding: Forwarding, event: PodUpserted | PodDeleted, shard: int) -> int:
    return shard if isinstance(event, PodDeleted) else _HOME(forwarding, event, shard)


_TAKE, _HOME = Forwarding.take_shards, Forwarding._home


@pytest.mark.wide
@pytest.mark.parametrize(
    ("method", "broken"),
    [
        ("take_shards", _forget_routes),
        ("_home", _never_wait),
        ("_home", _all_but_deletions),
    ],
)
def test_a_broken_hand_over_is_found(
    method: str, broken: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Forwarding, method, broken)
    with pytest.raises((AssertionError, KeyError, BerthError, pytest.fail.Exception)):
        live(range(30))


def live(seeds: range) -> None:
    for seed in seeds:
        check(day(seed))


def test_a_binding_that_failed_is_undone_by_the_home_of_the_gang() -> None:
    team = Team([0], [1], [2])
    name = next(each for each in NAMES if home(each) != home("g"))
    meta = {"name": "g", "namespace": "default"}
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": meta}
    team.tell("ADDED", node_manifest("n", cpu=1), group, pod := member(name, "g", "u", 1))
    team.rest()
    team.tell("BIND_FAILED", {**pod, "spec": {**pod["spec"], "nodeName": "n"}})
    team.rest()
    assert [each["outcome"] for each in team.decided()] == ["bound", "bind-failed", "gang-waiting"]
    assert {each["shard"] for each in team.decided()} == {home("g")}
    assert not any(team.database.dead_letters.values())


def _with_gangs(*shards: list[int]) -> tuple[Team, str]:
    """Return a team with room and two gangs of different homes, and a name that neither of these reads."""
    team = Team(*shards)
    assert home("g") != home("h")
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
    groups = [{**group, "metadata": {"name": each, "namespace": "default"}} for each in "gh"]
    team.tell("ADDED", node_manifest("n", cpu=9), *groups)
    return team, next(each for each in NAMES if home(each) not in (home("g"), home("h")))


def _read(team: Team, *events: tuple[str, Json]) -> None:
    """Let the shard that reads a name take these events in one batch, and all come to rest."""
    records = [team.record(kind, manifest) for kind, manifest in events]
    (reader,) = (n for n, planner in enumerate(team.planners) if records[0].partition in planner.owned)
    team.step(reader, records)
    team.rest()


@pytest.mark.parametrize("shards", [[[0, 1, 2]], [[0], [1], [2]]])
def test_a_late_duplicate_ends_nobody_whose_end_its_home_has_not_read_yet(shards: list[list[int]]) -> None:
    team, name = _with_gangs(*shards)
    first, second, third = (member(name, gang, f"u{v}", v) for v, gang in enumerate(("g", "", ""), start=1))
    _read(team, ("ADDED", first), ("ADDED", second))
    _read(team, ("ADDED", third), ("DELETED", third), ("ADDED", second))
    assert not team.database.open_placements
    assert not team.database.pending


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("is_deleted", [True, False])
@pytest.mark.parametrize("shards", [[[0, 1, 2]], [[0], [1], [2]]])
def test_a_pod_stays_gone_that_ended_in_the_batch_in_which_the_next_of_its_name_came(
    shards: list[list[int]], is_deleted: bool, dies: bool
) -> None:
    """Then a third one comes to another home, and ends; and late ones of the first, with its label or not."""
    team, name = _with_gangs(*shards)
    first, second, third = (member(name, gang, f"u{v}", v) for v, gang in enumerate("ggh", start=1))
    _read(team, ("ADDED", first))
    _read(team, *[("DELETED", first)] * is_deleted, ("ADDED", second))
    _read(team, ("DELETED", second))
    _read(team, ("ADDED", third))
    _read(team, ("DELETED", third))
    if dies:
        for number in range(len(team.planners)):
            team.die(number)
    unlabelled = member(name, "", "u1", 1)
    _read(team, ("MODIFIED", unlabelled), ("ADDED", first), ("DELETED", first), ("MODIFIED", unlabelled))
    assert not team.database.open_placements
    assert not team.database.pending
    assert not any(team.database.dead_letters.values())
    assert Counter(each["outcome"] for each in team.decided()) == Counter(bound=3, released=3)


def test_a_late_end_of_an_earlier_pod_is_no_concern_of_the_one_that_has_its_name_elsewhere() -> None:
    team, name = _with_gangs([0], [1], [2])
    first, second = (member(name, gang, f"u{v}", v) for v, gang in enumerate("gh", start=1))
    _read(team, ("ADDED", first))
    _read(team, ("DELETED", first))
    _read(team, ("ADDED", second))
    _read(team, ("DELETED", first))
    assert [uid for uid, _ in team.database.open_placements] == ["u2"]
    assert not any(team.database.dead_letters.values())


def test_late_duplicates_of_every_pod_of_a_name_are_known_where_the_name_was_forwarded() -> None:
    """Two pods of a name come to one home, a third one to another; then the first one, without its label."""
    team, name = _with_gangs([0], [1], [2])
    unlabelled = pod_manifest(name, cpu=1, uid="u1", resource_version=2)
    team.tell("ADDED", member(name, "g", "u1", 1))
    team.tell("MODIFIED", unlabelled)
    team.rest()
    team.tell("DELETED", unlabelled)
    team.rest()
    for version, (gang, uid) in enumerate((("g", "u2"), ("h", "u3")), start=3):
        team.tell("ADDED", pod := member(name, gang, uid, version))
        team.rest()
        team.tell("DELETED", pod)
        team.rest()
    team.tell("MODIFIED", unlabelled)
    team.rest()
    assert not team.database.open_placements
    assert not team.database.pending
