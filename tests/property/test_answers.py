"""Do an explanation, its table and the history of a group agree, over many random decisions?"""

from __future__ import annotations

import asyncio
import re
from random import Random

import pytest

from domain.model.decisions import Outcome
from services.adapters.memory.store import MemoryStore
from services.api.answers_decisions import Explanation
from services.api.attempts import show_attempts
from services.api.explanation import explain
from services.ports.store import PodFilter
from tests.builders import node_manifest, pod_manifest, priority_class_manifest
from tests.depth import some
from tests.property.site import Producer, Site

WAITS = (Outcome.UNSCHEDULABLE, Outcome.UNRESOLVABLE)


def check(found: Explanation) -> None:
    """Compare the sentence with the table, and the table with what was looked at."""
    decision, cycle = found.decision, found.cycle
    said = re.search(r"Of (?:all nodes|the others), (.*?)\.(?: |$)", found.summary)
    if found.reasons and cycle is not None:
        assert said is not None, found.summary
        counts = [int(count.replace(",", "")) for count in re.findall(r"(?:^|; )([\d,]+) ", said[1])]
        assert counts == sorted(found.reasons.values(), reverse=True)[:4], found.summary
    if decision.outcome in WAITS:
        assert found.reasons == decision.reasons
    if cycle is not None:
        refused = sum(cycle.reasons.values())
        held = all(code.startswith(("unsupported", "unknown", "scheduling")) for code in cycle.reasons)
        assert held or cycle.feasible + refused == cycle.nodes
        for each in cycle.candidates:
            total = sum(cycle.weights[name] * part for name, part in each.parts.items())
            assert each.score == pytest.approx(total)


@pytest.mark.parametrize("seed", some(range(8)))
def test_sentences_agree_with_their_tables(seed: int) -> None:
    site, producer = Site(), Producer(Random(seed))
    for _ in range(12):
        site.take(producer.records(25))
    asyncio.run(look(MemoryStore(site.database), site))


async def look(store: MemoryStore, site: Site) -> None:
    """Check every decision, and why each pod that waits does so now."""
    count = 0
    for shard, rows in site.database.decisions.items():
        for decision, _ in rows:
            found = await explain(store, shard, decision.seq)
            assert found is not None
            check(found)
            count += 1
    assert count > 50
    for pod in await store.pods(PodFilter(phase="pending"), 1000, None):
        attempts = await show_attempts(store, pod.namespace, pod.name, None)
        assert attempts is not None
        (group,) = await store.pending(pod.shard, pod.signature)
        assert attempts.state == "waiting"
        if group.reasons:
            assert attempts.items[-1].reasons == group.reasons


@pytest.mark.parametrize("others", [0, 8], ids=["alone", "beside its like"])
def test_a_pod_whose_class_came_is_refused_for_what_holds_from_then_on(others: int) -> None:
    site, at_ms = Site(), 1_700_000_000_000
    store = MemoryStore(site.database)
    like = [pod_manifest(f"like-{i}", cpu=4, priority=1000) for i in range(others)]
    site.tell("ADDED", node_manifest("n", cpu=1), *like, at_ms=at_ms)
    pod = pod_manifest("p", cpu=4, spec={"priorityClassName": "urgent"})
    site.tell("ADDED", pod, at_ms=at_ms + 10)
    site.tell("ADDED", priority_class_manifest("urgent", 1000), at_ms=at_ms + 20)

    def refused(at_ms: int | None) -> tuple[str, dict[str, int]]:
        found = asyncio.run(show_attempts(store, "default", "p", at_ms))
        assert found is not None
        return found.state, found.items[-1].reasons

    lacking, short = {"unknown-priority-class:urgent": 1}, {"insufficient:cpu": 1}
    assert refused(None) == ("waiting", short)
    assert refused(at_ms + 15) == ("waiting", lacking)
    assert refused(at_ms + 25) == ("waiting", short)
    site.tell("ADDED", node_manifest("big", cpu=64), at_ms=at_ms + 30)
    assert refused(None) == ("bound", short)
    assert refused(at_ms + 25) == ("waiting", short)


def test_a_pod_that_takes_the_place_of_another_is_told_of_from_that_moment_on() -> None:
    site, at_ms = Site(), 1_700_000_000_000
    site.tell("ADDED", node_manifest("n", cpu=1), pod_manifest("p", cpu=4, uid="first"), at_ms=at_ms)
    site.tell("ADDED", pod_manifest("p", cpu=5, uid="second"), at_ms=at_ms + 10)
    site.tell("DELETED", pod_manifest("p", uid="second"), at_ms=at_ms + 20)
    found = asyncio.run(show_attempts(MemoryStore(site.database), "default", "p", at_ms + 15))
    assert found is not None
    assert (found.state, len(found.items)) == ("waiting", 1)
