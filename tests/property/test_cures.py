"""Whatever is shown as a cure does cure: told to a fresh scheduler, it places as many pods as it says."""

from __future__ import annotations

from functools import reduce

import msgspec
import numpy as np

from benchmarks.cures import overfull
from domain.cures.changes import RaisePriority
from domain.cures.search import find_cures
from domain.cures.trials import Bounds
from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement
from tests.oracle.crowds import Crowd, size_of
from tests.oracle.curing_crowds import Site, after, drawn, nominated_by, placed_by, scheduler_of

SITES = 200


def snapshot_of(scheduler: Scheduler) -> object:
    """Return all that a search must leave as it was."""
    state = scheduler.state
    order = np.argsort(np.array(state.table.names[: state.table.count]))
    return (
        sorted((key, e.spec, e.node, e.placed_ms, e.arrival, e.adopted) for key, e in state.pods.items()),
        [(state.table.specs[row], state.requested_of(state.table.names[row])) for row in order.tolist()],
        sorted((c.namespace, sorted(c.labels.items()), c.pods_count, c.placed_count) for c in state.index),
    )


def test_each_cure_that_is_shown_does_cure() -> None:
    waiting = shown = 0
    kinds = set()
    for seed in range(1_000_000):
        if waiting == SITES:
            break
        site = drawn(seed)
        scheduler = scheduler_of(site)
        found = find_cures(scheduler, site.waiting[0], len(site.waiting), Bounds())
        if found.fits_on:
            assert placed_by(site) > 0, seed
            continue
        waiting += 1
        assert placed_by(site) == 0, seed
        assert found.reached, seed
        assert found.cures == sorted(found.cures, key=lambda cure: cure.order)
        for cure in found.cures:
            shown += 1
            kinds |= {type(each).__name__ for each in cure.changes}
            assert len(cure.changes) <= 2
            changed = reduce(after, cure.changes, site)
            is_evicting = isinstance(cure.changes[-1], RaisePriority)
            counted = nominated_by(changed) if is_evicting else placed_by(changed)
            assert counted == cure.pods_count > 0, (seed, cure)
    assert shown > SITES + 100
    assert kinds >= {
        "RepairNode", "Tolerate", "DropSelector", "DropRequirement", "DropPort", "RelaxSpread", "DropTerm",
        "MoreRoom", "Leave", "RaisePriority", "SmallerGang", "MoreNodes",
    }  # fmt: skip


def test_a_search_leaves_everything_as_it_was() -> None:
    for seed in range(60):
        site = drawn(seed)
        scheduler = scheduler_of(site)
        scheduler.dry_run()
        before = snapshot_of(scheduler)
        find_cures(scheduler, site.waiting[0], len(site.waiting), Bounds())
        scheduler.dry_run()
        assert snapshot_of(scheduler) == before, seed
        after_search = [
            (each.pod.key, each.node) for each in scheduler.cycle().verdicts if isinstance(each, Placement)
        ]
        fresh = scheduler_of(site).cycle().verdicts
        assert after_search == [(e.pod.key, e.node) for e in fresh if isinstance(e, Placement)], seed


def test_each_group_of_an_overfull_real_cluster_has_cures_that_cure() -> None:
    scheduler = overfull(1, nodes_max=60)
    state = scheduler.state
    running = [msgspec.structs.replace(e.spec, node_name=e.node) for e in state.pods.values() if e.node]
    nodes = sorted(state.table.specs[: state.table.count], key=lambda each: state.nodes[each.name].ordinal)
    groups = sorted(scheduler.queue.groups.values(), key=lambda group: -group.pods_count)
    assert len(groups) > 40
    for group in groups[:8]:
        waiting = [state.pods[key].spec for key in list(group.pods)[:50]]
        found = find_cures(scheduler, waiting[0], group.pods_count, Bounds(pods_max=len(waiting)))
        assert found.reached
        assert found.cures
        site = Site(nodes=nodes, running=running, waiting=waiting)
        for cure in found.cures:
            changed = reduce(after, cure.changes, site)
            is_evicting = isinstance(cure.changes[-1], RaisePriority)
            assert (nominated_by(changed) if is_evicting else placed_by(changed)) > 0, (group.template, cure)


def crowded(seed: int) -> Scheduler:
    """Return a scheduler behind some cycles of a crowd whose pods ask for and shun one another."""
    crowd = Crowd(size_of(seed, work_max=400_000))
    scheduler = Scheduler(crowd.profiles, seed=seed)
    for events in crowd.history():
        for event in events:
            scheduler.fold(event)
        for each in scheduler.cycle().verdicts:
            if isinstance(each, Placement):
                crowd.bind(each.pod.key, each.node)
    return scheduler


def test_a_search_among_pods_that_shun_one_another_leaves_everything_as_it_was() -> None:
    searched = cured = 0
    for seed in range(40):
        scheduler = crowded(seed)
        for group in list(scheduler.queue.groups.values())[:6]:
            pod = scheduler.state.pods[next(group.pods)].spec
            scheduler.dry_run()
            before = snapshot_of(scheduler)
            found = find_cures(scheduler, pod, group.pods_count, Bounds(pods_max=20))
            scheduler.dry_run()
            assert snapshot_of(scheduler) == before, (seed, pod.key)
            searched += 1
            cured += bool(found.cures)
    assert searched > 60
    assert cured > 50
