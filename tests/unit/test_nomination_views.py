"""Do the views say who has a node promised, who has to leave it, and why, on 80 columns, too?"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from services.adapters.memory.store import MemoryStore
from services.api.attempts import show_attempts
from services.api.explanation import decision_of, explain
from services.api.nominations import list_nominations
from services.cli.get import Kind, kind_of
from services.cli.output import Table
from services.cli.tables import TABLES
from services.cli.watch import GONE, KEYS
from tests.builders import node_manifest, pod_manifest
from tests.property.site import Site
from tests.unit.preempted import AT_MS


@pytest.fixture
def site() -> Site:
    """Return a ledger in which two pods have to leave for one of a higher priority."""
    site = Site(preempts=True)
    lows = [pod_manifest(f"low-{i}", "shop" if i else "default", cpu="2") for i in range(2)]
    site.tell("ADDED", node_manifest("n1", cpu=4), *lows)
    site.tell("ADDED", pod_manifest("high", cpu="4", priority=9))
    return site


def test_nominations_are_listed_with_who_has_to_leave(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(site.database)
    (item,) = asyncio.run(list_nominations(store, limit=10, at=None)).items
    assert (item.namespace, item.name, item.node, item.priority) == ("default", "high", "n1", 9)
    assert item.victims == ["default/low-0", "shop/low-1"]
    assert item.since < item.expires
    (seen,) = asyncio.run(list_nominations(store.seen_by({"default"}), limit=10, at=None)).items
    assert seen.victims == ["default/low-0"]
    assert asyncio.run(list_nominations(store.seen_by({"shop"}), limit=10, at=None)).items == []
    monkeypatch.setenv("COLUMNS", "80")
    Table(TABLES[Kind.NOMINATIONS], aligned=True).add([msgspec.to_builtins(item)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "POD"
    assert "default/low-0" in lines[1]
    assert "shop/low-1" in lines[2]
    assert max(map(len, lines)) <= 80


def test_pages_of_nominations_go_on_where_they_ended(site: Site) -> None:
    site.tell("ADDED", node_manifest("n2", cpu=4), pod_manifest("low-2", cpu="4"))
    site.tell("ADDED", pod_manifest("next", cpu="4", priority=9))
    store = MemoryStore(site.database)
    first = asyncio.run(list_nominations(store, limit=1, at=None))
    second = asyncio.run(list_nominations(store, limit=1, at=first.next))
    assert [item.name for item in (*first.items, *second.items)] == ["high", "next"]
    assert second.next is None


def test_both_sides_are_explained(site: Site) -> None:
    store = MemoryStore(site.database)
    said = {}
    for row in site.decided():
        explained = asyncio.run(explain(store, row["shard"], row["seq"]))
        assert explained is not None
        said[row["pod"]["name"], row["outcome"]] = explained.summary
    assert "waits for n1, which is nominated for it" in said["high", "nominated"]
    assert "has to leave n1 for a pod of higher priority" in said["low-0", "evicted"]


def test_a_victims_auditor_is_not_told_whose_key_sent_what_it_leaves_for(site: Site) -> None:
    """Their decisions name the sender of the preemptor, which may be of another team."""
    site.tell("DELETED", pod_manifest("high", cpu="4", priority=9))
    store, sent = MemoryStore(site.database), {}
    for record in site.decided():
        row = asyncio.run(store.decision(record["shard"], record["seq"]))
        assert row is not None
        row = row._replace(payload=msgspec.json.encode(record | {"sent_by": "key:rival"}))
        assert decision_of(row, None).sent_by == "key:rival"
        sent[record["pod"]["name"], record["outcome"]] = decision_of(row, {"default", "shop"}).sent_by
    hidden = {outcome for (_, outcome), sender in sent.items() if sender is None}
    assert hidden == {"evicted", "spared"} | ({"cleared"} & {outcome for _, outcome in sent})
    assert sent["low-0", "bound"] == sent["high", "nominated"] == "key:rival"


def test_the_kind_has_names_and_can_be_watched() -> None:
    assert {kind_of(name) for name in ("nominations", "nomination", "nom")} == {Kind.NOMINATIONS}
    assert KEYS[Kind.NOMINATIONS] == ("uid", "shard")
    assert Kind.NOMINATIONS in GONE


def summaries(site: Site, name: str, at_ms: int | None = None) -> str:
    """Return what is said of a pod in one sentence: where it is, or why it waits."""
    found = asyncio.run(show_attempts(MemoryStore(site.database), "default", name, at_ms))
    assert found is not None
    return found.summary


def test_why_a_pod_waits_names_the_node_that_is_promised_to_it(site: Site) -> None:
    then_ms = AT_MS + 1
    assert "of 1 node, 1 lacks cpu" in summaries(site, "high")
    assert summaries(site, "high").endswith(" n1 is nominated for it.")
    assert summaries(site, "low-0").startswith(
        "default/low-0 is placed on n1. It has to leave: it makes room for a pod of priority 9"
    )
    site.tell("DELETED", pod_manifest("high"), at_ms=AT_MS + 5_000)
    assert summaries(site, "low-0") == "default/low-0 is placed on n1.", "it was spared"
    assert "is nominated for it" in summaries(site, "high", then_ms)
    assert "It has to leave" in summaries(site, "low-0", then_ms)
