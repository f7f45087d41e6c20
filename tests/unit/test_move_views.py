"""Do the views say which pods leave a hot node, why, and where another one like them would go?"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from services.adapters.memory.store import MemoryStore
from services.api.answers import NodeDetail
from services.api.explanation import decision_of
from services.api.leaving import explain
from services.api.views import show_node
from services.cli.describe import _node as describe_node
from services.executor.run import deletions
from services.ports.log import Record
from tests.property.site import Site
from tests.unit.heated import HOT_MS, cluster, heat, hot_site, measure
from tests.unit.preempted import leave


def detail(site: Site, *namespaces: str) -> NodeDetail:
    store = MemoryStore(site.database)
    shown = asyncio.run(show_node(store.seen_by(set(namespaces) or None), "hot", sees_all=not namespaces))
    assert shown is not None
    return shown


def summaries(site: Site, name: str) -> dict[str, str]:
    store, said = MemoryStore(site.database), {}
    for row in site.decided():
        if row["pod"]["name"] == name:
            explained = asyncio.run(explain(store, row["shard"], row["seq"]))
            assert explained is not None
            said[row["outcome"]] = explained.summary
    return said


def test_a_node_says_that_it_is_hot_and_which_pods_have_to_leave(capsys: pytest.CaptureFixture[str]) -> None:
    site = hot_site()
    shown = detail(site)
    assert shown.heat is not None
    assert (shown.heat.hot, shown.heat.why) == (True, ["cpu is used to 90.0 %"])
    (move,) = shown.moves
    assert (move.namespace, move.name, move.to) == ("default", "web", "cool")
    assert (move.since, move.expires) == ("2023-11-14T22:23:20.000Z", "2023-11-14T22:24:20.000Z")
    assert detail(site, "shop").moves == []
    describe_node(msgspec.to_builtins(shown))
    said = capsys.readouterr().out
    assert "Hot: cpu is used to 90.0 %" in said
    assert "default/web" in said
    leave(site, "web", at_ms=HOT_MS + 1)
    assert detail(site).moves == []


def test_a_node_that_is_calm_or_was_never_measured_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    site = cluster()
    assert detail(site).heat is None
    site.tell("ADDED", measure("hot", 1.0), at_ms=HOT_MS)
    shown = detail(site)
    assert msgspec.to_builtins(shown.heat) == {"hot": False, "why": []}
    describe_node(msgspec.to_builtins(shown))
    assert "Hot: no" in capsys.readouterr().out


def test_a_pod_that_was_moved_is_explained() -> None:
    site = hot_site()
    leave(site, "web", at_ms=HOT_MS + 1)
    said = summaries(site, "web")
    assert said["evicted"] == (
        "default/web has to leave hot, which is hot; until it has, it counts there. "
        "Reason: leaves hot, which is hot (cpu is used to 90.0 %); cool would take it."
    )
    (evicted,) = [row["id"] for row in site.decided() if row["outcome"] == "evicted"]
    assert said["released"].endswith(
        f"It was told to leave (decision {evicted}). hot was hot: cpu is used to 90.0 %. "
        "The pod was expected to use 3 cpu, 1Gi memory, for which cool had room."
    )


def test_a_pod_that_stayed_is_explained() -> None:
    site = hot_site()
    site.tell("ADDED", measure("cool", 1.0), at_ms=HOT_MS + 61_000)
    assert "does not have to leave hot any more" in summaries(site, "web")["spared"]


def test_a_decision_has_its_migration_for_all_that_see_the_pod() -> None:
    site = hot_site()
    (record,) = [row for row in site.decided() if row["outcome"] == "evicted"]
    row = asyncio.run(MemoryStore(site.database).decision(record["shard"], record["seq"]))
    assert row is not None
    for seen in (None, {"default"}):
        migration = decision_of(row, seen).migration
        assert migration is not None
        assert (migration.source, migration.to) == ("hot", "cool")
        assert migration.relief == {"cpu": 3_000, "memory": 1 << 30}


def test_the_executor_says_that_a_pod_left_where_its_events_come_from() -> None:
    site = hot_site()
    heat(site, "cool", HOT_MS + 1)
    records = [
        Record("berth.decisions", decision.shard, at, b"", payload, HOT_MS)
        for at, (decision, payload) in enumerate(
            each for rows in site.database.decisions.values() for each in rows
        )
    ]
    ((partition, (entry,)),) = deletions(records).items()
    assert entry.key == b"default/web"
    (migration,) = [row["migration"] for row in site.decided() if "migration" in row]
    assert partition == migration["shard"]
