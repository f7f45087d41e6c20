"""Does a shadow profile say what a plain reckoning says, within its bounds, and does it change nothing?"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import AsyncIterator, Callable
from itertools import count

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from domain.cycle.schedule import Scheduler
from domain.engine.shadow import Compared, Comparing
from domain.engine.verdicts import Placement
from domain.model.events import NodeDeleted, NodeUpserted, PodUpserted, ProfileDeleted, ProfileUpserted
from domain.model.nodes import Taint
from domain.model.pods import PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES, PluginUse, Profile
from services.api.shadow import told
from services.cli import source
from services.cli.main import app
from services.lag import Lag
from services.ports.store import WorkerState
from services.ports.workers import Figures, ShadowCounts, ShadowFigures
from services.worker import shadow as module
from services.worker.metrics import ShadowMetrics
from services.worker.shadow import CREDIT_SECONDS_MAX, Shadow, counts_of
from tests.values import GIB, node, pod, template

FIT = PluginUse(name="NodeResourcesFit")
CPU = ({"name": "cpu", "weight": 1},)


def scoring(name: str, strategy: str, weight: float = 1.0) -> Profile:
    """Return a profile with one score, by cpu alone."""
    args = {"scoringStrategy": {"type": strategy, "resources": list(CPU)}}
    use = PluginUse(name="NodeResourcesFit", weight=weight, args=args)
    return Profile(name=name, filters=(FIT,), scores=(use,))


SPREAD, PACKED = scoring("spread", "LeastAllocated"), scoring("packed", "MostAllocated", 3.0)
PROFILES = {
    **BUILT_IN_PROFILES,
    "spread": SPREAD,
    "packed": PACKED,
    "spread-too": scoring("spread-too", "LeastAllocated"),
}


class Steps:
    """A stopwatch: each look at it is so many microseconds after the one before."""

    def __init__(self, step_us: int = 0) -> None:
        self.step_us = step_us
        self.now_us = 0

    def __call__(self) -> int:
        self.now_us += self.step_us
        return self.now_us


def shadow_of(name: str, stopwatch: Callable[[], int] | None = None) -> Shadow:
    found = Shadow(name, ShadowMetrics(CollectorRegistry()), stopwatch or Steps())
    found._credit_us = 1.0  # of cycles before
    return found


def scheduler_of(*cpu: int) -> Scheduler:
    scheduler = Scheduler(PROFILES, seed=1)
    for i, each in enumerate(cpu):
        scheduler.fold(NodeUpserted(node(f"n{i}", cpu=each, memory=1_000 * GIB)))
    return scheduler


def of(profile: str, cpu: int = 500, **fields: object) -> PodTemplate:
    return template(cpu=cpu, memory=GIB, profile=profile, **fields)


def test_a_profile_that_is_equal_agrees_and_loses_nothing() -> None:
    scheduler, shadow = scheduler_of(4_000, 8_000, 2_000), shadow_of("spread-too")
    for n in range(12):
        scheduler.fold(PodUpserted(pod(f"p{n}", of("spread", 100 * (1 + n % 4)))))
        shadow.cycle(scheduler, n, n)
    counts = shadow.figures.counts
    assert (counts.attempts, counts.agreed, counts.pods, counts.agreed_pods) == (12, 12, 12, 12)
    assert (counts.shadow_rated, counts.shadow_loss_sum) == (12, 0.0)
    assert (counts.live_rated, counts.live_loss_sum) == (12, 0.0)


@pytest.mark.parametrize("seed", range(4))
def test_a_profile_of_opposite_scores_loses_what_a_plain_reckoning_says(seed: int) -> None:
    """The score LeastAllocated is what stays free of cpu, in percent, and MostAllocated what does not."""
    random = np.random.default_rng(seed)
    sizes = [4_000, 5_300, 8_100, 10_700]
    scheduler, shadow = scheduler_of(*sizes), shadow_of("packed")
    used = [0] * len(sizes)
    shadow_loss = live_loss = 0.0
    agreed = 0
    for n in range(20):
        asked = int(random.choice((100, 230, 410)))
        scheduler.fold(PodUpserted(pod(f"p{n}", of("spread", asked))))
        (placed,) = shadow.cycle(scheduler, n, n).verdicts
        assert isinstance(placed, Placement)
        taken = [100.0 * (before + asked) / cpu for cpu, before in zip(sizes, used, strict=True)]
        at = int(placed.node[1:])
        assert taken[at] == pytest.approx(min(taken))
        agreed += taken[at] == max(taken)
        shadow_loss += max(taken) - taken[at]
        live_loss += max(taken) - min(taken)
        used[at] += asked
    counts = shadow.figures.counts
    assert (counts.attempts, counts.agreed, counts.shadow_rated, counts.live_rated) == (20, agreed, 20, 20)
    assert counts.shadow_loss_sum == pytest.approx(shadow_loss, abs=1e-3)
    assert shadow_loss > 20
    assert counts.live_loss_sum == pytest.approx(live_loss, abs=1e-3)


def test_ties_agree() -> None:
    scheduler, shadow = scheduler_of(*[4_000] * 7), shadow_of("packed")
    scheduler.fold(PodUpserted(pod("p", of("spread"))))
    shadow.cycle(scheduler, 0, 0)
    assert (shadow.figures.counts.attempts, shadow.figures.counts.agreed) == (1, 1)


def test_an_attempt_stands_for_its_equal_pods() -> None:
    scheduler, shadow = scheduler_of(4_000, 8_000), shadow_of("packed")
    for n in range(5):
        scheduler.fold(PodUpserted(pod(f"p{n}", of("spread"))))
    shadow.cycle(scheduler, 0, 0)
    counts = shadow.figures.counts
    assert (counts.attempts, counts.pods, counts.agreed, counts.agreed_pods) == (1, 5, 0, 0)


def test_a_profile_that_refuses_the_live_node_has_no_loss_for_it() -> None:
    """The live profile has no filter by taints; the shadow profile has, and refuses the largest node."""
    scheduler = scheduler_of(4_000)
    scheduler.fold(NodeUpserted(node("best", cpu=9_000, taints=(Taint("k", "v", "NoSchedule"),))))
    strict = msgspec.structs.replace(SPREAD, name="strict", filters=(PluginUse(name="TaintToleration"), FIT))
    scheduler.fold(ProfileUpserted(strict))
    strictly, loosely = shadow_of("strict"), shadow_of("spread")
    scheduler.fold(PodUpserted(pod("p", of("spread"))))
    strictly.cycle(scheduler, 0, 0)
    counts = strictly.figures.counts
    assert (counts.live_refused, counts.shadow_rated, counts.agreed) == (1, 0, 0)
    assert (counts.shadow_refused, counts.live_rated) == (0, 1)
    assert counts.live_loss_sum > 0
    scheduler.fold(PodUpserted(pod("q", of("strict"))))
    loosely.cycle(scheduler, 1, 1)
    counts = loosely.figures.counts
    assert (counts.live_refused, counts.shadow_refused, counts.shadow_rated) == (0, 1, 1)
    scheduler.fold(NodeDeleted("n0"))
    scheduler.fold(PodUpserted(pod("r", of("spread"))))
    strictly.cycle(scheduler, 2, 2)
    scheduler.fold(PodUpserted(pod("s", of("strict"))))
    loosely.cycle(scheduler, 3, 3)
    assert (strictly.figures.counts.only_live, strictly.figures.counts.only_shadow) == (1, 0)
    assert (loosely.figures.counts.only_live, loosely.figures.counts.only_shadow) == (0, 1)
    scheduler.fold(PodUpserted(pod("t", of("spread", 99_000))))
    strictly.cycle(scheduler, 4, 4)
    assert strictly.figures.counts.neither == 1


def test_the_profile_may_come_change_and_go() -> None:
    scheduler, shadow = scheduler_of(4_000, 8_000), shadow_of("later")

    def placed(name: str) -> None:
        scheduler.fold(PodUpserted(pod(name, of("spread"))))
        assert len(shadow.cycle(scheduler, 0, 0).tried) == 1

    def state() -> tuple[str, int, int]:
        return shadow.figures.state, shadow.figures.revision, shadow.figures.counts.attempts

    placed("a")
    assert state() == ("unknown", 0, 0)
    scheduler.fold(ProfileUpserted(scoring("later", "MostAllocated")))
    placed("b")
    placed("c")
    assert state() == ("on", 1, 2)
    scheduler.fold(ProfileUpserted(scoring("later", "LeastAllocated")))
    placed("d")
    assert state() == ("on", 2, 1)
    scheduler.fold(ProfileDeleted("later"))
    placed("e")
    assert state() == ("unknown", 0, 0)


def test_it_takes_no_more_than_its_share() -> None:
    """Each look at the stopwatch is a step later, so a comparison takes a step, and a cycle a few."""
    scheduler = scheduler_of(4_000, 8_000)
    watch = Steps(1_000)
    shadow = shadow_of("packed", watch)
    shadow._credit_us = 0.0
    for n in range(200):
        scheduler.fold(PodUpserted(pod(f"p{n}", of("spread", 1))))
        shadow.cycle(scheduler, n, n)
    counts = shadow.figures.counts
    assert counts.attempts + counts.skipped == 200
    spent_us = counts.attempts * 1_000
    own_us = watch.now_us - spent_us
    assert counts.attempts > 20
    assert spent_us <= module.SHARE_MAX * own_us + 1_000
    assert shadow._credit_us <= CREDIT_SECONDS_MAX * 1e6


def test_groups_take_turns_where_time_does_not_do_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, shadow = scheduler_of(40_000, 80_000), shadow_of("packed", Steps(1_000))
    seen = list[str]()

    def compare(self: Comparing, group: object, key: str, plan: object) -> Compared:
        seen.append(key)
        return Compared(live_finds=True, shadow_finds=True)

    monkeypatch.setattr(Comparing, "compare", compare)
    for cycle in range(3):
        for n in range(3):
            scheduler.fold(PodUpserted(pod(f"p{n}-{cycle}", of("spread", 1 + n))))
        shadow._credit_us = 1.0
        shadow.cycle(scheduler, cycle, cycle)
    assert sorted(key.split("-")[0] for key in seen) == [f"default/p{n}" for n in range(3)]
    assert shadow.figures.counts.skipped == 6


def test_it_is_given_up_while_the_worker_lags() -> None:
    scheduler, shadow = scheduler_of(4_000, 8_000), shadow_of("packed")
    numbers = count()

    def counts() -> tuple[int, int, int]:
        n = next(numbers)
        scheduler.fold(PodUpserted(pod(f"p{n}", of("spread"))))
        shadow.cycle(scheduler, n, n)
        found = shadow.figures.counts
        return found.attempts, found.skipped_lagging, found.skipped

    assert counts() == (1, 0, 0)
    shadow.behind({0: Lag(10, 0.1), 1: Lag(1_000, 1.5)}, 0.0)
    assert counts() == (1, 1, 0)
    shadow.behind({0: Lag(0, 0.0)}, 1.5)
    assert counts() == (1, 2, 0)
    shadow.behind({0: Lag(10, 0.1), 1: Lag(10, 0.5)}, 0.0)
    assert counts() == (2, 2, 0)


def test_a_fault_ends_it_and_not_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, shadow = scheduler_of(4_000, 8_000), shadow_of("packed")

    def compare(*_: object) -> Compared:
        raise ValueError("a fault")

    monkeypatch.setattr(Comparing, "compare", compare)
    for n in range(3):
        scheduler.fold(PodUpserted(pod(f"p{n}", of("spread"))))
        (found,) = shadow.cycle(scheduler, n, n).verdicts
        assert isinstance(found, Placement)
    assert (shadow.figures.state, shadow.figures.counts.attempts) == ("failed", 0)


def test_counts_add_up() -> None:
    one = counts_of(Compared(True, True, True, 0.0, 2.5), 3)
    two = counts_of(Compared(True, True, False, None, None), 4)
    assert one.plus(two) == ShadowCounts(
        attempts=2,
        pods=7,
        agreed=1,
        agreed_pods=3,
        live_refused=1,
        shadow_refused=1,
        shadow_rated=1,
        live_rated=1,
        live_loss_sum=2.5,
    )


def test_the_sums_of_workers_are_those_of_their_newest_revision() -> None:
    """A worker that is behind by a revision counts for itself alone, one that is gone not at all."""

    def worker(name: str, revision: int, counts: ShadowCounts, *, is_up: bool = True) -> WorkerState:
        of = ShadowFigures(profile="packed", state="on", revision=revision, counts=counts)
        now = datetime.datetime.now(datetime.UTC)
        return WorkerState(name, name, "", now, now, None, is_up, True, [0], Figures(shadow=of))

    one = ShadowCounts(attempts=4, agreed=3, shadow_rated=4, shadow_loss_sum=2.0, neither=1, pods=6)
    rows = [
        worker("a", 2, one),
        worker("b", 2, one.plus(one)),
        worker("c", 1, one),
        worker("d", 2, one, is_up=False),
        worker("e", 2, one)._replace(figures=Figures()),
        worker("f", 2, one)._replace(figures=None),
    ]
    (item,) = told(rows)
    assert [each.name for each in item.workers] == ["a", "b", "c"]
    assert (item.revision, item.attempts, item.pods, item.neither) == (2, 12, 18, 3)
    assert (item.agreement, item.regret, item.live_regret) == (1.0, 0.5, None)


def test_figures_without_a_shadow_profile_are_written_as_before() -> None:
    assert b"shadow" not in msgspec.json.encode(Figures())
    of = ShadowFigures(profile="packed", state="on", counts=ShadowCounts(attempts=2))
    figures = Figures(shadow=of)
    assert msgspec.json.decode(msgspec.json.encode(figures), type=Figures) == figures


def test_the_command_prints_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = ShadowCounts(attempts=8, agreed=6, shadow_rated=8, shadow_loss_sum=10.0, skipped=1)
    figures = Figures(shadow=ShadowFigures(profile="packed", state="on", revision=3, counts=counts))
    now = datetime.datetime.now(datetime.UTC)
    rows = [WorkerState(name, name, "", now, now, None, True, True, [0], figures) for name in "ab"]
    items = [msgspec.to_builtins(each) for each in told(rows)]

    async def fetch_all(_: object, path: str, __: object, *, profile: str | None) -> list[object]:
        assert path == "/v1/shadow"
        return [each for each in items if profile in (None, each["profile"])]

    @contextlib.asynccontextmanager
    async def open_source(_: object) -> AsyncIterator[None]:
        yield None

    monkeypatch.setattr(source, "fetch_all", fetch_all)
    monkeypatch.setattr(source, "open_source", open_source)
    shown = CliRunner().invoke(app, ["shadow", "packed"])
    assert shown.exit_code == 0, shown.output
    lines = [line.split("\t") for line in shown.output.splitlines()]
    assert lines[1][:6] == ["packed", "on", "3", "16", "75.0%", "1.25"]
    assert [line[0] for line in lines[5:]] == ["a", "b"]
    as_json = CliRunner().invoke(app, ["shadow", "-o", "json"])
    assert json.loads(as_json.output) == items
    other = CliRunner().invoke(app, ["shadow", "other"])
    assert "no worker that is up compares the profile other" in other.output
